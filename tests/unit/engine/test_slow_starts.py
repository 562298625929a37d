"""The share of a run on a GPU server that is spent on measuring, where workers start slowly."""

from typing import Any

import machines
import pytest
import simulated_run
from scenes import TABLE
from simulated_run import EPYC, SimulatedMachine, SimulatedPool, run

from workbench.contract import kind_of
from workbench.planning.request import Request
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev

IMPORT_S = {"numpy": 0.1, "onnxruntime": 0.3, "torch": 5.0}  # a CUDA build of torch, on a cold disk
CONTEXT_S = 1.0  # to open a GPU and load its libraries
# Of a case whose data is there already; a warm-up takes no longer than the engine asks for.
BUILD_S, COPY_S, WARM_UP_S = 0.02, 0.034, 0.1


class SlowStarts(SimulatedPool):
    """Workers whose start takes seconds, and cases that are soon prepared."""

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        if self.is_alive(key):
            return
        on_gpu = not kind_of(key.device).on_host
        took_s = IMPORT_S[key.backend] + (CONTEXT_S if on_gpu else 0.0)
        with_context = {key.backend: took_s - (0.5 if on_gpu else 0.0)}  # the base adds its own
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulated_run, "IMPORT_S", with_context)
            super().start(key, deadline_s)

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        began_s, case = self.control.at_s, request["case"]
        answer = super().prepare(request)
        copy_s = 0.0 if kind_of(case.device).on_host else COPY_S
        warm_up_s = min(WARM_UP_S, request["warm_up_s"])
        self.control.at_s = began_s + BUILD_S + copy_s + warm_up_s + 3 * self.step_s(case)
        answer["setup"] = {"build_s": BUILD_S, "transfer_s": copy_s or None}
        return answer


@pytest.mark.parametrize(("quick", "goal"), [(True, 0.5), (False, 0.6)], ids=["quick", "default"])
def test_most_of_what_the_starts_leave_is_spent_on_measuring(quick, goal, monkeypatch) -> None:
    monkeypatch.setitem(simulated_run.ERRORS, "fp8", 3e-2)  # among the ceilings of an H200
    server = SimulatedMachine(*machines.gpu_server(), cpu=EPYC)
    events = run(Request(scenarios=TABLE, quick=quick), server, pool=SlowStarts)
    starts_s = sum(event.import_s for event in events if isinstance(event, ev.WorkerStarted))
    (ended,) = (event for event in events if isinstance(event, ev.RunFinished))
    assert ended.overhead.measured_s / (ended.duration_s - starts_s) >= goal
    measured = {event.scenario for event in events if isinstance(event, ev.BlockMeasured)}
    assert set(TABLE) <= measured
    assert starts_s >= sum(IMPORT_S.values()) + IMPORT_S["torch"] + CONTEXT_S  # each was slow
    verdicts = {e.verdict.scenario: e.verdict for e in events if isinstance(e, ev.VerdictReached)}
    assert {name for name, verdict in verdicts.items() if verdict.confidence == "open"} == {
        "prototyping"  # each of its candidates starts only once
    }
    assert verdicts["realtime"].choice == "gpu"  # as a CUDA graph, which is tried first
    begun = [event.case for event in events if isinstance(event, ev.CasePreparing)]
    assert len(begun) == len(set(begun))  # nothing is measured twice, ceilings included
