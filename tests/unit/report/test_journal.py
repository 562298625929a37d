"""Journals survive a torn end and a broken line, and name that line."""

import errno
import os
import re
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from builders import case, events, report, steady
from hypothesis import given, strategies as st

from workbench.engine.engine import EventStream
from workbench.export.json import dump
from workbench.pool.control import Control
from workbench.records import events as ev
from workbench.records.errors import JournalError
from workbench.report import journal
from workbench.report.report import Report
from workbench.report.run_files import open_run, read_document

RUN = events({case("cpu-a"): steady(1.0)})


def encoded(found: list[ev.AnyEvent]) -> list[bytes]:
    """Events as lines, whose samples look the same in a list and in an array."""
    return [ev.encode(event) + b"\n" for event in found]


LINES = encoded(RUN)


@pytest.fixture
def state() -> Path:
    return journal.runs_folder()


def test_appended_events_are_read_again(state: Path) -> None:
    written = journal.Journal(state / "a.jsonl")
    for event in RUN:
        written.append(event)
    written.close()
    assert encoded(journal.read(written.path)) == LINES
    assert written.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kept", [1, 5, 40])
def test_a_torn_last_line_is_left_out(tmp_path: Path, kept: int) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b"".join(LINES[:-1]) + LINES[-1][:kept])
    assert encoded(journal.read(torn)) == LINES[:-1]


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"NoSuchThing"}',
        b'{"event":"StatusChanged","at_s":0,"status":"\xff"}',
        b'{"event":"StatusChanged","at_s":1e300,"status":"paused"}',
        b"\x00\x01",
        b"[]",
        b"{",
    ],
)
def test_a_run_is_shown_up_to_a_broken_line_which_is_named(tmp_path: Path, line: bytes) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(LINES[0] + LINES[1] + line + b"\n" + LINES[2])
    opened = open_run(str(broken))
    assert encoded(opened.events[:-1]) == LINES[:2]
    (warning,) = opened.report.warnings
    assert warning.code == "damaged_journal"
    assert warning.message.startswith("line 3 of the journal is damaged: ")


@given(st.data())
def test_cut_off_at_any_byte_a_journal_opens_with_all_whole_lines(data) -> None:
    whole = b"".join(LINES[:6])
    end = data.draw(st.integers(len(LINES[0]), len(whole)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cut.jsonl"
        file.write_bytes(whole[:end])
        found = encoded(journal.read(file))
    complete = whole[:end].count(b"\n")
    # A line that lacks nothing but its end is whole as well.
    ends_on_event = whole[end : end + 1] == b"\n"
    assert found == LINES[: complete + ends_on_event]


def test_empty_lines_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "spaced.jsonl"
    file.write_bytes(b"\n".join(LINES) + b"\n \n")
    assert encoded(journal.read(file)) == LINES


@pytest.mark.parametrize("content", [b"", b"\n", LINES[1], b"".join(LINES[1:])])
def test_a_file_that_does_not_begin_a_run_is_no_journal(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.jsonl"
    file.write_bytes(content)
    with pytest.raises(JournalError, match="is not the journal of a run"):
        journal.read(file)


def test_a_journal_that_is_gone_says_so(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        journal.read(tmp_path / "gone.jsonl")


def test_an_event_can_be_read_as_soon_as_it_is_appended(state: Path) -> None:
    written = journal.Journal(state / "live.jsonl")
    for count, event in enumerate(RUN[:3], start=1):
        written.append(event)
        assert encoded(journal.read(written.path)) == LINES[:count]
    written.close()


@pytest.mark.parametrize("before", [0, 2])
def test_a_full_disk_costs_the_journal_and_nothing_else(state, monkeypatch, before) -> None:
    forwarded: list[ev.AnyEvent] = []
    stream = EventStream(Control(), Report(), forwarded.append)
    for event in RUN[:before]:
        stream.emit(event)
    room = [10]  # bytes
    write = os.write

    def fill(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= write(fd, data[: room[0]])
        return 10

    monkeypatch.setattr(os, "write", fill)
    for event in RUN[before : before + 2]:
        stream.emit(event)
    warned = forwarded.pop(before + 1)
    assert forwarded == RUN[: before + 2]
    assert warned.warning.code == "no_journal"
    assert warned.warning.message.endswith(f"/{RUN[0].id}.jsonl: No space left on device")
    kept = [journal.read(file) for file in state.glob("*")]
    assert kept == ([RUN[:before]] if before else [])


def test_a_run_that_never_began_leaves_no_file(state: Path) -> None:
    written = journal.Journal(state / "begun.jsonl")
    written.append(RUN[0])
    written.discard()
    assert journal.run_ids() == []


def test_runs_are_listed_newest_first_and_only_journals(state: Path) -> None:
    assert journal.run_ids() == []
    for name in ("20260101-000000-aaaa.jsonl", "20260301-000000-aaaa.jsonl", "notes.txt"):
        state.mkdir(parents=True, exist_ok=True)
        (state / name).write_bytes(LINES[0])
    assert journal.run_ids() == ["20260301-000000-aaaa", "20260101-000000-aaaa"]


def test_a_new_id_sorts_by_time_and_is_not_used_twice() -> None:
    ids = {journal.new_run_id() for _ in range(50)}
    assert len(ids) > 40  # 16 random bits within one second
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", run_id) for run_id in ids)


def test_a_file_goes_before_a_run_of_the_same_name(state: Path, tmp_path, monkeypatch) -> None:
    state.mkdir(parents=True)
    (state / "last.jsonl").write_bytes(b"".join(LINES[:2]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last").write_bytes(b"".join(LINES))
    assert encoded(open_run("last").events) == LINES


def test_runs_are_found_by_id_by_its_beginning_and_as_the_last(state: Path) -> None:
    for run_id in ("20260101-000000-aaaa", "20260102-000000-bbbb"):
        journal.Journal(state / f"{run_id}.jsonl").append(RUN[0])
    assert open_run("20260101").events == open_run("last").events == RUN[:1]
    with pytest.raises(JournalError, match="several runs begin"):
        open_run("2026")
    with pytest.raises(JournalError, match="20260102-000000-bbbb"):
        open_run("2027")


def test_a_run_that_began_with_a_wrong_clock_is_the_last_only_without_another(state: Path) -> None:
    state.mkdir(parents=True)
    (state / "29990101-000000-aaaa.jsonl").write_bytes(b"".join(LINES[:2]))
    assert open_run("last").events == RUN[:2]
    (state / "20260101-000000-aaaa.jsonl").write_bytes(b"".join(LINES[:1]))
    assert open_run("last").events == RUN[:1]


def test_the_last_run_is_the_newest_even_if_it_cannot_be_read(state: Path) -> None:
    journal.Journal(state / "20260101-000000-aaaa.jsonl").append(RUN[0])
    (state / "20260102-000000-bbbb.jsonl").write_text("torn")
    with pytest.raises(JournalError, match="bbbb"):
        open_run("last")


def test_a_folder_of_runs_that_cannot_be_read_is_not_called_empty(state, monkeypatch) -> None:
    locked = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr("os.scandir", Mock(side_effect=locked))
    with pytest.raises(JournalError, match="runs cannot be read: Permission denied"):
        open_run("last")


def test_without_any_run_the_message_says_so() -> None:
    with pytest.raises(JournalError, match="no run is kept yet"):
        open_run("last")


def test_a_document_of_another_schema_is_refused(tmp_path: Path) -> None:
    document = report({case("cpu-a"): steady(1.0)}).document()
    document.schema_version = 99
    (tmp_path / "new.json").write_text(dump(document))
    with pytest.raises(JournalError, match="schema version 99"):
        read_document(tmp_path / "new.json")


def test_a_run_that_cannot_be_looked_for_is_not_kept() -> None:
    assert not journal.is_kept("x" * 300)  # no file has such a name
