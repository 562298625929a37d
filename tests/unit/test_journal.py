"""Journals survive a torn end, and say which line is broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import case, events, steady

from workbench import events as ev
from workbench import journal
from workbench.replay import open_run, read_document

RUN = events({case("cpu-a"): steady(1.0)})
LINES = [ev.encode(event) + b"\n" for event in RUN]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return journal.runs_folder()


def test_what_is_appended_is_read_again(state: Path) -> None:
    written = journal.Journal(state / "a.jsonl")
    for event in RUN:
        written.append(event)
    written.close()
    assert journal.read(written.path) == RUN
    assert written.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kept", [1, 5, 40])
def test_a_torn_last_line_is_left_out(tmp_path: Path, kept: int) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b"".join(LINES[:-1]) + LINES[-1][:kept])
    assert journal.read(torn) == RUN[:-1]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(LINES[0] + b'{"event": "NoSuchThing"}\n' + LINES[1])
    with pytest.raises(journal.JournalError, match="line 2"):
        journal.read(broken)


def test_runs_are_found_by_id_by_its_beginning_and_as_the_last(state: Path) -> None:
    for run_id in ("20260101-000000-aaaa", "20260102-000000-bbbb"):
        journal.Journal(state / f"{run_id}.jsonl").append(RUN[0])
    assert open_run("20260101") == open_run("last") == RUN[:1]
    with pytest.raises(journal.JournalError, match="beginning of several"):
        open_run("2026")
    with pytest.raises(journal.JournalError, match="20260102-000000-bbbb"):
        open_run("2027")


def test_without_any_run_the_message_says_so() -> None:
    with pytest.raises(journal.JournalError, match="none yet"):
        open_run("last")


def test_a_document_of_another_schema_is_refused(tmp_path: Path) -> None:
    from builders import report

    from workbench.export.json import dump

    document = report({case("cpu-a"): steady(1.0)}).document()
    document.schema_version = 99
    (tmp_path / "new.json").write_text(dump(document))
    with pytest.raises(journal.JournalError, match="schema version 99"):
        read_document(tmp_path / "new.json")
