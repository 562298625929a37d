"""The commands of a fleet that start something: bad input is one line, and what a launcher does."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
import schemas

from workbench.cli.main import cli
from workbench.files import config
from workbench.fleet import launcher, slurm, ssh
from workbench.fleet.plan import Node
from workbench.planning.usage import UsageError

FIXTURES = Path(__file__).parents[2] / "fixtures"


def refused(*arguments: str) -> str:
    with pytest.raises((UsageError, click.UsageError)) as error:
        cli.main(["fleet", *arguments], standalone_mode=False)
    found = error.value
    return found.format_message() if isinstance(found, click.ClickException) else str(found)


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["fleet", "run", *arguments], standalone_mode=False)
    return int(str(ended.value.code))


class FakeLauncher:
    """Keeps what it was made with; `watch` does what a test wants."""

    watches: Any = staticmethod(lambda every_s: None)
    accepts = cancels = True
    made: list[Any] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, folder: Path, plan: Any, say: Any) -> None:
        self.folder, self.plan, self.log = folder, plan, []
        self.made.append(self)

    def submit(self) -> bool:
        self.log.append("submit")
        return self.accepts

    def watch(self, every_s: float) -> None:
        self.log.append(f"watch {every_s:g}")
        self.watches(every_s)

    def cancel(self) -> bool:
        self.log.append("cancel")
        return self.cancels


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Launchers that were started, on a cluster of one node."""
    FakeLauncher.made.clear()
    monkeypatch.setattr(launcher, "Launcher", FakeLauncher)
    monkeypatch.setattr(slurm, "slurm_nodes", lambda _: [Node("a", 8, 16 << 30, partition="cpu")])
    return FakeLauncher.made


def interrupted(_: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run", "branching"), "Missing option '--into'"),
        (("run", "--into", "x", "--deadline", "30"), "--deadline takes a time such as 90s, 30m"),
        (("plan", "--deadline", "0m"), "--deadline takes a time such as 90s, 30m or 2h, not '0m'"),
        (("plan", "--hosts", "a", "--partition", "b"), "name one of --partition, --hosts and"),
        (("plan", "--hosts", "a,,b"), "--hosts takes A,B"),
        (("plan", "--per-type", "0"), "0 is not in the range"),
        (("plan", "matmull"), "unknown scenario 'matmull'"),
        (("plan", "matmul"), "matmul is no scenario: use `workbench run matmul`"),
        (("plan", "--what-if", "x"), "No such option"),
        (("manifest", "--image", "x", "--pool", "a=b"), "Missing option '--kubernetes'"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], text: str) -> None:
    assert text in refused(*arguments)


def test_the_plan_as_json_is_what_a_run_would_write(made, capsys) -> None:
    cli.main(["fleet", "plan", "branching", "--quick", "--json"], standalone_mode=False)
    found = schemas.checked_document(capsys.readouterr().out, "fleet-plan")
    assert found["tool"]["command"] == "fleet plan"
    assert found["plan"]["arguments"] == ["advise", "branching", "--quick"]
    assert found["plan"]["jobs"][0]["node"] == "a"
    assert found["plan"]["deadline_s"] == 3600


def test_the_remembered_budget_is_that_of_every_node(made, capsys) -> None:
    config.assign("budget", "600")
    cli.main(["fleet", "plan", "--json"], standalone_mode=False)
    found = schemas.checked_document(capsys.readouterr().out, "fleet-plan")["plan"]
    assert (found["arguments"], found["budget_s"]) == (["advise", "--budget", "600"], 600)


def test_a_run_waits_and_a_detached_one_does_not(made, tmp_path, capsys) -> None:
    assert exit_code("--into", str(tmp_path / "f"), "--quick", "--every", "2") == 1
    assert exit_code("--into", str(tmp_path / "f"), "--detach") == 0
    assert [each.log for each in made] == [["submit", "watch 2"], ["submit"]]
    assert made[0].plan == made[1].plan
    assert "to fetch" not in capsys.readouterr().err


def test_a_detached_run_on_hosts_says_how_to_fetch_what_they_write(
    made, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(ssh, "ssh_nodes", lambda *_: [Node("a", 8, 16 << 30)])
    assert exit_code("--into", str(tmp_path), "--hosts", "a", "--quick", "--detach") == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"to fetch what the hosts write: workbench fleet run --into {tmp_path}"


def test_a_detached_run_fails_where_a_job_was_refused(made, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(FakeLauncher, "accepts", False)
    assert exit_code("--into", str(tmp_path), "--quick", "--detach") == 1


def test_a_folder_with_a_fleet_takes_no_other_options(made, tmp_path) -> None:
    exit_code("--into", str(tmp_path), "--quick")
    assert "go on with --into alone" in refused("run", "--into", str(tmp_path), "--quick")


def test_a_run_ends_with_what_a_reader_sees(made, tmp_path, capsys) -> None:
    assert exit_code("--into", str(tmp_path), "--quick") == 1
    assert "0 of 1 nodes have answered; 1 pending." in capsys.readouterr().err
    document = tmp_path / "jobs" / "cpu-8c-1" / "document.json"
    document.write_bytes((FIXTURES / "documents" / "advise-prices.json").read_bytes())
    assert exit_code("--into", str(tmp_path)) == 0
    said = "1 of 1 nodes have answered. The tables: workbench fleet show"
    assert said in capsys.readouterr().err


def test_a_bundle_without_workbench_or_with_ranks_is_refused(made, tmp_path) -> None:
    bundle = ("plan", "--wheels", str(tmp_path))
    assert "holds no wheel of workbench: fill it by `pip wheel`" in refused(*bundle)
    assert "leave out --wheels" in refused(*bundle, "--scaling", "cpu-8c")
    assert "Choices: none" in refused("plan", "--scaling", "cpu-8c")


@pytest.mark.parametrize(
    ("answer", "log", "text"), [(True, ["cancel"], "are cancelled"), (False, [], "the jobs go on")]
)
def test_ctrl_c_asks_in_a_terminal(made, tmp_path, monkeypatch, capsys, answer, log, text) -> None:
    monkeypatch.setattr(FakeLauncher, "watches", staticmethod(interrupted))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: answer)
    assert exit_code("--into", str(tmp_path)) == 130
    assert made[0].log[2:] == log
    assert text in capsys.readouterr().err


def test_after_ctrl_c_what_could_not_be_cancelled_is_not_called_cancelled(
    made, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(FakeLauncher, "watches", staticmethod(interrupted))
    monkeypatch.setattr(FakeLauncher, "cancels", False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    assert exit_code("--into", str(tmp_path)) == 130
    assert "the other jobs are cancelled; what they wrote stays" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [("--scenarios", "/opt/no/mine.toml"), ("--prices", "/opt/no/p.toml"), ("--torch", "/no/t.py")],
)
def test_files_of_a_manifest_are_those_in_the_image(capsys, options: tuple[str, str]) -> None:
    image = ("--kubernetes", "--image", "x", "--pool", "a=b")
    cli.main(["fleet", "manifest", *image, *options], standalone_mode=False)
    written = capsys.readouterr().out
    assert options[1] in written
    pod = json.loads(written)["spec"]["template"]["spec"]
    assert pod["tolerations"], "GPU nodes have a taint"
    assert pod["containers"][0]["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]
    assert "unknown scenario" in refused("manifest", *image, "matmull")
