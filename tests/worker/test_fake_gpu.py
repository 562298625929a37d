"""A simulated GPU drives the GPU column, the ratios and all four choices, with real workers."""

from pathlib import Path

import pytest
from support import WORKLOADS

from workbench import catalog
from workbench.contract import ParameterValue
from workbench.engine.engine import Engine
from workbench.planning.plan import RowPlan
from workbench.planning.request import Request
from workbench.planning.scenario import Scenario, Size
from workbench.pool import control
from workbench.pool.control import Control
from workbench.report.from_document import report_of
from workbench.report.report import Report


def race(
    speed: str,
    params: dict[str, ParameterValue],
    *,
    size: Size | None = None,
    budget_s: float = 30.0,
    **asked: object,
) -> Report:
    """Race one row of steps of known length against a GPU of `speed`."""
    workload = catalog.load("spin")
    scenario = Scenario(
        id="row",
        title="Row",
        question="Which?",
        textbook="gpu",
        workload="spin",
        objective="throughput",
        precisions=("fp32", "bf16"),
        params=workload.values({"gain": 0.5, **params}),
        size=size,
    )
    request = Request(devices=("cpu", f"fake:0@{speed}"), budget_s=budget_s, **asked)
    report = Report()
    Engine(request, [RowPlan(scenario, workload)], Control(), report, lambda _: None).run()
    return report


# A step counts with the length that it was to have: other processes make it longer, not alike.
NOMINAL = """
from workbench.contract import DeviceTimer


class Nominal(DeviceTimer):
    def __init__(self, task):
        self.task = task

    def start(self):
        self.begun = self.task.steps

    def stop(self):
        self.ended = self.task.steps

    def elapsed_s(self):
        return (self.ended - self.begun) * self.task.length_s


class NominalTask(SpinTask):
    finishes = True
    steps = 0

    def step(self):
        super().step()
        self.steps += 1

    def device_timer(self):
        return Nominal(self)


SpinTask = NominalTask
"""


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "workloads"
    folder.mkdir()
    (folder / "spin.py").write_text((WORKLOADS / "spin.py").read_text() + NOMINAL)
    monkeypatch.setenv("WORKBENCH_WORKLOADS", str(folder))
    monkeypatch.setattr(control, "process_age_s", lambda: 0.0)  # the tests before took long


@pytest.mark.parametrize(("speed", "choice"), [("4", "gpu"), ("0.25", "cpu"), ("1", "either")])
def test_the_choice_follows_the_simulated_speed(speed: str, choice: str) -> None:
    report = race(speed, {"ms": 5.0})
    (verdict,) = report.verdicts
    assert verdict.choice == choice
    assert verdict.basis == "simulated"
    assert verdict.device_ratio == pytest.approx(float(speed), rel=1e-3)
    assert verdict.best_gpu.endswith("fake:0/numpy/fp32")
    assert [m.simulated for m in report.measurements if m.case.device == "fake:0"] == [True]
    assert report.machine.gpus[0].simulated
    # BF16, twice as slow as FP32, is eliminated, after one block if that is certain.
    slow = next(m for m in report.measurements if m.case.precision == "bf16")
    assert slow.status == "ok"
    assert slow.reason.code in ("beaten", "far_slower")


def test_a_gpu_whose_candidates_all_fail_leaves_the_choice_unknown() -> None:
    report = race("8", {"ms": 5.0, "trouble": "raise"})
    (verdict,) = report.verdicts
    assert verdict.choice == "unknown"
    assert verdict.pick.endswith("cpu/numpy/bf16/t" + str(report.machine.cpu.effective_cores))
    assert any("the step broke" in reason for reason in verdict.reasons)


def test_the_size_at_which_the_gpu_takes_the_lead_is_found() -> None:
    size = Size("count", 2, 80)
    report = race("0.1", {"ms": 0.1, "count": 30}, size=size, crossover=True, budget_s=9.0)
    (verdict,) = report.verdicts
    assert verdict.choice == "gpu"
    found = verdict.crossover
    assert (found.below, found.above) == ("cpu", "gpu")
    low, high = found.ci95
    assert low <= found.value <= high
    assert 3 < found.value < 30  # ten spins in a row take as long as one spin of the slow GPU
    assert {"row", "row[count=2]", "row[count=80]"} <= set(report.rows)
    (sweep,) = report.sweeps
    assert (sweep.scenario, sweep.axes["count"][0], sweep.axes["count"][-1]) == ("row", 2, 80)
    assert 30 in sweep.axes["count"]  # the scenario's own size belongs to the curve
    assert report_of(report.document()).document() == report.document()
