"""Bars, gauges and curves of characters."""

from workbench.export.view import glyphs, machine
from workbench.records.reason import Warning


def test_a_bar_shows_whatever_is_not_nothing_and_is_full_only_at_the_whole() -> None:
    assert glyphs.bar(0.0, 4) == ""
    assert glyphs.bar(0.001, 4) == "╸"
    assert glyphs.bar(0.999, 4) == "━━━╸"
    assert glyphs.bar(1.0, 4) == "━━━━"
    assert glyphs.gauge(0.5, 4) == "██░░"


def test_a_sparkline_averages_many_values_and_repeats_few() -> None:
    assert glyphs.sparkline([], 8, 0.0, 1.0) == ""
    assert glyphs.sparkline([1.0, 0.0], 8, 0.0, 1.0) == "████▁▁▁▁"
    assert glyphs.sparkline([1.0, 1.0, 0.0, 0.0], 2, 0.0, 1.0) == "█▁"
    assert glyphs.sparkline([0.5], 3, 0.5, 0.5) == "▁▁▁"


def test_a_warning_about_several_rows_stands_once_on_the_hardware_screen() -> None:
    busy = [Warning("busy_machine", "others ran", "stop them", row) for row in ("a", "b", "c")]
    cold = Warning("clock_low", "slow", "look", "cuda:0")
    facts = machine.warnings([busy[0], cold, *busy[1:]], {"a": "Row A", "b": "B", "c": "C"})
    assert [fact.text.plain for fact in facts] == [
        "others ran (Row A, and 2 more); stop them",
        "slow; look",
    ]
