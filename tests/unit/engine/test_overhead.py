"""Where the time of a run goes: its phases add up, for the run and for each row."""

from types import SimpleNamespace

import machines
import psutil
import pytest
from simulated_run import SimulatedMachine, run

from workbench.engine.overhead import PREPARING, STARTING, OverheadMeter
from workbench.export.text import where_lines
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.report.report import Report

PHASES = ("starting", "preparing", "measured", "idle")


@pytest.fixture(scope="module")
def events() -> list[ev.AnyEvent]:
    return run(
        Request(scenarios=("branching", "realtime")), SimulatedMachine(*machines.gpu_server())
    )


def test_the_phases_of_the_run_and_of_each_row_add_up(events: list[ev.AnyEvent]) -> None:
    (ended,) = (event for event in events if isinstance(event, ev.RunFinished))
    spent = ended.overhead
    seconds = [getattr(spent, f"{phase}_s") for phase in PHASES]
    assert sum(seconds) + spent.closing_s == pytest.approx(ended.duration_s, abs=1e-3)
    imports_s = sum(event.import_s for event in events if isinstance(event, ev.WorkerStarted))
    assert spent.starting_s == pytest.approx(imports_s + 0.6, abs=1e-3)  # and the program's own
    began = {event.scenario: event.at_s for event in events if isinstance(event, ev.RaceStarted)}
    for event in events:
        if isinstance(event, ev.VerdictReached):
            row = event.verdict.scenario
            parts = [getattr(spent.rows[row], f"{phase}_s") for phase in PHASES]
            assert sum(parts) == pytest.approx(event.at_s - began[row], abs=1e-3)
            assert spent.rows[row].measured_s > 0 and spent.rows[row].preparing_s > 0
    assert sum(row.measured_s for row in spent.rows.values()) == pytest.approx(spent.measured_s)


def test_a_start_counts_as_measured_where_it_is_part_of_the_result() -> None:
    events = run(
        Request(scenarios=("prototyping",), devices=("cpu",)),
        SimulatedMachine(*machines.gpu_server()),
    )
    (ended,) = (event for event in events if isinstance(event, ev.RunFinished))
    *_, started = (event for event in events if isinstance(event, ev.WorkerStarted))
    spent = ended.overhead.rows["prototyping"]
    assert spent.starting_s == 0
    assert spent.measured_s > started.import_s > 0


@pytest.mark.parametrize(
    ("phase", "counted_s", "expected"),
    [
        (PREPARING, 0.75, (0.25, 0.75)),
        (STARTING, 1.0001, (0.0, 1.0)),  # no phase lasts less than nothing
    ],
)
def test_what_was_spent_otherwise_may_turn_out_to_be_measured(phase, counted_s, expected) -> None:
    clock = SimpleNamespace(s=0.0)
    meter = OverheadMeter(None, lambda: clock.s)
    with meter.spending(phase, "row"):
        clock.s = 1.0
        meter.count_as_measured(counted_s, phase)
    row = meter.result(2).rows["row"]
    assert (getattr(row, f"{phase}_s"), row.measured_s) == expected


def test_a_front_end_that_was_killed_keeps_what_it_had_used(monkeypatch) -> None:
    def times() -> SimpleNamespace:
        if not left:
            raise psutil.NoSuchProcess(1)
        return SimpleNamespace(user=left.pop(), system=0.0)

    left, process = [5.0, 3.0], SimpleNamespace(cpu_times=times)
    monkeypatch.setattr(psutil, "Process", lambda _: process)
    monkeypatch.setattr("time.process_time", lambda: 1.0)
    meter = OverheadMeter(1, lambda: 0.0)
    used_s = [meter.result(2).own_cpu_s for _ in range(2)]
    assert used_s == [3.0, 3.0]


def test_the_table_has_a_line_for_each_row_and_one_for_the_run(events: list[ev.AnyEvent]) -> None:
    title, *lines = where_lines(report := Report.of(events))
    assert title.split() == ["Seconds", "all", *PHASES, "closing"]
    assert {"branching", "realtime"} <= {line.split()[0] for line in lines}
    assert lines[-1].startswith("the run")
    assert lines[-2].startswith("outside rows")
    *rows, whole = ([float(cell) for cell in line.split()[-6:]] for line in lines)
    assert [sum(column) for column in zip(*rows, strict=True)] == pytest.approx(whole, abs=0.3)
    report.finished = None
    assert where_lines(report) == [
        "this run does not record how it spent its time: it is older, or did not end"
    ]


def test_rows_race_from_light_to_heavy_and_a_tail_last() -> None:
    names = ("floating_point", "realtime", "convolution")
    began = [
        event.scenario
        for event in run(
            Request(scenarios=names, devices=("cpu",)), SimulatedMachine(*machines.gpu_server())
        )
        if isinstance(event, ev.RaceStarted) and event.scenario in names
    ]
    assert began == ["convolution", "floating_point", "realtime"]
