"""The lines of a run in progress: time left, leader, sensors."""

import dataclasses
from collections import deque

import own_runs
import pytest
import scenes
from builders import machine
from msgspec.structs import replace

from workbench.advisor.subject import ranked_candidates
from workbench.export.view.answers import answer_lines
from workbench.export.view.derived import RunView
from workbench.export.view.events import log_line
from workbench.export.view.model import advice_lines
from workbench.export.view.sensors import now_line, sensors, with_readings
from workbench.export.view.tables import pending_texts
from workbench.records import events as ev
from workbench.records.machine import GpuProcess, GpuReading, HostReading
from workbench.report.report import Report


class Live(RunView):
    """A run whose next event is awaited."""

    @property
    def going(self) -> bool:
        return True


def live(row: str, rounds: int) -> Live:
    return Live(Report.of(scenes.until(scenes.h200(), row, rounds)))


def test_a_row_says_how_much_time_it_may_still_take() -> None:
    run = live("convolution", 1)
    row = run.report.rows["convolution"]
    left_s = row.began_at_s + (row.share_s or 0.0) - run.report.last_at_s
    longest, *_ = pending_texts(row, run)
    assert longest.plain == f"racing, 4 of 7 candidates left, round 1, at most {left_s:.0f} s"
    row.share_s = 0.0  # as in a document
    assert "at most" not in pending_texts(row, run)[0].plain


def test_a_lone_candidate_is_measured_and_the_answer_repeats_no_state() -> None:
    run = live("convolution", 1)
    row = run.report.rows["convolution"]
    assert not any("racing" in line.plain for line in answer_lines(row, run, 120))
    del row.candidates[1:]
    assert pending_texts(row, run)[-1].plain == "measuring"


def test_the_leader_is_named_once_its_lead_has_an_interval() -> None:
    def so_far(rounds: int, row: str = "branching") -> list[str]:
        run = live(row, rounds)
        lines = answer_lines(run.report.rows[row], run, 120)
        return [line.plain for line in lines if "so far" in line.plain]

    assert so_far(1) == []
    (line,) = so_far(6)
    assert "are too close to call: 1.02x (95% CI 0.99-1.05)" in line
    (line,) = so_far(3, "floating_point")
    assert "by less than 5%: 1.01x (95% CI 1.00-1.02)" in line


def test_the_leader_of_own_code_is_named_though_its_gain_is_unknown() -> None:
    run = Live(Report.of(own_runs.net_racing()))
    first, *others = ranked_candidates(run.report)
    for gain, said in ((first.gain, ", 1.50x faster than the code as written"), (None, "")):
        found = [dataclasses.replace(first, gain=gain), *others]
        (line,) = (x.plain for x in advice_lines(found, None, run, 120) if "leading" in x.plain)
        assert line.split("leading")[1].strip() == f"cpu torch bf16 t2{said}"


def test_the_sensors_of_all_devices_stand_in_one_line() -> None:
    here = live("branching", 1).report.machine
    card = here.gpus[0].index or 0
    report = Report(machine=here)
    assert now_line(report).plain == ""
    first = HostReading(50.0, 3100.0, None, None, 2**34, {})
    readings = [GpuReading(card, utilization_percent=100.0, power_w=612.0)]
    report.apply(ev.MachineRead(at_s=1.0, host=first))
    report.apply(ev.MachineRead(at_s=2.0, host=HostReading(97.0), gpus=readings))
    assert now_line(report).plain == f"CPU  97% {'▅█':>12}    GPU 100%  612 W {'█':>12}"
    report.apply(ev.MachineRead(at_s=3.0, host=HostReading(100.0), gpus=readings))
    assert now_line(report).plain.startswith(f"CPU 100% {'▅██':>12}    GPU "), "nothing moves"


@pytest.mark.parametrize(
    ("by_s", "said"),
    [
        ((5.0, 3.0, -2.0), [True, False, False]),
        ((-2.0,), [False]),
        ((0.025, 5.0), [False, True]),
    ],
)
def test_the_first_extension_is_said_without_verbose(by_s, said) -> None:
    report = Report.of(scenes.until(scenes.h200(), "convolution", 1))
    lines = []
    for seconds in by_s:
        event = ev.BudgetExtended(at_s=9.0, scenario="convolution", by_s=seconds)
        report.apply(event)
        lines.append(log_line(event, report, verbose=False))
    assert [line is not None for line in lines] == said


def test_readings_that_are_gone_are_not_shown_as_those_of_now() -> None:
    job = [GpuProcess(7, 2**30)]
    good = GpuReading(0, utilization_percent=99.0, power_w=612.0, processes=job)
    between = replace(good, processes=None)
    readings = deque([good, between])
    (card,) = with_readings(machine("cuda:0"), Report(gpus={0: readings})).gpus
    assert card.processes == job, "only some readings have them"
    lost = GpuReading(0, unavailable={"*": "off the bus"})
    then = replace(machine("cuda:0"), gpus=[card])
    (gone,) = with_readings(then, Report(gpus={0: deque([good, lost])})).gpus
    assert (gone.power_w, gone.utilization_percent) == (None, None)
    shown = {each.label: each.text.plain for each in sensors([good, lost], gone, "gpu")}
    assert shown == {"n/a": "all: off the bus"}


def test_the_log_names_the_size_of_each_planned_row_of_a_sweep() -> None:
    report, lines = Report(), list[str]()
    for event in scenes.sweep():
        report.apply(event)
        if isinstance(event, ev.RacePlanned):
            lines.append(log_line(event, report) or "")
    assert len({*lines}) == len(lines) == 7 and "Matrix product, n=64: 5 candidates" in lines[0]
