"""Columns shrink and leave by rank; half a number is never shown."""

import pytest

from workbench.export.view.spans import Text
from workbench.export.view.table import Column, Line, fit, line_text, sorted_lines, table_lines

COLUMNS = (
    Column("name", "Name", minimum=8),
    Column("answer", "Here"),
    Column("ratio", "Ratio", rank=1, align="right"),
    Column("pick", "Pick", rank=2),
    Column("note", "Note", rank=3),
)
LINES = (
    Line(
        "a",
        {
            "name": Text.of("a rather long name"),
            "answer": Text.of("GPU"),
            "ratio": Text.of("38.2x"),
            "pick": [Text.of("cuda:0 torch bf16"), Text.of("cuda:0 bf16")],
            "note": Text.of("measured"),
        },
    ),
    Line("b", {"name": Text.of("b"), "answer": Text.of("...")}, ("ratio", [Text.of("racing")])),
)


def shown(width: int) -> list[str]:
    return [line.plain.rstrip() for line in table_lines(COLUMNS, LINES, width)]


def test_with_room_everything_has_its_natural_width() -> None:
    assert shown(80) == [
        "Name                Here  Ratio  Pick               Note",
        "a rather long name  GPU   38.2x  cuda:0 torch bf16  measured",
        "b                   ...   racing",
    ]


def test_shorter_forms_come_before_columns_leave() -> None:
    assert shown(50)[1] == "a rather long…  GPU   38.2x  cuda:0 bf16  measured"


def test_the_highest_rank_leaves_first_and_rank_zero_never() -> None:
    assert [column.key for column, _ in fit(COLUMNS, LINES, 40)] == [
        "name",
        "answer",
        "ratio",
        "pick",
    ]
    assert shown(14)[1] == "a rathe…  GPU"


def test_every_line_fits_at_every_width() -> None:
    for width in range(14, 90):
        assert all(len(line) <= width for line in shown(width)), width


def test_a_span_runs_to_the_right_edge_in_its_longest_form_that_fits() -> None:
    texts = [Text.of("racing, 2 of 7 candidates left"), Text.of("racing, 2 of 7 left")]
    line = Line("b", {"name": Text.of("b")}, ("answer", texts))
    layout = fit(COLUMNS, [line], 40)
    assert line_text(line, layout, 40).plain.endswith("racing, 2 of 7 candidates left")
    assert line_text(line, layout, 30).plain.endswith("racing, 2 of 7 left")


def test_a_drawing_gets_the_width_that_is_left() -> None:
    column = Column("bar", "Bar", rank=1, minimum=4, maximum=10)
    line = Line("a", {"bar": lambda width: Text.of("=" * width)})
    assert table_lines([column], [line], 30)[1].plain == "=" * 10
    assert table_lines([column], [line], 6)[1].plain == "=" * 6


def test_names_that_are_too_long_lose_their_middle_where_they_stay_apart() -> None:
    column = Column("name", "Name", minimum=16, names=True)
    kinds = ("dynamic", "static")
    names = [f"cpu ort int8-{kind}-and-more t{n}" for kind in kinds for n in (1, 2)]
    lines = [Line(name, {"name": Text.of(name)}) for name in [*names, "cpu numpy"]]
    for width in (16, 20, 24):
        shown = [line.plain.rstrip() for line in table_lines([column], lines, width)[1:]]
        assert shown[-1] == "cpu numpy"
        assert len(set(shown)) == 5, shown
        assert all(text.endswith(("1", "2")) for text in shown[:-1])
    assert [line.plain for line in table_lines([column], lines, 40)[1:5]] == [
        name.ljust(32) for name in names
    ]


@pytest.mark.parametrize(
    ("small", "large"), [("12,300 samples/s", "1.23 M samples/s"), ("<0.01%", "! 3.42%")]
)
def test_amounts_sort_by_size_whatever_stands_around_them(small: str, large: str) -> None:
    lines = [Line(text, {"x": Text.of(text)}) for text in (large, small)]
    assert [line.key for line in sorted_lines(lines, "x", False)] == [small, large]


def test_worse_gains_sort_below_better_ones_whatever_they_are_counted_in() -> None:
    order = [
        *("2.60x slower at the 99th percentile", "2.40x slower than cpu numpy fp32"),
        *("2.10x higher in peak memory", "1.90x slower", "1.20x higher in cost"),
        *("1.10x lower in cost", "1.50x faster", "2.00x lower in peak memory"),
    ]
    lines = [Line(text, {"x": Text.of(text)}) for text in sorted(order)]
    assert [line.key for line in sorted_lines(lines, "x", False)] == order
    assert [line.key for line in sorted_lines(lines, "x", True)] == order[::-1]
