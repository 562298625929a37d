"""The race of one row as a forest plot, and the canvas of the curves."""

from __future__ import annotations

import scenes
from stage import press, replayed, settle, text

from workbench.export.view import forest
from workbench.export.view.chart import Band, Series, chart, ticks
from workbench.export.view.derived import Behind, RunView
from workbench.export.view.tables import APART, raced_lines
from workbench.report.report import Report


async def test_the_race_shows_ratios_with_their_intervals_and_the_pick() -> None:
    async with replayed(scenes.h200()).run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "2", *["left"] * 4)
        shown = text(pilot)
        lines = shown.splitlines()
        head = next(line for line in lines if line.startswith("  Candidate"[1:]))
        assert "1x" in head and "2x" in head
        slower = next(line for line in lines if "cpu torch bf16 t16 " in line)
        assert "1.65x" in slower and "├●─┤" in slower  # 1.55 to 1.75, rounded to cells
        assert next(line for line in lines if "1.00x" in line).endswith("pick")


async def test_the_candidates_for_comparison_stand_apart() -> None:
    async with replayed(scenes.h200()).run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "2", *["left"] * 5, *["right"] * 2)
        assert "for comparison, never picked" in text(pilot)
        await press(pilot, "slash", *"fp64", "enter")
        assert "fp32" not in "".join(text(pilot).splitlines()[5:9])


def test_the_forest_has_one_axis_and_every_interval_on_it() -> None:
    behind = {
        "best": Behind(1.0, 1.0, 1.0),
        "near": Behind(1.02, 0.98, 1.06),
        "far": Behind(9.0, 6.0, 14.0),
    }
    for width in range(16, 80):
        drawn = {key: forest.cell(key, behind, "cpu")(width).plain for key in behind}
        assert {len(line) for line in drawn.values()} == {width}
        at = {key: line.index("●") for key, line in drawn.items()}
        assert at["best"] <= at["near"] < at["far"]
        assert drawn["far"].index("├") < at["far"] < drawn["far"].index("┤")
        head = forest.axis(behind)(width).plain
        assert len(head) == width and head.index("1x") == at["best"]


def test_a_row_that_is_level_has_an_axis_too() -> None:
    behind = {"best": Behind(1.0, 1.0, 1.0)}
    assert forest.cell("best", behind, "cpu")(20).plain.split() == ["1.00x", "●"]
    assert "1x" in forest.axis(behind)(20).plain
    assert forest.axis({})(20).plain


def test_references_come_after_their_heading_and_the_filter_leaves_them_out() -> None:
    report = Report.of(scenes.h200())
    run, row = RunView(report), report.rows["floating_point"]
    keys = [line.key for line in raced_lines(row, run)]
    assert APART in keys
    kept = raced_lines(row, run, {}, lambda label: "fp64" not in label)
    assert APART not in [line.key for line in kept] and len(kept) < len(keys)


def test_ticks_are_one_two_and_five() -> None:
    assert ticks(0.9, 120, 10) == [1, 2, 5, 10, 20, 50, 100]
    assert ticks(0.9, 120, 4) == [1, 10, 100]
    assert ticks(1.0, 1.3, 4) == [1.0, 1.1, 1.2, 1.3] or len(ticks(1.0, 1.3, 4)) <= 4


def test_braille_names_lines_at_their_ends_and_shades_the_crossing() -> None:
    places = [[(float(x), slope * x) for x in range(3)] for slope in (0.0, 0.01, 1.0)]
    series = [
        Series((mark, "cpu"), line, name)
        for mark, line, name in zip("*ox", places, ("first", "second", "third"), strict=True)
    ]
    lines = [
        line.plain
        for line in chart(series, [], "FLOP/s", 70, 10, fine=True, band=Band(0.5, 1.0, 0.7))
    ]
    ends = [line.split("  ")[-1].strip() for line in lines]
    for name in ("* first", "o second", "x third"):
        assert sum(name in end for end in ends) == 1, "level lines do not hide one another"
    assert any("░" in line for line in lines) and any("┆" in line for line in lines)
    assert all(len(line) <= 70 + 19 for line in lines)
    assert any(0x2800 < ord(c) < 0x2900 for line in lines for c in line)
