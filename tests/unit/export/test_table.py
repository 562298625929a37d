"""Tables in narrow terminals: which columns stay, and one name for one thing."""

import pytest

from workbench.export.view.runs import COLUMNS, run_details, run_line
from workbench.export.view.spans import Text
from workbench.export.view.table import Column, Line, fit, table_lines
from workbench.records.comparison import RunSummary

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
