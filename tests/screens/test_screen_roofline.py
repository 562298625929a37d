"""The candidates of a row under the measured ceilings."""

import dataclasses

import msgspec
import pytest
import scenes
from stage import at_both_sizes, press, replayed, settled, text

from workbench.export.view.chart import Series, chart
from workbench.export.view.curves import MARKS
from workbench.export.view.derived import RunView
from workbench.export.view.roofline import NOTHING, UNCOUNTED, roofline_lines
from workbench.records import events as ev
from workbench.records.document import DeviceCeilings
from workbench.records.reason import Reason
from workbench.report.report import Report

SIZE = (120, 40)


def without_ceilings() -> list[ev.AnyEvent]:
    return [event for event in scenes.h200() if not isinstance(event, ev.CeilingsKnown)]


def with_gpu() -> Report:
    """The report, with ceilings of the GPU as well."""
    report = Report.of(scenes.h200())
    gpu = DeviceCeilings(
        device="cuda:0",
        name=None,
        threads=None,
        peak_ops_per_s={"bf16": 800e12, "fp16": 800e12, "tf32": 400e12, "fp32": 60e12},
        memory_bytes_per_s=4e12,
        memory={},
        cache_bytes=None,
        cache_bytes_per_s=None,
    )
    devices = [*report.ceilings.devices, gpu]
    report.ceilings = msgspec.structs.replace(report.ceilings, devices=devices)
    return report


@at_both_sizes
def test_the_roofline_of_a_row(pictured) -> None:
    assert pictured(replayed(scenes.h200()), "6")


async def test_6_shows_it_and_brackets_walk_the_rows() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, "6")
        followed = text(pilot)
        await press(pilot, *["right_square_bracket"] * 2)
        shown = text(pilot)
        assert shown.splitlines()[3] != followed.splitlines()[3]
        assert "[6 Roofline]" in shown and "cpu bf16 cache" in shown
        assert "60% of 4.00 TFLOP/s (limited by compute)" in shown
        await press(pilot, "escape")
        assert text(pilot) == followed


async def test_without_ceilings_it_says_how_to_get_them() -> None:
    async with settled(replayed(without_ceilings()), (80, 24)) as pilot:
        await press(pilot, "6")
        assert "`workbench ceilings` measures them" in text(pilot)
        assert "FLOP per byte" not in text(pilot)


@pytest.mark.parametrize("events", [scenes.h200, without_ceilings])
async def test_a_row_whose_operations_are_not_counted_says_so(events) -> None:
    async with settled(replayed(events()), (80, 24)) as pilot:
        await press(pilot, "6", *["right"] * 5)
        assert UNCOUNTED in text(pilot)


async def test_a_run_without_races_says_so() -> None:
    async with settled(replayed(scenes.h200()[:1]), SIZE) as pilot:
        await press(pilot, "6")
        assert "[6 Roofline]" in text(pilot) and "`workbench ceilings`" not in text(pilot)


def test_every_candidate_has_a_line_and_a_mark_and_every_limit_its_name() -> None:
    report = with_gpu()
    run, row = RunView(report), report.rows["floating_point"]
    able = [c for c in row.candidates if run.measured(c).roofline is not None]
    for width, height in ((100, 34), (60, 24)):
        lines = [line.plain for line in roofline_lines(row, run, width, height)]
        assert len(lines) == height and max(map(len, lines)) <= width
        legend, plot = lines[: lines.index("")], "".join(line[19:] for line in lines[-20:])
        names = [line for line in legend if " of " in line and "limited by" in line[:120]]
        assert len(legend) >= len(able) > 5 and sum(line[0] in plot for line in legend) >= 3
        assert not names or "cuda:0 torch fp16" in names[0]
        if width == 100:
            assert "cuda:0 bf16" in "".join(lines) and "cpu bf16 cache" in "".join(lines)


def test_all_lines_name_the_limit_in_one_form() -> None:
    report = Report.of(scenes.cpu_only())
    row = report.rows["training"]
    for width, end in ((90, " (limited by compute)"), (78, " (compute)"), (68, " TFLOP/s")):
        lines = [line.plain for line in roofline_lines(row, RunView(report), width, 20)]
        assert [line.endswith(end) for line in lines[:3]] == [True] * 3


def test_a_candidate_that_failed_is_not_under_the_roofs() -> None:
    report = with_gpu()
    row = report.rows["floating_point"]
    first = RunView(report).ordered(row)[0]
    first.state, first.reason = "failed", Reason("impossible_rate", "beyond what it can reach")
    lines = roofline_lines(row, RunView(report), 100, 34)
    name = first.case.label.replace("/", " ")
    assert lines and not any(name in line.plain for line in lines)


def test_a_low_terminal_gets_the_lines_without_the_chart() -> None:
    report = with_gpu()
    row, run = report.rows["floating_point"], RunView(report)
    lines = roofline_lines(row, run, 100, 10)
    assert lines and not any("FLOP per byte" in line.plain for line in lines)


@pytest.mark.parametrize(("peak", "bandwidth"), [(-1.0, 4e12), (800e12, -1.0), (1e308, 5e-324)])
def test_limits_that_no_machine_has_are_not_drawn(peak: float, bandwidth: float) -> None:
    report = with_gpu()
    report.ceilings = msgspec.structs.replace(
        report.ceilings,
        devices=[
            msgspec.structs.replace(
                device,
                peak_ops_per_s=dict.fromkeys(device.peak_ops_per_s, peak),
                memory_bytes_per_s=bandwidth,
                cache_bytes_per_s=bandwidth,
            )
            for device in report.ceilings.devices
        ],
    )
    row, run = report.rows["floating_point"], RunView(report)
    assert [line.plain.strip() for line in roofline_lines(row, run, 100, 34)] == [NOTHING]


def test_more_names_than_lines_are_no_error() -> None:
    series = [Series(("", "gpu"), [(1.0, 10.0), (10.0, 10.0**n)], f"line {n}") for n in range(6)]
    for height in range(1, 12):
        assert len(chart(series, [], str, 100, height)) == height + 2


@pytest.mark.parametrize("copies", [0, len(MARKS)], ids=["as raced", "more than marks"])
def test_candidates_without_a_line_are_counted_in_the_room_that_there_is(copies: int) -> None:
    report = with_gpu()
    row = report.rows["floating_point"]
    for number in range(copies):
        again = row.candidates[number % 2]
        case = dataclasses.replace(again.case, threads=1000 + number)
        row.candidates.append(dataclasses.replace(again, case=case))
    run = RunView(report)
    able = [c for c in row.candidates if run.measured(c).roofline is not None]
    unknown = sum(run.measured(c).n > 0 for c in row.candidates) - len(able)
    assert unknown > 0 and (len(able) > len(MARKS)) == bool(copies)
    seen = set()
    for height in range(2, 2 * len(able)):
        lines = [line.plain for line in roofline_lines(row, run, 60, height)]
        assert len(lines) <= height
        shown = sum(line[:1] in MARKS and line[1:2] == " " for line in lines if line)
        said = [line for line in lines if line.endswith(" more do not fit")]
        assert shown + sum(int(line.split()[0]) for line in said) == len(able)
        assert any(line.startswith(f"{unknown} more ha") for line in lines)
        seen.add(len(said))
    assert seen == ({1} if copies else {0, 1})
