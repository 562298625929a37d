"""A GPU that misbehaves: one line with cause and remedy, and the CPU's candidates are complete."""

import json
from pathlib import Path
from typing import Any

import pytest
from stub_driver import StubDriver
from support import Cli, budget

FLAKY = str(Path(__file__).parents[1] / "fixtures" / "flaky_gpu")


class Runs:
    """Runs of the flaky backend on the stub's GPU."""

    def __init__(self, cli: Cli, stub: StubDriver, folder: Path) -> None:
        self.cli, self.folder = cli, folder
        self.driver = stub.environ("nvml", "cuda")["LD_LIBRARY_PATH"]

    def __call__(self, phases: str, how: str, **settings: str) -> tuple[int, list[dict[str, Any]]]:
        """The exit code, and the measurements on the GPU; those on the CPU are complete."""
        done = self.cli(
            *("run", "fragile", *budget(5 + len(phases.split(","))), "--json"),
            *("--set", f"how={how}"),
            *("--set", f"phase={phases}"),
            WORKBENCH_WORKLOADS=FLAKY,
            LD_LIBRARY_PATH=self.driver,
            FLAKY_STARTS=str(self.folder / "starts"),
            FLAKY_GONE=str(self.folder / "gone"),
            **settings,
        )
        assert "Traceback" not in done.stderr
        document = json.loads(done.stdout)
        assert document["run"]["status"] == "done"
        on_cpu = [m for m in document["measurements"] if m["case"]["device"] == "cpu"]
        assert {(m["status"], m["n"] > 0) for m in on_cpu} == {("ok", True)}
        return done.returncode, [m for m in document["measurements"] if m not in on_cpu]

    @property
    def starts(self) -> int:
        """The number of workers that were started on the GPU."""
        path = self.folder / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def run(cli: Cli, stub: StubDriver, tmp_path: Path) -> Runs:
    return Runs(cli, stub, tmp_path)


def failed(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The reasons of the FP16 candidates; all others on the GPU are measured."""
    assert {m["status"] for m in found if m["case"]["precision"] != "fp16"} == {"ok"}
    mine = [m for m in found if m["case"]["precision"] == "fp16"]
    assert {m["status"] for m in mine} == {"failed"}
    return [m["reason"] for m in mine]


def test_a_gpu_that_cannot_be_used_is_refused_once(run: Runs) -> None:
    words = "CUDA error: no kernel image is available for execution on the device"
    code, found = run("none", "memory", FLAKY_REFUSES=words)
    assert (code, run.starts, len(found)) == (0, 1, 3)
    for measured in found:
        reason = measured["reason"]
        assert (measured["status"], reason["code"]) == ("skipped", "unsupported_device")
        assert words in reason["message"] and "workbench doctor" in reason["hint"]


def test_memory_that_runs_out_costs_one_candidate_and_no_worker(run: Runs) -> None:
    code, found = run("draw,prepare,check,measure", "memory")
    assert (code, run.starts) == (1, 1)
    reasons = failed(found)
    assert len(reasons) == 4
    for reason in reasons:
        assert reason["code"] == "no_memory" and "smaller" in reason["hint"]
        assert "closing" not in reason["message"]


def test_a_sticky_error_costs_its_worker_and_no_other_candidate(run: Runs) -> None:
    code, found = run("measure", "sticky")
    assert (code, run.starts) == (1, 2)
    (reason,) = failed(found)
    assert reason["message"].endswith("device-side assert triggered")
    assert "suspect the GPU" in reason["hint"]


def test_a_gpu_that_vanishes_is_looked_for_once_more(run: Runs) -> None:
    code, found = run("measure", "lost")
    assert (code, run.starts) == (1, 2)
    reasons = {m["case"]["precision"]: m["reason"] for m in found}
    assert "launch failure" in reasons.pop("fp16")["message"]
    assert [(r["code"], "dmesg" in r["hint"]) for r in reasons.values()] == [("gpu_lost", True)] * 2
