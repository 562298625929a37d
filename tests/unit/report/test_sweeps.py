"""Curves from rows: where the lead changes, where a batch stops paying, what is best."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
from builders import DIED, changed, events, report, scenario
from hypothesis import given, strategies as st

from workbench.contract import Case, Work
from workbench.export.text import run_text
from workbench.export.view.chart import LABEL
from workbench.export.view.curves import chart_lines, curve_marks, findings, rate_table
from workbench.export.view.table import table_lines
from workbench.records import events as ev
from workbench.records.document import SetupTimes
from workbench.records.reason import Reason
from workbench.report.from_document import report_of
from workbench.report.report import Report
from workbench.report.sweeps import sweeps


def run_over(
    axis: str, times: Mapping[str, Mapping[int, float | None]], *, flops: float | None = None
) -> Report:
    """A run of `times`: candidate (backend) to value to seconds a step; None: it failed there.

    Rows come in no particular order, as the engine's coarse-to-fine one.
    """
    found = report({})
    found.rows.clear()
    values = sorted({value for line in times.values() for value in line}, key=lambda v: v % 7)
    for value in values:
        batch = {"batch": value} if axis == "batch" else {}
        params = {} if axis == "batch" else {axis: value}
        steps = {
            Case("job", "cpu", backend, "fp32", threads=1, params=params, **batch): line.get(value)
            for backend, line in times.items()
        }
        items = float(value) if axis == "batch" else 1.0
        work = {case.id: Work(flops, None, items, "things", 1.0) for case in steps}
        row = scenario(id=f"job[{axis}={value}]", title="Job", textbook=None, reference_only=())
        run = events(
            {case: [] if step is None else [[step] * 6] * 3 for case, step in steps.items()},
            row=row,
            failed={case: DIED for case, step in steps.items() if step is None},
        )
        planned = {"work": work, "workload": "job", "point": {axis: value}}
        for event in changed(run[2:], ev.RacePlanned, **planned):
            found.apply(event)
    return found


def test_a_run_of_single_rows_has_no_curves() -> None:
    assert sweeps(list(report({}).rows.values())) == []


def test_curves_go_by_size_however_the_rows_came() -> None:
    (found,) = run_over("n", {"numpy": {1: 1.0, 8: 3.0, 2: 2.0}}).sweeps
    (curve,) = found.curves
    assert found.axes == {"n": [1, 2, 8]}
    assert [point.at["n"] for point in curve.points] == [1, 2, 8]
    assert [point.rate for point in curve.points] == [1, 0.5, pytest.approx(1 / 3)]
    assert (curve.unit, curve.knee) == ("things/s", None)
    assert found.best == "job[n=1]/cpu/numpy/fp32/t1"


def test_the_lead_changes_between_the_points_where_it_was_seen() -> None:
    times = {"numpy": {1: 1.0, 2: 1.0, 4: 4.0}, "torch": {1: 2.0, 2: 1.5, 4: 2.0}}
    (found,) = run_over("n", times).sweeps
    (change,) = found.lead_changes
    assert (change.parameter, change.between) == ("n", (2, 4))
    assert change.from_candidate == "cpu/numpy/fp32/t1"
    assert change.to_candidate == "cpu/torch/fp32/t1"
    assert "cpu torch fp32 t1 overtakes cpu numpy fp32 t1 between n 2 and 4" in findings(found)


def test_the_knee_is_where_a_larger_batch_stops_paying() -> None:
    steps = {1: 1.0, 2: 1.1, 4: 1.3, 8: 2.4, 16: 4.8}  # 1, 1.8, 3.08, 3.33, 3.33 things a second
    (found,) = run_over("batch", {"torch": steps}).sweeps
    assert found.curves[0].knee == 4


def test_a_failure_is_a_hole_in_its_curve_and_never_leads() -> None:
    (found,) = run_over("n", {"numpy": {1: None, 2: 5.0}, "torch": {1: 9.0, 2: 1.0}}).sweeps
    assert [point.rate for point in found.curves[0].points] == [None, 0.2]
    assert found.lead_changes == []
    lines = [line.plain for line in table_lines(*rate_table(found))]
    assert next(line.split()[1] for line in lines if line.startswith("1 ")) == "-"


def test_every_measured_size_has_a_line_whichever_candidate_raced_there() -> None:
    times = {"numpy": {1: 1.0, 4: 1.0, 16: 1.0, 256: 9.0}, "torch": {1: 2.0, 16: 2.0, 64: 1.0}}
    found = run_over("n", times).sweeps[0]
    curves = [
        msgspec.structs.replace(curve, points=[p for p in curve.points if p.rate is not None])
        for curve in found.curves
    ]
    lines = rate_table(msgspec.structs.replace(found, curves=curves))[1]
    assert [line.key for line in lines] == ["1", "4", "16", "64", "256"]


def test_a_sole_candidate_is_not_called_the_fastest() -> None:
    (one,) = run_over("n", {"numpy": {1: 1.0, 2: 2.0}}).sweeps
    assert [column.title for column in rate_table(one)[0]] == ["n", "cpu numpy fp32 t1"]
    (two,) = run_over("n", {"numpy": {1: None, 2: 5.0}, "torch": {1: 9.0, 2: 1.0}}).sweeps
    assert [line.cells["highest"].plain for line in rate_table(two)[1]] == [
        "-",
        "1.00 things/s  cpu torch fp32 t1",
    ]


def test_without_measurements_there_is_no_chart() -> None:
    report = run_over("n", {"numpy": {1: None, 2: None}})
    (found,) = report.sweeps
    assert found.best is None
    assert chart_lines(found, 20, 8) == []
    assert "job over n" in run_text(report)


def test_a_run_prints_its_curves_instead_of_a_table_for_each_point() -> None:
    text = run_text(run_over("n", {"numpy": dict.fromkeys((1, 2, 4), 1.0)}, flops=1e9))
    assert text.count("job over n") == 1
    assert "1.00 GFLOP/s" in text
    assert "candidate" not in text


@given(
    st.dictionaries(st.integers(1, 10**6), st.floats(1e-6, 1e3), min_size=2, max_size=12),
    st.integers(8, 100),
    st.integers(3, 30),
)
def test_a_chart_has_the_size_asked_for(steps: dict[int, float], width: int, height: int) -> None:
    (found,) = run_over("n", {"numpy": steps}).sweeps
    lines = [line.plain for line in chart_lines(found, width, height)]
    assert len(lines) == height + 2
    assert max(map(len, lines[:height])) <= width + LABEL
    assert sum("*" in line for line in lines[:height]) >= 1


def test_a_document_with_curves_gives_the_same_curves_when_opened() -> None:
    for axis in ("n", "batch"):
        document = run_over(axis, {"numpy": {1: 1.0, 2: 0.5, 4: None}}).document()
        assert report_of(document).document().sweeps == document.sweeps


def test_many_curves_are_all_drawn_with_marks_of_their_own() -> None:
    steps = {f"way{number}": {1: 1.0 + number, 2: 1.0 + 2 * number} for number in range(13)}
    (found,) = run_over("n", steps).sweeps
    lines = [line.plain for line in chart_lines(found, 40, 60)]
    marks = curve_marks(found)
    assert list(marks) == [curve.candidate for curve in found.curves]
    cells = "".join(line[LABEL:] for line in lines[:60])
    drawn = {cell for cell in cells if cell.isascii()} - {" "}
    assert drawn == {mark for mark, _ in marks.values()}
    assert len(drawn) == 13


def test_no_lead_is_claimed_over_a_rival_that_was_not_measured() -> None:
    times = {"numpy": {1: 2.0, 2: 2.0, 4: 2.0}, "torch": {1: 1.0, 2: 1.0, 4: None}}
    (found,) = run_over("n", times).sweeps
    assert found.lead_changes == []


def test_a_lead_is_overtaken_only_from_where_it_was_proven() -> None:
    level = run_over("n", {"numpy": {1: 1.0, 2: 2.0}, "torch": {1: 1.0, 2: 1.0}})
    assert level.sweeps[0].lead_changes == []
    later = run_over("n", {"numpy": {1: 1.0, 2: 1.0, 4: 2.0}, "torch": {1: 2.0, 2: 1.0, 4: 1.0}})
    (change,) = later.sweeps[0].lead_changes
    assert change.between == (1, 4), "they are level at 2"


def test_a_rate_counts_start_up_where_its_row_does() -> None:
    built = run_over("n", {"numpy": {1: 1.0, 2: 2.0}})
    for candidate in built.candidates.values():
        candidate.objective = "time_to_result"
        candidate.setup = SetupTimes(None, 3.0, None, None, None)
    assert [point.rate for point in built.sweeps[0].curves[0].points] == [1 / 4, 1 / 5]


def test_no_lead_is_claimed_between_candidates_within_noise() -> None:
    times = {"numpy": {1: 1.0, 2: 1.001}, "torch": {1: 1.001, 2: 1.0}}
    built = run_over("n", times)
    for candidate in built.candidates.values():
        for block in candidate.blocks:
            block.samples_s[:] = [
                sample * (0.9 + 0.04 * i) for i, sample in enumerate(block.samples_s)
            ]
    assert built.sweeps[0].lead_changes == []


def test_no_lead_is_claimed_where_rounds_differ_by_more_than_their_samples() -> None:
    built = run_over("n", {"numpy": {1: 1.0, 2: 1.01}, "torch": {1: 1.01, 2: 1.0}})
    for candidate in built.candidates.values():
        blocks = candidate.blocks
        blocks.append(msgspec.structs.replace(blocks[0], round=3))
        sign = 1 if candidate.case.backend == "numpy" else -1
        for block in blocks:
            factor = 1 + sign * (-1) ** block.round / 100
            block.samples_s[:] = [block.samples_s[0] * factor * (1 + n / 1e5) for n in range(200)]
    assert built.sweeps[0].lead_changes == []


def test_a_curve_that_still_rises_has_no_knee_and_one_that_falls_has() -> None:
    (rising,) = run_over("batch", {"torch": {1: 1.0, 2: 1.0, 4: 1.0}}).sweeps
    assert rising.curves[0].knee is None
    (falling,) = run_over("batch", {"torch": {8: 0.086, 16: 0.163, 32: 0.653}}).sweeps
    assert falling.curves[0].knee == 8
    assert any("its best rate at batch 8" in sentence for sentence in findings(falling))


def test_a_sweep_has_one_unit_though_only_some_points_count_operations() -> None:
    built = run_over("n", {"numpy": {1: 2.0, 2: 4.0}}, flops=1e9)
    mixed = list(built.rows.values())[1].candidates[0]
    mixed.work = replace(mixed.work, flops=None)
    (curve,) = built.sweeps[0].curves
    assert curve.unit == "things/s"
    assert [point.rate for point in curve.points] == [0.5, 0.25]


def test_int8_is_shown_in_operations_per_second() -> None:
    built = run_over("n", {"numpy": {1: 2.0, 2: 4.0}}, flops=1e9)
    (sweep,) = built.sweeps
    curve = msgspec.structs.replace(sweep.curves[0], candidate="cpu/numpy/int8/t1")
    shown = list(findings(msgspec.structs.replace(sweep, curves=[curve])))
    assert shown[-1].startswith("highest rate: 500 MOP/s")


def test_the_axis_names_only_what_was_measured() -> None:
    (found,) = run_over("n", {"numpy": {1: None, 64: 1.0, 512: 2.0, 4096: None}}).sweeps
    axis = chart_lines(found, 40, 8)[9].plain.split()
    assert axis == ["64", "512"]


def test_an_inadmissible_candidate_is_neither_best_nor_fastest() -> None:
    built = run_over("n", {"numpy": {1: 2.0, 2: 2.0}, "torch": {1: 1.0, 2: 1.0}})
    for case, candidate in built.candidates.items():
        if case in ("job[n=1]/cpu/torch/fp32/t1", "job[n=2]/cpu/torch/fp32/t1"):
            candidate.reason = Reason("error_limit", "its error is above the limit of 2.00%")
    (found,) = built.sweeps
    assert "numpy" in found.best
    assert [[point.admissible for point in curve.points] for curve in found.curves] == [
        [True, True],
        [False, False],
    ]
    rows = [
        line.plain for line in table_lines(*rate_table(found)) if line.plain[:2] in ("1 ", "2 ")
    ]
    assert all(row.rstrip().endswith("cpu numpy fp32 t1") for row in rows)
    assert len(rows) == 2
