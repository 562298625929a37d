"""Tables: which columns stay and shrink, how lines sort, and one name for one thing."""

import pytest
import scenes

from workbench.export.view import forest
from workbench.export.view.derived import RunView
from workbench.export.view.runs import COLUMNS, run_details, run_line
from workbench.export.view.spans import Text
from workbench.export.view.table import Column, Line, fit, line_text, sorted_lines, table_lines
from workbench.export.view.tables import raced_lines, run_columns
from workbench.records.comparison import RunSummary
from workbench.report.report import Report
from workbench.stats.paired import Ratio

NAMES = ("cpu onnxruntime fp32", "cpu ort fp32"), ("cpu onnxruntime int8-static", "cpu ort int8")


@pytest.mark.parametrize(("width", "word"), [(30, "onnxruntime"), (22, "ort"), (12, "ort")])
def test_a_column_has_one_name_for_a_library(width: int, word: str) -> None:
    lines = [Line(long, {"name": [Text.of(long), Text.of(short)]}) for long, short in NAMES]
    column = Column("name", "Name", minimum=8, names=True)
    _, *rows = table_lines([column], lines, width)
    assert [row.plain.split()[1] for row in rows] == [word, word]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_list_of_runs_has_whole_states_at_every_width(width: int) -> None:
    states = "done", "incomplete", "unreadable"
    runs = [
        RunSummary(
            f"20261121-15301{number}-4f3a", state, "2026-11-21T15:30:12Z", 61.0,
            "workbench advise training --quick", simulated=True, answers={"training": "gpu"},
        )
        for number, state in enumerate(states)
    ]  # fmt: skip
    head, *lines = table_lines((Column("id", "Run"), *COLUMNS), [*map(run_line, runs)], width)
    assert "Status" in head.plain and all(line.cell_length <= width for line in lines)
    for line, run in zip(lines, runs, strict=True):
        assert line.plain.startswith(run.id) and run.status in line.plain


@pytest.mark.parametrize(
    ("command", "word"),
    [("workbench advise --quick", "2 unanswered"), ("workbench run matmul", "")],
)
def test_only_a_run_that_was_asked_is_unanswered(command: str, word: str) -> None:
    run = RunSummary("1", "cancelled", command=command, answers={"training": "", "realtime": ""})
    answers = run_line(run).cells["answers"]
    assert isinstance(answers, list) and answers[-1].plain == word


def test_a_device_has_the_name_that_it_has_elsewhere() -> None:
    run = RunSummary("a", "done", answers={"training": "gpu", "forest": "cpu torch fp32 t2"})
    shown = [line.plain for line in run_details(run, 80)]
    assert any("training: GPU" in line for line in shown)
    assert any("forest: cpu torch fp32 t2" in line for line in shown)


def test_columns_of_one_rank_become_equally_wide_so_that_their_bars_have_one_scale() -> None:
    columns = [Column(key, key, minimum=4, maximum=44) for key in ("before", "after")]
    line = Line("", {column.key: lambda width: Text.of("=" * width) for column in columns})
    assert [width for _, width in fit(columns, [line], 62)] == [30, 30]


def test_a_bar_leaves_before_a_name_is_cut() -> None:
    columns = [
        Column("name", "Name", minimum=8, names=True),
        Column("bar", "", rank=8, minimum=6),
        Column("time", "Time", rank=1),
    ]
    cells = {"name": Text.of("int8-static-channel"), "bar": lambda width: Text.of("=" * width)}
    lines = [Line("", {**cells, "time": Text.of("9 ms")})]
    kept = {width: [column.key for column, _ in fit(columns, lines, width)] for width in (33, 32)}
    assert kept == {33: ["name", "bar", "time"], 32: ["name", "time"]}


def test_a_text_that_does_not_fit_leaves_its_room_to_the_next_column() -> None:
    machine = "Intel Xeon, 2 cores | no GPU"
    rows = ["training", "realtime", "floating_point", "prototyping"]
    run = RunSummary(
        "1", "done", "2026-11-29T10:56:46Z", 39.0, "workbench advise --quick", machine=machine,
        answers=dict.fromkeys(rows, "cpu torch fp32 t2"), confidences=dict.fromkeys(rows, "likely"),
    )  # fmt: skip
    _, line = table_lines(COLUMNS, [run_line(run, {})], 118)
    assert "  4 likely  " in line.plain and line.plain.endswith(machine)


FIVE = (
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
    return [line.plain.rstrip() for line in table_lines(FIVE, LINES, width)]


def test_with_room_everything_has_its_natural_width() -> None:
    assert shown(80) == [
        "Name                Here  Ratio  Pick               Note",
        "a rather long name  GPU   38.2x  cuda:0 torch bf16  measured",
        "b                   ...   racing",
    ]


def test_shorter_forms_come_before_columns_leave() -> None:
    assert shown(50)[1] == "a rather long…  GPU   38.2x  cuda:0 bf16  measured"


def test_the_highest_rank_leaves_first_and_rank_zero_never() -> None:
    assert [column.key for column, _ in fit(FIVE, LINES, 40)] == [
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
    layout = fit(FIVE, [line], 40)
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
    ("small", "large"),
    [
        ("12,300 samples/s", "1.23 M samples/s"),
        ("<0.01%", "! 3.42%"),
        ("1,020 KiB", "1.00 MiB"),
        ("Matrix product, n=64", "Matrix product, n=128"),
    ],
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


def test_amounts_sort_by_size_with_their_units_and_the_empty_last() -> None:
    cells = ["1.31 TFLOP/s", "900 us", "276 GFLOP/s", "", "12 ms", "CPU 2.9x", "cpu t2", "-1,024"]
    lines = [Line(cell or "empty", {"a": Text.of(cell)}) for cell in cells]
    order = ["-1,024", "900 us", "12 ms", "CPU 2.9x", "276 GFLOP/s", "1.31 TFLOP/s", "cpu t2"]
    order.append("empty")
    assert [line.key for line in sorted_lines(lines, "a", False)] == order
    backwards = [line.key for line in sorted_lines(lines, "a", True)]
    assert backwards == [*reversed(order[:-1]), "empty"]


def test_a_heading_keeps_the_lines_below_it() -> None:
    cells = {"b": "2 ms", "a": "1 ms", "": "", "d": "4 ms", "c": "3 ms"}
    heading = ("t", [Text.of("for comparison")])
    lines = [
        Line(key, {"t": Text.of(cell)}, None if key else heading) for key, cell in cells.items()
    ]
    assert [line.key for line in sorted_lines(lines, "t", False)] == ["a", "b", "", "c", "d"]


def test_times_below_that_of_the_pick_are_the_least() -> None:
    cells = {"a": "1.05x", "b": "1/1.80x", "c": "1.00x", "d": "CPU 1/1.20x"}
    lines = [Line(key, {"t": Text.of(cell)}) for key, cell in cells.items()]
    assert [line.key for line in sorted_lines(lines, "t", False)] == ["b", "d", "c", "a"]


def test_a_ratio_of_millions_stays_within_its_cells() -> None:
    found = {"best": Ratio(1.0, 1.0, 1.0, 3), "far": Ratio(2.5e6, 1.1e6, 4e6, 3)}
    for width in (7, 40):
        drawn = forest.cell("far", found, "")(width).plain
        assert drawn.split()[0] == "2.5e6x" and len(drawn) <= width
    head = forest.axis(found)("Time", 90).plain
    assert "100000x" in head and "1e6x" in head and "+" not in head


def test_a_lone_candidate_is_compared_with_nothing() -> None:
    run = RunView(Report.of(scenes.cpu_only()))
    row = next(iter(run.report.rows.values()))
    assert "Time" in [column.title for column in run_columns(row, run)]
    del row.candidates[1:]
    assert "Time" not in [column.title for column in run_columns(row, run)]


def test_the_times_of_a_column_have_their_spread_all_or_none() -> None:
    run = RunView(Report.of(scenes.sweep()))
    row = next(row for row in run.report.rows.values() if row.plan.point == {"n": 2048})
    for width in range(50, 140):
        lines = table_lines(run_columns(row, run), raced_lines(row, run), width)
        assert len({"±" in line.plain for line in lines[1:]}) == 1, width
