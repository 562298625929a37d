"""The race of one row: the forest plot, the lead by round, and the canvas of the curves."""

import pytest
import scenes
from stage import held, press, replayed, settle, settled, text

from screens.widgets.table import Table
from workbench.export.view import forest
from workbench.export.view.chart import Band, Series, chart, ticks
from workbench.export.view.derived import RunView
from workbench.export.view.lead import course_lines, lead_lines
from workbench.export.view.tables import APART, raced_lines
from workbench.report.report import Report
from workbench.stats.paired import Ratio


async def test_the_race_shows_ratios_with_their_intervals_and_the_pick() -> None:
    async with settled(replayed(scenes.h200()), (120, 40)) as pilot:
        await press(pilot, "2", *["left"] * 4)
        shown = text(pilot)
        lines = shown.splitlines()
        head = next(line for line in lines if line.startswith("  Candidate"[1:]))
        assert "1x" in head and "2x" in head
        slower = next(line for line in lines if "cpu torch bf16 t16 " in line)
        assert "1.62x" in slower and "●┤" in slower  # 1.57 to 1.68, rounded to cells
        assert next(line for line in lines if "1.00x" in line).endswith("pick")


async def test_the_candidates_for_comparison_stand_apart() -> None:
    async with settled(replayed(scenes.h200()), (120, 40)) as pilot:
        await press(pilot, "2", *["left"] * 5, *["right"] * 2)
        assert "for comparison, never picked" in text(pilot)
        await press(pilot, "slash", *"pick", "enter")
        assert len(pilot.app.screen.query_one(Table)._shown.lines) == 1, "states are words too"
        await press(pilot, "slash", "escape")
        await press(pilot, "slash", *"torch bf16", "enter")
        found = pilot.app.screen.query_one(Table)._shown.lines
        assert found and all("bf16" in line.key for line in found), "not those it has beaten"
        await press(pilot, "slash", "escape")
        await press(pilot, "slash", *"fp64", "enter")
        assert "fp32" not in "".join(text(pilot).splitlines()[5:9])


async def test_the_cursor_passes_over_the_heading_among_the_candidates() -> None:
    async with settled(replayed(scenes.h200()), (120, 40)) as pilot:
        await press(pilot, "2", *["left"] * 5, *["right"] * 2, "home")
        table = pilot.app.screen.query_one(Table)
        keys = [line.key for line in table._shown.lines]
        assert keys[-1] and keys[0] and "" in keys
        for way, wanted in (("down", keys), ("up", keys[::-1])):
            seen = [table.cursor]
            for _ in keys:
                await press(pilot, way)
                seen.append(table.cursor)
            assert list(dict.fromkeys(seen)) == [key for key in wanted if key]
        table.click_line(keys.index(""))
        assert table.cursor == keys[0]


async def test_the_cursor_stays_on_the_leader_until_the_user_moves_it() -> None:
    events = scenes.h200()  # in this row another candidate leads after the first round
    app, feed = held(events[:105])
    async with settled(app, (120, 40)) as pilot:
        await press(pilot, "2")
        table = app.screen.query_one(Table)
        assert table.cursor.endswith("/cpu/torch/fp32/t16")
        for event in events[105:115]:
            feed._more.put_nowait(event)
        await settle(pilot)
        assert table.cursor.endswith("/cuda:0/torch/bf16")
        await press(pilot, "down")
        below = table.cursor
        for event in events[115:120]:
            feed._more.put_nowait(event)
        await settle(pilot)
        assert table.cursor == below


async def test_the_lead_and_the_samples_are_shown_where_there_is_room() -> None:
    for size, roomy in (((120, 40), True), ((120, 30), False), ((80, 40), False)):
        async with settled(replayed(scenes.h200()), size) as pilot:
            await press(pilot, "2")
            assert "Log ─" in text(pilot) and "done        after" not in text(pilot), "of its row"
            await press(pilot, *["right"] * 5)
            shown = text(pilot)
            lead = "Lead by round, now 1.02x (95% CI 1.00-1.03) over cpu numpy fp32 t1"
            assert (lead in shown) == roomy
            assert ("120 samples of cuda:0 torch fp32 graph  2.07 ms ▃▃▃▃▅▅▃" in shown) == roomy


async def test_a_race_without_a_round_has_no_lead() -> None:
    async with settled(held(scenes.until(scenes.h200(), "training", 0))[0], (120, 40)) as p:
        await press(p, "2")
        assert "Lead by round" not in text(p) and "samples of" not in text(p)


def test_the_lead_ends_at_the_ratio_of_the_table() -> None:
    report = Report.of(scenes.h200())
    run = RunView(report)
    for row in report.rows.values():
        lead = run.lead(row)
        assert lead.best.case.id == row.verdict.pick != lead.other.case.id
        assert not row.is_reference_only(lead.other)
        if not lead.course:  # the runner-up had fewer than three rounds
            continue
        last, ratio = lead.course[-1]
        assert last == max(lead.best.rounds().keys() & lead.other.rounds().keys())
        assert ratio == run.behind(row)[lead.other.case.id]
        assert len({number for number, _ in lead.course}) == len(lead.course)


def test_the_lead_is_drawn_in_braille() -> None:
    report = Report.of(scenes.h200())
    run, row = RunView(report), report.rows["branching"]
    lines = [line.plain for line in course_lines(row, run, 118)]
    assert len(lines) == 10 and max(map(len, lines)) <= 118
    assert any(0x2800 < ord(letter) < 0x2900 for letter in "".join(lines[1:-3]))
    assert lines[-2].split() == ["round", "3", "round", "20"], "counted from one, as in the log"
    assert len(course_lines(row, run, 12)) == 1, "no room for a plot"


def test_a_long_race_is_thinned_and_keeps_its_last_round() -> None:
    report = Report.of(scenes.h200())
    row = report.rows["branching"]
    long, start = RunView(report), RunView(report).lead(row)
    for candidate in (start.best, start.other):
        rounds = candidate.rounds()
        rounds.update({number: rounds[0] * (1 + number % 7 / 100) for number in range(1000)})
    found = long.lead(row)
    assert found.course[-1][0] == 999 and len(found.course) <= 60
    lines = lead_lines(found, long, 100)
    assert max(line.cell_length for line in lines) <= 100


def test_the_histogram_counts_from_the_shortest_to_the_longest_sample() -> None:
    report = Report.of(scenes.h200())
    run = RunView(report)
    for row in report.rows.values():
        best = run.best(row)
        line = course_lines(row, run, 120)[-1].plain
        assert line.startswith(f"{len(best.samples_s):,} samples of ") and "█" in line
    row.candidates.clear()
    assert not course_lines(row, RunView(report), 120)


def test_the_forest_has_one_axis_and_every_interval_on_it() -> None:
    behind = {
        "best": Ratio(1.0, 1.0, 1.0, 0),
        "near": Ratio(1.02, 0.98, 1.06, 3),
        "far": Ratio(9.0, 6.0, 14.0, 3),
    }
    for width in range(16, 80):
        drawn = {key: forest.cell(key, behind, "cpu")(width).plain for key in behind}
        assert {len(line) for line in drawn.values()} == {width}
        at = {key: line.index("●") for key, line in drawn.items()}
        assert at["best"] <= at["near"] < at["far"]
        assert drawn["far"].index("├") < at["far"] < drawn["far"].index("┤")
        head = forest.axis(behind)("Time", width).plain
        assert len(head) == width and head.index("1x") == at["best"]


def test_a_row_that_is_level_has_an_axis_too() -> None:
    behind = {"best": Ratio(1.0, 1.0, 1.0, 0)}
    assert forest.cell("best", behind, "cpu")(20).plain.split() == ["1.00x", "●"]
    assert "1x" in forest.axis(behind)("Time", 20).plain
    assert forest.axis({})("Time", 20).plain


def test_references_come_after_their_heading_and_the_filter_leaves_them_out() -> None:
    report = Report.of(scenes.h200())
    run, row = RunView(report), report.rows["floating_point"]
    keys = [line.key for line in raced_lines(row, run)]
    assert APART in keys
    kept = raced_lines(row, run, {}, lambda label, *_: "fp64" not in label)
    assert APART not in [line.key for line in kept] and len(kept) < len(keys)


def test_ticks_are_one_two_and_five() -> None:
    assert ticks(0.9, 120, 10) == [1, 2, 5, 10, 20, 50, 100]
    assert ticks(0.9, 120, 4) == [1, 10, 100]
    assert ticks(1.0, 1.3, 4) == pytest.approx([1.0, 1.1, 1.2, 1.3])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.02, 1.38, [1.1, 1.2, 1.3]), (1.0, 1.05, [1.0, 1.02, 1.04]), (2.0, 25.0, [2, 5, 10, 20])],
)
def test_an_axis_has_more_than_one_tick(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high, 3) == pytest.approx(expected)


def test_braille_names_lines_at_their_ends_and_shades_the_crossing() -> None:
    places = [[(float(x), 10 ** (slope * x)) for x in range(3)] for slope in (0.0, 0.01, 1.0)]
    series = [
        Series((mark, "cpu"), line, name)
        for mark, line, name in zip("*ox", places, ("first", "second", "third"), strict=True)
    ]
    drawn = chart(series, [], str, 70, 10, [Band(0.5, 1.0, 0.7)], across=float)
    lines = [line.plain for line in drawn]
    ends = [line.split("  ")[-1].strip() for line in lines]
    for name in ("* first", "o second", "x third"):
        assert sum(name in end for end in ends) == 1, "level lines do not hide one another"
    assert any("░" in line for line in lines) and any("┆" in line for line in lines)
    assert all(len(line) <= 70 + 19 for line in lines)
    assert any(0x2800 < ord(c) < 0x2900 for line in lines for c in line)
