"""A user's scenario file: every fault is one line with file, line and reason; nothing else."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from workbench.planning import scenarios
from workbench.planning.scenario import Limits, Scenario
from workbench.planning.usage import UsageError
from workbench.text.toml_file import MOST_BYTES, TomlError, read

MINIMAL = """\
# One of my own.
[[scenario]]
id = "one"
title = "One"
question = "Which?"
workload = "infer_mlp"
objective = "throughput"
precisions = ["fp32"]
"""
FIRST = 3  # the line of its id


def refused(tmp_path: Path, text: str | bytes) -> str:
    """The message without the file's name, which it must begin with."""
    file = tmp_path / "mine.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as caught:
        scenarios.load(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert message.isprintable()
    return message.removeprefix(str(file))


def test_a_scenario_needs_few_fields(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINIMAL)
    (row,) = scenarios.load(file).values()
    assert row.quickened() == row
    assert row.textbook == ""
    assert (row.threads, row.weight, row.max_error) == (("all",), 1.0, None)
    assert (row.on_request, row.limits, row.size) == (False, Limits(), None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('textbook = "tpu"', 'textbook: must be "cpu", "gpu" or "" for'),
        ('objective = "speed"', "objective: must be throughput, latency,"),
        ("id = 3", "id: Expected `str`, got `int`"),
        ("threads = [0]", "threads"),
        ('threads = ["some"]', 'threads: must be "all" or whole numbers'),
        ("threads = []", "threads: must be"),
        ("threads = [5000]", "from 1 to 4096"),
        ("weight = 0", "weight"),
        ("weight = inf", "weight = inf is not finite"),
        ("weight = 1e9", "weight: Expected `float` <= 1000"),
        ("max_error = -1", "max_error"),
        ("max_error = nan", "max_error = nan"),
        ("batch = 0", "batch"),
        ("batch = 10000000000", "batch: Expected `int` <= 1000000"),
        ("batch = 99999999999999999999", "batch: the number has more than 64 bits"),
        ("quick = { size = 3 }", "quick has no field 'size'"),
        ("quick = { batch = 0 }", "quick.batch"),
        ("params = { n = [1] }", "params: Expected"),
        ("params = { width = 8, deep = true }", "params: Expected `int | float | str`, got"),
        ("quick = { params = { deep = true } }", "quick.params: Expected"),
        ("params = { widht = 8 }", "did you mean width?"),
        ("params = { width = 7 }", "width must be between 8 and 16384, not 7"),
        ("params = { width = 8.5 }", "width takes a whole number, not '8.5'"),
        ("params = { width = '8' }", "width takes a number, not '8'"),
        ("params = 1979-05-27", "params"),
        ("precisions = 3", "precisions"),
        ("precisions = []", "precisions: Expected `array` of length >= 1"),
        ('precisions = ["fp31"]', "unknown precision of infer_mlp: 'fp31'; did you mean fp32?"),
        ('precisions = ["fp64"]', "Choices: fp32, int8, bf16, fp16"),
        ('apart = ["fp32"]', "fp32 is also in precisions"),
        ('modes = ["compiled"]', "unknown mode of infer_mlp: 'compiled'; did you mean compile?"),
        (f'workload = "{"x" * 5000}"', "unknown workload 'xxx"),
        (f'id = "{"x" * 5000}"', "x...: use at most 40 letters"),
        ('workload = "infer_mpl"', "unknown workload 'infer_mpl'; did you mean infer_mlp?"),
        ("colour = 'red'", "a scenario has no field 'colour'. Choices: id, title"),
        ("max_eror = 0.1", "did you mean max_error?"),
        ("limits = { thread = 2 }", "limits has no field 'thread'; did you mean threads?"),
        ("limits = { latency_ms = 0 }", "limits.latency_ms"),
        ("size = { name = 'batch', low = 8 }", "size: the field high is missing"),
        ("size = { name = 'batch', low = 8, high = 8 }", "low = 8 must be below high = 8"),
        ("size = { name = 'width', low = 4, high = 8 }", "size.low: width must be between"),
        ("size = { name = 'batch', low = 1.5, high = 8 }", "batch takes a whole number"),
        ("size = { name = 'n', low = 1, high = 8 }", "Choices: width, batch"),
        ('title = "\\u001b[31mred"', "title: contains a control character"),
        ('title = "\\u202egpu"', "title: contains a control character"),
        ('title = " "', "title: must not be empty"),
        ('question = "a\\nb"', "question: contains a control character or a line break"),
        (f'source = "{"x" * 500}"', "source: Expected `str` of length <= 200"),
        ('id = "row[batch=4]"', "letters, digits, _ . and -"),
        ('id = "a/b"', "letters, digits, _ . and -"),
        ('id = "--all"', "no leading dash"),
        ('id = "\\u001b[2J"', "letters, digits, _ . and -"),
    ],
)
def test_a_wrong_field_is_refused_with_its_line(tmp_path: Path, change: str, message: str) -> None:
    name = change.partition(" ")[0]
    kept = [text for text in MINIMAL.splitlines() if not text.startswith(f"{name} ")]
    found = refused(tmp_path, "\n".join([*kept, change]))
    assert found.startswith(f", line {len(kept) + 1}: ")
    assert message in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MINIMAL.replace("infer_mlp", "matmul") + 'modes = ["nhwc"]\n',
            ", line 9: mode 'nhwc': matmul has no modes; leave it out",
        ),
        (
            MINIMAL + 'gpu_modes = ["grahp"]\n',
            ", line 9: unknown mode of infer_mlp: 'grahp'; did you mean graph?",
        ),
        (
            MINIMAL + "threads = [4, 8]\nlimits = { threads = 2 }",
            ", line 10: limits.threads = 2 is",
        ),
        (MINIMAL + "\n[scenario.size]\nname = 'batch'\nlow = 9\nhigh = 3", ", line 12: size: low"),
        (MINIMAL + "[scenario.quick.params]\nwidth = 1", ", line 10: width must be between"),
        (MINIMAL + "'limits'.latency_ms = 'fast'", ", line 9: limits.latency_ms: Expected"),
        (MINIMAL.replace("infer_mlp", "matmul") + "batch = 4", ", line 9: batch: matmul has no"),
        (
            MINIMAL.replace("infer_mlp", "data_loading") + "params.loaders = 2",
            "is a tuning parameter",
        ),
        (MINIMAL * 2, f", line {8 + FIRST}: two scenarios have the id 'one'"),
        (MINIMAL + MINIMAL.replace('"one"', "2"), f", line {8 + FIRST}: id: Expected `str`"),
        (MINIMAL.replace("title", "#"), ", line 2: scenario: the field title is missing"),
        ("scenario = [{ id = 'x', colour = 1 }]", ", line 1: a scenario has no field 'colour'"),
        ('a = """\n[[scenario]]\n"""\n[[scenario]]\nid = 1', ", line 1: expected [[scenario]]"),
        ('[[scenario]]\nquestion = """\n[[scenario]]"""\nid = 3', ", line 4: id: Expected"),
        ("# [[scenario]]\n\n[[scenario]]\nid = 3", ", line 4: id"),
        ("[[scenario]]\n\nid = [\n    1,\n    2,\n]\n", ", line 3: id: Expected"),
        ("[scenario]\nid = 'x'", ", line 1: a scenario starts with [[scenario]]"),
        ("id = 'x'", ", line 1: expected [[scenario]], not 'id'; is a [[scenario]]"),
        ("scenario = 3", "a scenario starts with [[scenario]]"),
        ("scenario = []", "a scenario starts with [[scenario]]"),
        ("scenario = [3]", "a scenario starts with [[scenario]]"),
        ("", ": a scenario starts with [[scenario]]"),
        ("[[scenario]\n", "(at line 1, column "),
        ("[[scenario]]\nid = 'x'\nid = 'y'\n", "(at line 3, column "),
        ("[[scenario]]\nid = 'x", "(at end of document)"),
        ('[[scenario]]\nid = """x\n\n', "(at end of document)"),
        ("x = " + "9" * 5000, ": it contains an invalid number or date"),
        ("x = 0x" + "f" * 5000, ", line 1: x: the number has more than 64 bits"),
        ("x = " + "[" * 5000, ": tables or lists are nested too deeply"),
        (b"\xff\xfe", ", line 1: this is not UTF-8 text"),
        (b"[[scenario]]\nid = '\xe9'", ", line 2: this is not UTF-8 text"),
        (b"\x00", "(at line 1, column 1)"),
        ("x" + ".x" * 100 + " = 1", ", line 1: keys are nested too deeply"),
        (b"#" * (MOST_BYTES + 1), " cannot be read: it is larger than 256 KiB"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path, text: str | bytes, message: str) -> None:
    assert message in refused(tmp_path, text)


def test_a_limit_on_threads_may_leave_some_of_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINIMAL + 'threads = [1, 8, "all"]\nlimits = { threads = 2 }\n')
    assert scenarios.load(file)["one"].limits.threads == 2


def test_numbers_take_the_type_of_their_parameter(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    transfer = MINIMAL.replace("infer_mlp", "transfer")
    file.write_text(transfer + "params = { mib = 2 }\nquick.params = { mib = 1 }")
    row = scenarios.load(file)["one"]
    assert type(row.params["mib"]) is type(row.quick.params["mib"]) is float


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # without a writer
    for name, why in (
        ("pipe", "not a regular file"),
        ("", "is a folder"),
        ("gone", "No such file"),
    ):
        with pytest.raises(UsageError, match=why):
            scenarios.load(tmp_path / name)
    with pytest.raises(UsageError, match="not a regular file"):
        scenarios.load(Path(os.devnull))
    with pytest.raises(UsageError, match="cannot be read"):
        scenarios.load(Path("a\0b"))


def test_a_broken_workload_of_the_users_own_is_refused(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mine.py").write_text("import nothing_of_that_name\n")
    monkeypatch.setenv("WORKBENCH_WORKLOADS", str(tmp_path))
    found = refused(tmp_path, MINIMAL.replace("infer_mlp", "mine"))
    assert found.startswith(", line 6: mine.py cannot be used: ModuleNotFoundError")


def test_own_scenarios_replace_shipped_ones_of_the_same_id(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINIMAL + MINIMAL.replace('"one"', '"branching"'))
    everything, own = scenarios.load_with(str(file))
    assert own == ["one", "branching"]
    assert set(everything) == {*scenarios.load(), "one"}
    assert everything["branching"].workload == "infer_mlp"
    assert scenarios.load_with(None) == (scenarios.load(), [])


fields = [*Scenario.__struct_encode_fields__, "params.width", "quick.batch", "size.low", "x"]
numbers = st.one_of(st.integers().map(str), st.floats().map(str))
texts = st.text(max_size=12).map(lambda text: f"'{text}'")
words = st.sampled_from(["'cpu'", "'fp32'", "'int8'", "'infer_mlp'", "'batch'", "'all'", "true"])
plain = numbers | texts | words
values = st.one_of(
    plain,
    st.lists(plain, max_size=3).map(lambda found: f"[{', '.join(found)}]"),
    st.dictionaries(
        st.sampled_from(["name", "low", "high", "width", "batch", "threads"]), plain
    ).map(lambda found: f"{{ {', '.join(f'{k} = {v}' for k, v in found.items())} }}"),
)
lines = st.tuples(st.sampled_from(fields), values).map(" = ".join)
junk = st.text(st.sampled_from("[]{}=\"'#.\n scenarioid\x00\\"), max_size=30)
files = st.one_of(
    st.binary(max_size=60),
    junk.map(str.encode),
    st.lists(st.one_of(lines, junk, st.just("[[scenario]]")), max_size=6).map(
        lambda found: "\n".join([MINIMAL, *found]).encode(errors="replace")
    ),
    st.tuples(st.integers(0, 12), lines).map(
        lambda put: "\n".join(
            [*(kept := MINIMAL.splitlines())[: put[0]], put[1], *kept[put[0] + 1 :]]
        ).encode(errors="replace")
    ),
)


@given(files)
@example(MINIMAL.encode())
@example(MINIMAL.replace("\n", "\r\n").encode())
@example(b"\xef\xbb\xbf" + MINIMAL.encode())
def test_any_file_gives_scenarios_or_one_line(tmp_path_factory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(content)
    try:
        rows = scenarios.load(file)
    except UsageError as error:
        message = str(error)
        assert message.startswith(str(file))
        assert message.isprintable()
    else:
        assert rows
        assert all(row.id == name for name, row in rows.items())


@given(files)
def test_the_line_in_a_message_is_one_of_the_file(tmp_path_factory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "lines.toml"
    file.write_bytes(content)
    try:
        tables = read(file)
    except TomlError:
        return
    for keys in ((), ("scenario",), ("scenario", 0), ("scenario", 1, "size", "low"), ("x", 3, "y")):
        line = tables.line(keys)
        assert line is None or 1 <= line <= tables.text.count("\n") + 1
