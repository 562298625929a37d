"""What a user's file does costs its own row: real commands over files of the zoo."""

import json
import re
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support import Cli, budget
from zoo import UNUSABLE, ZOO

USABLE = ("closes_stdout", "deletes_stdout", "escapes", "prints", "spins", "tuning_empty")
STEERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def left_over(cli: Cli) -> list[psutil.Process]:
    """What this test's commands have started and not ended."""
    home, found = cli.environment["XDG_STATE_HOME"], []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("XDG_STATE_HOME") == home:
                found.append(process)
    return found


@pytest.fixture
def zoo(cli: Cli) -> Cli:
    cli.environment["WORKBENCH_WORKLOADS"] = str(ZOO)
    return cli


def test_each_broken_file_is_named_and_the_others_are_listed(zoo: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    for name in ("_base", *UNUSABLE, *USABLE):
        (folder / f"{name}.py").symlink_to(ZOO / f"{name}.py")
    done = zoo("list", "--json", WORKBENCH_WORKLOADS=str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    listed = json.loads(done.stdout)
    assert not STEERS.search(done.stdout)
    assert {*USABLE, "matmul"} <= {workload["name"] for workload in listed["workloads"]}
    assert set(listed["broken"]) == set(UNUSABLE)
    for name, said in UNUSABLE.items():
        found = listed["broken"][name]
        assert found.startswith(f"{name}.py") and said in found and len(found) < 700
    assert left_over(zoo) == []


@pytest.mark.parametrize("name", ["exits_well", "work_raises"])
def test_a_broken_file_that_was_named_is_a_usage_error(zoo: Cli, name: str) -> None:
    done = zoo("run", name, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"workbench: {name}.py: ") and len(last) < 700
    assert not STEERS.search(done.stderr)
    assert "Traceback" not in done.stderr
    assert not list(zoo.runs.glob("*.jsonl"))


def test_what_fails_in_a_worker_costs_its_own_row(zoo: Cli) -> None:
    names = ("prints", "step_garbles", "step_raises_much", "reference_much")
    done = zoo("run", *names, *budget(10), "--json")
    assert done.returncode == 1
    assert not STEERS.search(done.stdout + done.stderr)
    found = {each["scenario"]: each for each in json.loads(done.stdout)["measurements"]}
    assert found["prints"]["status"] == "ok"
    garbled, raised = found["step_garbles"]["reason"], found["step_raises_much"]["reason"]
    assert garbled["code"] == "worker_died"
    assert "an answer that cannot be read" in garbled["message"]
    assert raised["message"].startswith("ValueError: xxx")
    assert len(raised["message"]) < 700
    assert len(found["reference_much"]["accuracy"]["reference"]) < 400
    assert len(done.stdout) < 200_000
    assert left_over(zoo) == []
