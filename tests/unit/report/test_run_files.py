"""Runs are opened from files; what is no run is refused in one line."""

import json
import os
import re
from pathlib import Path

import msgspec
import pytest
from builders import eventful

from workbench.export.json import document_parts, dump
from workbench.records import events as ev
from workbench.records.document import Tool
from workbench.records.errors import JournalError
from workbench.records.reason import Warning
from workbench.report.report import Report
from workbench.report.run_files import open_run, read_document
from workbench.text.sanitize import printable_json

RUN = eventful()
DOCUMENT = Report.of(RUN).document()


def test_a_document_file_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(dump(DOCUMENT))
    assert open_run(str(file)).report.document() == DOCUMENT


def test_what_is_there_but_no_file_is_not_called_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for other in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(JournalError, match=r"^neither a regular file nor a run: "):
            open_run(str(other))
    for missing in ("gone", "x" * 300, "a\0b"):
        with pytest.raises(JournalError, match=r"^no such file or run: "):
            open_run(missing)


def test_a_document_without_samples_is_refused_with_the_command_that_shows_the_run(
    tmp_path: Path,
) -> None:
    file = tmp_path / "bare.json"
    file.write_bytes(b"".join(document_parts(Report.of(RUN), samples=False)))
    expected = rf"--no-samples.*`workbench open {DOCUMENT.run.id}`"
    with pytest.raises(JournalError, match=expected):
        open_run(str(file))


def test_a_journal_file_is_opened_from_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "copied.jsonl"
    lines = list(map(ev.encode, RUN))
    file.write_bytes(b"\n".join(lines))
    assert list(map(ev.encode, open_run(str(file)).events)) == lines


@pytest.mark.parametrize("samples", ["", "0", "1e-13", "1e9", "-1"])
def test_a_run_ends_at_a_block_without_samples_or_with_an_impossible_one(tmp_path, samples) -> None:
    events = list(map(ev.encode, RUN))
    place = next(n for n, event in enumerate(RUN) if isinstance(event, ev.BlockMeasured))
    events[place] = re.sub(
        rb'"samples_s":\[[^]]*\]', b'"samples_s":[%s]' % samples.encode(), events[place]
    )
    file = tmp_path / "copied.jsonl"
    file.write_bytes(b"\n".join(events))
    opened = open_run(str(file))
    warning = opened.report.warnings[-1]
    assert warning.message.startswith(f"line {place + 1} of the journal is damaged: ")
    assert "samples_s" in warning.message and len(opened.events) == place + 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"\x89PNG\r\n",
        b'{"schema_version": 1}',
        b'{"schema_version": "\xff"}',
        msgspec.json.encode(DOCUMENT)[:-40],
    ],
)
def test_a_file_that_is_no_document_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    with pytest.raises(JournalError, match=r"mine\.json is not a workbench document") as e:
        read_document(file)
    assert "\n" not in str(e.value) and "codec" not in str(e.value)


def test_the_output_of_another_command_is_called_so(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(msgspec.json.encode({"schema_version": 1, "tool": Tool("w", "1", "detect")}))
    with pytest.raises(JournalError, match="holds what `workbench detect` printed, not a run"):
        read_document(file)


PICK = dict.fromkeys(("value", "runner_up", "ratio", "ratio_ci95"))
UNKNOWN = {**PICK, "objective": "most_frugal", "pick": "another", "unit": "J/run"}


@pytest.mark.parametrize(
    ("place", "name", "value", "expected"),
    [
        ("measurements", "samples_s", [], r"measurements\[0\]: its blocks count 40 samples, .* 0"),
        ("measurements", "samples_s", [0.0] * 40, "has a sample of 0 s"),
        ("measurements", "id", "another", r"measurements\[0\]\.id is 'another'"),
        ("measurements", "status", "fine", "not one of ok, skipped"),
        ("verdicts", "choice", "tpu", r"verdicts\[0\]\.choice is 'tpu', not one of cpu, gpu"),
        ("verdicts", "objective", "speed", "not one of throughput"),
        ("verdicts", "pick", "another", "'another', which was not measured"),
        ("verdicts", "by_objective", [UNKNOWN], "by_objective has 'another', which has no cost"),
    ],
)
def test_a_document_that_contradicts_itself_is_refused_with_the_place(
    tmp_path: Path, place: str, name: str, value: object, expected: str
) -> None:
    fields = msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    fields[place][0][name] = value
    file = tmp_path / "mine.json"
    file.write_bytes(msgspec.json.encode(fields))
    with pytest.raises(JournalError, match=f"not a workbench document: .*{expected}"):
        open_run(str(file))


def test_an_objective_that_is_unknown_is_refused_without_a_verdict_too(tmp_path: Path) -> None:
    cut = Report.of(eventful()[:4]).document()
    (row,) = [msgspec.structs.replace(each, objective="speed") for each in cut.unanswered][:1]
    file = tmp_path / "mine.json"
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(cut, unanswered=[row])))
    with pytest.raises(JournalError, match=r"unanswered\[0\]\.objective is 'speed'"):
        open_run(str(file))


def test_a_journal_of_a_candidate_that_never_entered_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    kept = [event for event in RUN if not isinstance(event, ev.RacePlanned)]
    file.write_bytes(b"".join(ev.encode(event) + b"\n" for event in kept))
    with pytest.raises(JournalError, match=r"not the journal of a run: .* never announced"):
        open_run(str(file))


@pytest.mark.parametrize("text", ["\x1b[31m", "\x9b2J", "\u202eupg", "a\r\b", "\U000e0041"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_escape_codes_of_a_foreign_file_do_not_reach_the_terminal(text, ascii_only) -> None:
    raw = json.dumps({text: [text, "\\u001b", "two\nlines", "ü 日 😀"]}, ensure_ascii=ascii_only)
    ((name, (expected, *plain)),) = json.loads(printable_json(raw.encode())).items()
    assert name == expected == "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    assert plain == ["\\u001b", "two\nlines", "ü 日 😀"]


def test_documents_and_journals_are_read_without_escapes(tmp_path: Path) -> None:
    warning = Warning("busy", "\x1b[2Jbusy", "wait")
    run = [*RUN[:2], ev.WarningRaised(at_s=0.5, warning=warning), *RUN[2:]]
    document, lines = tmp_path / "mine.json", tmp_path / "mine.jsonl"
    document.write_text(dump(Report.of(run).document()))
    lines.write_bytes(b"".join(ev.encode(event) + b"\n" for event in run))
    for file in (document, lines):
        assert r"\x1b[2Jbusy" in [w.message for w in open_run(str(file)).report.warnings]


def test_a_document_that_is_gone_says_so(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        read_document(tmp_path / "gone.json")


def test_a_document_with_an_unknown_field_of_a_later_minor_version_is_still_read(tmp_path) -> None:
    fields = msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    file = tmp_path / "later.json"
    file.write_bytes(msgspec.json.encode({**fields, "new_in_a_later_release": [1]}))
    assert read_document(file).document() == DOCUMENT


@pytest.mark.parametrize(
    ("place", "name"),
    [("measurements", "id"), ("measurements", "status"), ("verdicts", "choice"), ("run", "status")],
)
def test_a_refusal_quotes_the_beginning_of_a_long_text(tmp_path, place: str, name: str) -> None:
    content = json.loads(dump(DOCUMENT))
    part = content[place] if isinstance(content[place], dict) else content[place][0]
    part[name] = "x" * 100_000 if name != "status" or place != "run" else ["x" * 100_000]
    file = tmp_path / "long.json"
    file.write_text(json.dumps(content))
    with pytest.raises(JournalError) as refused:
        open_run(str(file))
    assert len(str(refused.value).removeprefix(str(file))) < 400


def test_a_long_name_is_quoted_in_part() -> None:
    with pytest.raises(JournalError, match="Recent runs: none yet") as refused:
        open_run("x" * 100_000)
    assert len(str(refused.value)) < 400
