"""Plain runs on the Run screen and in the details: curves, profiles, the largest batch."""

import msgspec
import pytest
import scenes
from builders import CROSSOVER
from stage import held, opened, press, replayed, settled, text

from workbench.export.view.chart import LABEL
from workbench.export.view.curves import crossings, curve_lines, curve_marks
from workbench.export.view.derived import RunView
from workbench.report.candidate import Row
from workbench.report.report import Report

SIZE = (80, 24)


def last_of(report: Report) -> Row:
    row = report.rows[report.last_row or ""]
    assert row.plan.point
    return row


def plotted(lines: list[str]) -> list[str]:
    return [line for line in lines if "|" in line]


async def test_brackets_walk_the_sizes_by_their_value_not_in_the_order_of_the_race() -> None:
    async with settled(replayed(scenes.sweep()), SIZE) as pilot:
        seen = []
        await press(pilot, *["left_square_bracket"] * 7)
        for _ in scenes.SIZES:
            seen.append(text(pilot).splitlines()[3].split("   ")[0].strip())
            await press(pilot, "right_square_bracket")
    assert seen == [f"Matrix product, n={n}" for n in sorted(scenes.SIZES)]


async def test_the_curve_grows_while_the_sizes_are_raced() -> None:
    app, _ = held(scenes.sweep_at(512))
    async with settled(app, (120, 40)) as pilot:
        shown = text(pilot)
        assert "Matrix product, n=512   [ 4 of 7 ]" in shown
        assert "Rate over n" in shown
        assert plotted(shown.splitlines())
        assert "overtakes" in shown
        assert "Log ─" in shown


async def test_one_size_makes_no_curve_but_says_what_was_fastest() -> None:
    app, _ = held(scenes.sweep_at(64))
    async with settled(app, (120, 40)) as pilot:
        assert "345 GFLOP/s  cpu numpy fp32 t16" in text(pilot), "below Fastest"
        assert "n=64" in text(pilot)


async def test_a_low_terminal_keeps_table_and_curve_and_leaves_the_log_out() -> None:
    async with settled(replayed(scenes.sweep()), SIZE) as pilot:
        assert "Log ─" not in text(pilot)
        assert len(plotted(text(pilot).splitlines()[13:])) >= 6


async def test_the_filter_leaves_curves_out_too() -> None:
    async with settled(replayed(scenes.sweep()), (120, 40)) as pilot:
        await press(pilot, "slash", *"torch bf16", "enter")
        drawn = "".join(line.partition("|")[2] for line in plotted(text(pilot).splitlines()[12:]))
        assert "torch bf16" in drawn and "torch fp32" not in drawn


async def test_a_curve_keeps_its_symbol_while_the_filter_hides_others() -> None:
    async with settled(replayed(scenes.sweep()), (120, 40)) as pilot:
        await press(pilot, "slash", *"bf16", "enter")
        lines = text(pilot).splitlines()
    assert any("# cuda:0 torch bf16" in line for line in plotted(lines[12:]))
    assert any("+  cpu torch bf16 t16" in line for line in lines[:12])


async def test_the_advisor_lists_the_sizes_in_their_order_with_what_was_fastest() -> None:
    async with settled(replayed(scenes.sweep()), SIZE) as pilot:
        await press(pilot, "3")
        lines = [line for line in text(pilot).splitlines() if "fastest: " in line]
    sizes = sorted(scenes.SIZES)
    for size, line in zip(sizes, lines, strict=False):
        assert f"Matrix product, n={size} " in line
        assert ("cuda:0" in line) == (size > 128)
    assert len(lines) == len(sizes)


async def test_a_plain_run_promises_no_verdict_and_says_how_many_rows_it_measured() -> None:
    async with settled(replayed(scenes.sweep()), SIZE) as pilot:
        await press(pilot, "3")
        shown = text(pilot)
    assert " Result" in shown and " Conf" not in shown and " ... " not in shown
    assert "done  7 rows measured" in shown


def test_every_curve_is_drawn_with_the_mark_that_leads_its_candidate() -> None:
    report = Report.of(scenes.sweep())
    row = last_of(report)
    sweep = RunView(report).sweep(row)
    marks = curve_marks(sweep)
    assert set(marks) == {candidate.case.label for candidate in row.candidates}
    assert len({mark for mark, _ in marks.values()}) == len(marks)
    names = max(map(len, marks)) + 3  # room at the ends of the lines
    for chosen in marks:
        lines = [line.plain for line in curve_lines(sweep, row.plan.point, chosen, 100, 30)]
        plot = plotted(lines)
        cells = "".join(line.ljust(99)[LABEL : 99 - names] for line in plot)
        points = next(len(c.points) for c in sweep.curves if c.candidate == chosen)
        assert cells.count(marks[chosen][0]) >= points, "the chosen curve lies over the others"
        for label in marks:
            assert sum(line.rstrip().endswith(label.replace("/", " ")) for line in plot) == 1


def test_all_sizes_between_which_the_lead_changes_device_are_shaded() -> None:
    report = Report.of(scenes.sweep())
    sweep = RunView(report).sweep(last_of(report))
    stays, moves = sweep.lead_changes
    replace = msgspec.structs.replace
    back = replace(moves, between=(1024, 2048), from_candidate="cuda:0/a", to_candidate="cpu/b")
    for changes, title, count in (
        ([stays, moves, back], "shaded where the lead changes device", 2),
        ([stays], "shaded where the lead changes", 1),
        ([], "Rate over n", 0),
    ):
        first, *lines = curve_lines(replace(sweep, lead_changes=changes), {}, None, 100, 30)
        assert first.plain.partition(" ─")[0].endswith(title)
        dark = {place for line in lines for place, c in enumerate(line.plain) if c == "░"}
        assert len(dark - {place + 1 for place in dark}) == count


@pytest.mark.parametrize(
    ("between", "end"), [("device", "changes device"), ("candidate", "changes")]
)
def test_a_lead_that_changes_on_one_device_is_not_said_to_change_it(between: str, end: str) -> None:
    report = Report.of(scenes.sweep())
    sweep = RunView(report).sweep(last_of(report))
    found = msgspec.structs.replace(CROSSOVER, between=between)
    title, *_ = curve_lines(sweep, {}, None, 100, 30, found)
    assert title.plain.partition(" ─")[0].endswith(f"shaded where the lead {end}")
    back = msgspec.structs.replace(found, back=(2048.0, 3000.0))
    assert [len(crossings(sweep, each)[0]) for each in (found, back)] == [1, 2]


@pytest.mark.parametrize("width", [60, 78, 200])
def test_a_curve_takes_no_more_room_than_it_is_given(width: int) -> None:
    report = Report.of(scenes.sweep())
    row = last_of(report)
    sweep = RunView(report).sweep(row)
    for height in range(1, 40):
        lines = curve_lines(sweep, row.plan.point, None, width, height)
        assert 0 < len(lines) <= height
        assert max(line.cell_length for line in lines) <= width


def test_the_remembered_points_are_those_of_the_report() -> None:
    events = scenes.sweep()
    report, remembered = Report(), None
    figures = RunView(report)
    for event in events:
        report.apply(event)
        if report.last_row is not None:
            remembered = figures.sweep(last_of(report))
    assert [remembered] == report.sweeps


def test_rows_that_are_no_sweep_are_walked_as_planned() -> None:
    figures = RunView(Report.of(scenes.h200()))
    assert figures.walk() == list(figures.report.rows)
    assert all(figures.sweep(row) is None for row in figures.report.rows.values())
    assert RunView(Report()).walk() == []


async def test_details_tell_figures_operators_and_the_trace() -> None:
    async with settled(replayed(scenes.profiled()), (120, 40)) as pilot:
        assert "loaders=4: waiting for data 12%" in text(pilot)
        await press(pilot, "enter")
        for part in (
            "waiting for data 12%",
            "52%  aten::convolution_backward, 12 calls",
            "8.1%  aten::native_batch_norm, 3 calls",
        ):
            assert part in text(pilot), part


async def test_a_search_for_the_largest_batch_says_what_it_tried() -> None:
    app, _ = held(scenes.largest_batch())
    async with settled(app, (120, 40)) as pilot:
        assert "loaders=4: batch 64: fits" in text(pilot)
        search = next(iter(app.session.report.largest_batches))
        assert search.ended_by == "memory"
        assert f"largest batch {search.batch:,}" in text(pilot)
        await press(pilot, "home", "enter")
        failed = next(attempt for attempt in search.attempts if attempt.reason is not None)
        for part in (f"batch {search.batch:,}", "batch 64: ", f"batch {failed.batch:,}: CUDA"):
            assert part in text(pilot), part


async def test_a_warning_about_one_size_names_the_size() -> None:
    async with opened("advise-crossover").run_test(size=(120, 40)) as pilot:
        await press(pilot, "1")
        assert "branching tasks, batch=70)" in " ".join(text(pilot).split())


async def test_the_answer_of_a_search_is_the_largest_batch_and_can_be_exported() -> None:
    async with opened("run-largest-batch").run_test() as pilot:
        await press(pilot, "3")
        assert "largest batch >= 512: cpu ort fp32 t2" in text(pilot)
        assert "e: export" in text(pilot)
        assert pilot.app.check_action("export", ())
