"""`--quick` where a CUDA build takes 5 s to import and a context 1 s: every row gets its turns."""

from dataclasses import replace
from functools import cache
from itertools import product
from unittest.mock import patch

import machines
import simulated_run
from builders import case

from workbench.engine.schedule import by_promise
from workbench.planning.request import TABLE_QUICK_BUDGET_S, Request
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev

IMPORT_S, CONTEXT_S = 5.0, 1.0


class SlowStarts(simulated_run.SimulatedPool):
    """Torch takes 5 s to import, and its worker for a GPU one more second."""

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        slow = {**simulated_run.IMPORT_S, "torch": IMPORT_S}
        if key.device.startswith("cuda"):
            slow["torch"] += CONTEXT_S - 0.5  # the half second is its own
        with patch.object(simulated_run, "IMPORT_S", slow):
            super().start(key, deadline_s)


@cache
def events_of(quick: bool, *devices: str) -> list[ev.AnyEvent]:
    simulated = simulated_run.SimulatedMachine(*machines.gpu_server())
    return simulated_run.run(Request(quick=quick, devices=devices), simulated, pool=SlowStarts)


def kinds_of_rows(events: list[ev.AnyEvent]) -> dict[str, set[str]]:
    """The kinds of device that were measured in each row."""
    found: dict[str, set[str]] = {}
    for event in events:
        if isinstance(event, ev.BlockMeasured):
            kind = event.case.split("/")[1].partition(":")[0]
            found.setdefault(event.scenario, set()).add(kind)
    return found


def started(events: list[ev.AnyEvent]) -> list[str]:
    return [event.worker for event in events if isinstance(event, ev.WorkerStarted)]


def test_each_of_the_six_rows_measures_both_kinds_of_device() -> None:
    kinds = kinds_of_rows(events_of(True))
    assert len(kinds) == 6
    assert all(measured == {"cpu", "cuda"} for measured in kinds.values()), kinds


def test_workers_start_before_the_first_row_and_none_twice() -> None:
    events = events_of(True)
    names = started(events)
    assert len(names) == len(set(names)) and not any("prototyping" in name for name in names)
    first = next(i for i, event in enumerate(events) if isinstance(event, ev.RaceStarted))
    assert started(events[:first]) == names


def test_without_a_gpu_the_row_that_counts_start_ups_begins_and_leaves_its_workers_to_others() -> (
    None
):
    for quick, devices in product((True, False), (("cpu",), ("cpu", "fake:0@8"))):
        events = events_of(quick, *devices)
        names = started(events)
        assert len(names) == len(set(names)) and "cpu/torch" in names
        begun = [i for i, event in enumerate(events) if isinstance(event, ev.RaceStarted)]
        assert events[begun[0]].scenario == "prototyping"
        assert not started(events[: begun[0]])
        torch = {name for name in started(events[begun[0] : begun[1]]) if name.endswith("torch")}
        assert len(torch) == len(devices), "one on each device"


def test_a_row_that_counts_start_ups_says_where_they_come_from() -> None:
    [row] = [
        event
        for event in events_of(True)
        if isinstance(event, ev.RacePlanned) and event.scenario == "prototyping"
    ]
    assert "all rows share the workers, and their start-up times" in row.question
    assert "start-up" not in next(
        event.question
        for event in events_of(True, "cpu")
        if isinstance(event, ev.RacePlanned) and event.scenario == "prototyping"
    )
    assert any("prototyping" in name for name in started(events_of(False)))


def test_a_quick_run_grows_by_the_start_of_the_gpus_worker_and_no_more() -> None:
    end = next(event for event in events_of(True) if isinstance(event, ev.RunFinished))
    assert TABLE_QUICK_BUDGET_S < end.duration_s < TABLE_QUICK_BUDGET_S + IMPORT_S + CONTEXT_S
    on_cpu = next(event for event in events_of(True, "cpu") if isinstance(event, ev.RunFinished))
    assert on_cpu.duration_s < TABLE_QUICK_BUDGET_S


def test_precisions_are_given_up_with_their_price() -> None:
    verdicts = [e.verdict for e in events_of(True) if isinstance(e, ev.VerdictReached)]
    left = [w for v in verdicts for w in v.warnings if w.code == "unmeasured"]
    assert left
    assert all("s more in this row: race it alone, or" in each.remedy for each in left)


def test_one_that_gave_way_does_not_say_that_the_time_of_the_run_ran_out() -> None:
    simulated = simulated_run.SimulatedMachine(*machines.gpu_server())
    events = simulated_run.run(Request(quick=True, budget_s=60.0), simulated, pool=SlowStarts)
    [end] = [event for event in events if isinstance(event, ev.RunFinished)]
    assert end.duration_s < 50.0
    reasons = [event.reason for event in events if isinstance(event, ev.CaseFinished)]
    late = {reason.message for reason in reasons if reason and reason.code == "budget"}
    assert late == {"no time was left for its turn"}


def test_the_precision_that_promises_most_of_a_gpu_is_prepared_first() -> None:
    gpu = [case("cuda:0-a", kind) for kind in ("fp32", "tf32", "bf16", "fp16")]
    on_cpu = [case("cpu-a"), case("cpu-b", "bf16")]
    order = by_promise([*on_cpu, *gpu])
    assert [c.precision for c in order if c.device != "cpu"] == ["bf16", "fp16", "tf32", "fp32"]
    assert [c for c in order if c.device == "cpu"] == on_cpu


def test_graphs_and_channels_last_are_prepared_before_the_plain_mode() -> None:
    modes = ("", "nhwc", "graph")
    order = by_promise([replace(case("cuda:0-a", "bf16"), mode=mode or None) for mode in modes])
    assert [c.mode for c in order] == ["graph", "nhwc", None]
