"""Whatever others wrote is read by one reader; what it refuses is refused in one line."""

import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from builders import eventful
from hypothesis import given, settings, strategies as st

from workbench.export.json import dump
from workbench.export.text import run_text
from workbench.files.read import lines, whole
from workbench.records import events as ev
from workbench.records.errors import JournalError
from workbench.report import journal, run_files
from workbench.report.report import Report
from workbench.report.run_files import open_run, read_document
from workbench.text.sanitize import printable_json
from workbench.text.toml_file import TomlError, read as read_toml

FIXTURES = Path(__file__).parents[2] / "fixtures"
PRICED = FIXTURES / "documents/advise-prices.json"
CROSSED = FIXTURES / "documents/advise-crossover.json"
SWEPT = FIXTURES / "journals/run-sweep.jsonl"


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="it is not a regular file"):
        whole(tmp_path / "fifo", 10)
    with pytest.raises(OSError, match="it is a folder"):
        whole(tmp_path, 10)
    with pytest.raises(OSError, match="null"):
        whole(tmp_path / "a\0b", 10)
    try:
        os.mknod(tmp_path / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))  # endless: null(4)
    except PermissionError:
        return
    with pytest.raises(OSError, match="it is not a regular file"):
        whole(tmp_path / "zero", 10)


@given(st.binary(max_size=200), st.integers(1, 100), st.integers(1, 100))
@settings(max_examples=50)
def test_lines_are_those_of_the_file_within_its_bounds(content, most, longest) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder) / "file", content)
        expected = [line + b"\n" for line in content.split(b"\n")]
        expected[-1] = expected[-1][:-1]  # what follows the last line break
        expected = [line for line in expected if line]
        if len(content) <= most and all(len(line) <= longest for line in expected):
            assert list(lines(path, most, longest)) == expected
        else:
            with pytest.raises(OSError, match=r"larger than|longer than"):
                list(lines(path, most, longest))
        if len(content) <= most:
            assert whole(path, most) == content
        else:
            with pytest.raises(OSError, match="it is larger than"):
                whole(path, most)


def test_a_document_a_journal_and_a_line_have_a_limit(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(run_files, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(journal, "MOST_BYTES", 2 << 20)
    monkeypatch.setattr(journal, "LONGEST_LINE", 1 << 20)
    document = put(tmp_path / "x.json", b" " * (1 << 20) + b"{}")
    endless = put(tmp_path / "x.jsonl", b" " * (1 << 20) + b"{}")
    many = put(tmp_path / "many.jsonl", b" \n" * (1 << 20) + b"{}")
    for file, problem in {
        document: "it is larger than 1 MiB",
        endless: "line 1 is longer than 1 MiB",
        many: "it is larger than 2 MiB",
    }.items():
        with pytest.raises(JournalError, match=f"{file} cannot be read: {problem}"):
            open_run(str(file))


@pytest.mark.parametrize("nested", ["[" * 100_000, '{"a":' * 100_000])
def test_nesting_without_end_is_refused(tmp_path: Path, nested: str) -> None:
    document = json.dumps(json.loads(PRICED.read_text()))[:-1] + f', "later": {nested}'
    first = ev.encode(eventful()[0]).decode()
    for name, content in {"a.json": nested, "b.json": document, "c.jsonl": f"{nested}\n"}.items():
        with pytest.raises(JournalError) as refused:
            open_run(str(put(tmp_path / name, content.encode())))
        assert "\n" not in str(refused.value)
    journal = f'{first}\n{first[:-1]}, "later": {nested}\n'
    run = open_run(str(put(tmp_path / "d.jsonl", journal.encode())))
    (warning,) = run.report.warnings
    assert warning.message == "line 2 of the journal is damaged: it is nested too deeply"


def changed(value: Any, path: tuple[str | int, ...], new: object) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@pytest.mark.parametrize("name", ["step_s", "over_step_s"])
@pytest.mark.parametrize("value", [0, -1.0, 1e308, 1e-320])
def test_absurd_durations_of_a_break_even_are_refused(tmp_path, name: str, value: float) -> None:
    document = json.loads(PRICED.read_text())
    place = next(n for n, verdict in enumerate(document["verdicts"]) if verdict.get("payoffs"))
    changed(document, ("verdicts", place, "payoffs", 0, name), value)
    with pytest.raises(JournalError, match=f"not a workbench document: {name} cannot be"):
        open_run(str(put(tmp_path / "x.json", json.dumps(document).encode())))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("measurements", 0, "work", "items"), -1),
        (("measurements", 0, "work", "items"), 1e308),
        (("measurements", 0, "work", "ranks"), 0),
        (("measurements", 0, "work", "flops"), -1e308),
        (("measurements", 0, "memory_peak_bytes"), 10**400),
        (("measurements", 0, "samples_s", 0), 1e-320),
        (("machine", "memory", "total_bytes"), 10**400),
        (("verdicts", 0, "device_ratio"), 0),
        (("verdicts", 0, "device_ratio_ci95", 0), 0),
        (("verdicts", 0, "device_ratio_ci95", 1), 0),
    ],
)
def test_other_absurd_numbers_are_refused(tmp_path, path: tuple[Any, ...], value: Any) -> None:
    document = json.loads(CROSSED.read_text())
    changed(document, path, value)
    with pytest.raises(JournalError, match=r"cannot be|has a sample of"):
        open_run(str(put(tmp_path / "x.json", json.dumps(document).encode())))


@pytest.mark.parametrize("flops", [-1e308, 1e308, -1])
def test_absurd_work_ends_a_journal_and_its_line_is_named(tmp_path: Path, flops: float) -> None:
    events = [json.loads(line) for line in SWEPT.read_text().splitlines()]
    place = next(n for n, event in enumerate(events) if event["event"] == "RacePlanned")
    for work in events[place]["work"].values():
        work["flops"] = flops
    content = "".join(json.dumps(event) + "\n" for event in events)
    report = open_run(str(put(tmp_path / "x.jsonl", content.encode()))).report
    assert report.rows == {}
    problem = f"line {place + 1} of the journal is damaged: flops cannot be"
    assert report.warnings[-1].message.startswith(problem)


def test_a_point_of_an_unknown_size_is_refused(tmp_path: Path) -> None:
    events = [json.loads(line) for line in SWEPT.read_text().splitlines()]
    for event in events:
        if event["event"] == "RacePlanned":
            event["point"] = {"nowhere": 1}
    content = "".join(json.dumps(event) + "\n" for event in events)
    with pytest.raises(JournalError, match="is at a point of sizes that its cases do not have"):
        open_run(str(put(tmp_path / "x.jsonl", content.encode())))


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**40), 10**40),
    st.sampled_from([0, -1, 1e30, -1e30, 1e-60, 1e300]),
)


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [p for key, inner in value.items() for p in numbers_in(inner, (*path, key))]
    if isinstance(value, list):
        return [p for place, inner in enumerate(value) for p in numbers_in(inner, (*path, place))]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [path] if is_number and path[-2:-1] != ("samples_s",) else []


DOCUMENTS = [json.loads(file.read_text()) for file in (PRICED, CROSSED)]
PLACES = [numbers_in(document) for document in DOCUMENTS]


@given(st.data())
@settings(max_examples=30)
def test_any_number_anywhere_is_shown_or_refused(data: st.DataObject) -> None:
    which = data.draw(st.sampled_from(range(len(DOCUMENTS))))
    document = json.loads(json.dumps(DOCUMENTS[which]))
    changed(document, data.draw(st.sampled_from(PLACES[which])), data.draw(NUMBERS))
    with tempfile.TemporaryDirectory() as folder:
        file = put(Path(folder) / "x.json", json.dumps(document).encode())
        try:
            report = read_document(file)
        except JournalError as refused:
            assert "\n" not in str(refused)
        else:
            dump(report.document())
            run_text(report, 100)


STEERING = "\\u001b9ed\x7f\x1b\x85\u202e\u2028\U0001f600"


@given(st.text() | st.text(alphabet=STEERING))
def test_what_is_printable_stays_and_nothing_else_passes(text: str) -> None:
    for ascii_only in (True, False):
        raw = json.dumps([text], ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        try:
            (found,) = json.loads(printable_json(raw))
        except UnicodeDecodeError:
            continue
        assert not set(found) & set("\x1b\x7f\x85\u202e\u2028\r\b\f")
        if all(character.isprintable() for character in text):
            assert found == text


@pytest.mark.parametrize(
    "text",
    [
        'x = "' + 'a\\"' * 80_000,
        "'" * 200_000,
        "'''" * 80_000,
        '"""' + "a\\" * 100_000,
        '"' * 200_001,
    ],
    ids=["escapes", "single", "triple", "multiline", "double"],
)
def test_strings_without_an_end_take_no_time(tmp_path: Path, text: str) -> None:
    began = time.process_time()
    with pytest.raises(TomlError):
        read_toml(put(tmp_path / "x.toml", text.encode()))
    assert time.process_time() - began < 20  # the square of its length would take minutes


def test_a_block_of_a_million_samples_and_as_many_rounds_as_a_week_has_are_opened(tmp_path) -> None:
    run = eventful()
    place = next(n for n, event in enumerate(run) if isinstance(event, ev.BlockMeasured))
    block = ev.encode(run[place])
    head = b"".join(ev.encode(event) + b"\n" for event in run[:place])
    rounds = [block.replace(b'"round":0', b'"round":%d' % n) for n in range(20_000)]
    report = open_run(str(put(tmp_path / "x.jsonl", head + b"\n".join(rounds) + b"\n"))).report
    began = time.process_time()
    report.document()
    run_text(report, 100)
    assert time.process_time() - began < 20


@pytest.mark.parametrize("status", ["failed", "cancelled", None])
def test_a_run_that_ended_at_its_start_says_so(status: str | None) -> None:
    report = Report.of(eventful()[:1])
    if status is not None:
        report.status = status
    end = f"the run is {status or 'incomplete'}."
    assert run_text(report, 80).startswith(f"Nothing was measured: no candidate was planned; {end}")
