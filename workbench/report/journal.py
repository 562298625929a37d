"""Runs on disk: every event is appended before anyone sees it.

A journal is `<state folder>/runs/<id>.jsonl`, one event a line.  Whatever dies, what was
measured is there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import platformdirs

from ..records import events as ev
from ..records.document import SCHEMA_VERSION
from ..records.reason import Warning
from ..text.sanitize import printable_json


class JournalError(Exception):
    """A run cannot be read; the message says why and what to do."""


def runs_folder() -> Path:
    """Where journals live; XDG_STATE_HOME moves it."""
    return platformdirs.user_state_path("workbench", appauthor=False) / "runs"


def new_run_id() -> str:
    """A sortable id, `20261121-153012-4f3a`."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def is_kept(run_id: str) -> bool:
    """Whether `workbench open` finds the run."""
    return (runs_folder() / f"{run_id}.jsonl").is_file()


def no_journal(outcome: str, path: object, error: OSError) -> Warning:
    """The warning of a run that is not kept, or not wholly."""
    remedy = "point XDG_STATE_HOME at a folder you may write to, with space on its disk"
    return Warning("no_journal", f"this run {outcome}: {path}: {error.strerror}", remedy)


class Journal:
    """The file of one run, open for appending."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, event: ev.AnyEvent) -> None:
        """One write call a line, so that a kill leaves whole lines; survives our death, not the
        machine's: a sync per event would be heard in the measurements.

        OSError where the disk is full; the line is then torn, and nothing may follow it.
        """
        line = ev.encode(event) + b"\n"
        while line:  # a disk takes what still fits on it, and says only at the next call why
            line = line[os.write(self._fd, line) :]

    def close(self) -> None:
        with suppress(OSError):  # a network disk may tell only now that it is full
            os.close(self._fd)

    def discard(self) -> None:
        """Close and remove: the run never began."""
        self.close()
        self.path.unlink(missing_ok=True)


def read(path: Path) -> list[ev.AnyEvent]:
    """The events of a journal; a last line that was cut off is left out.

    Raises JournalError, naming the line, for anything else that is not an event.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from error
    found: list[ev.AnyEvent | _CaseDropped] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(_decode(printable_json(line)))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if number == len(lines):  # no newline follows: the writer died here
                break
            raise JournalError(f"{path}, line {number}, is not an event: {error}") from error
    if not found or not isinstance(found[0], ev.RunStarted):
        raise JournalError(f"{path} is not the journal of a run: it does not begin with RunStarted")
    check_schema(path, found[0].schema_version)
    return list(_upgraded(found))


class _CaseDropped(ev.Event, frozen=True, kw_only=True, tag="CaseDropped"):
    """Version 0.1.0 wrote this before the `CaseFinished` of an eliminated candidate."""

    case: str
    scenario: str
    beaten_by: str | None
    ratio: float | None
    ratio_bounds: tuple[float, float] | None


_decode = msgspec.json.Decoder(ev.AnyEvent | _CaseDropped).decode


def _upgraded(events: Iterable[ev.AnyEvent | _CaseDropped]) -> Iterator[ev.AnyEvent]:
    """Events as this version writes them."""
    dropped: dict[tuple[str, str], _CaseDropped] = {}
    for event in events:
        if isinstance(event, _CaseDropped):
            dropped[event.scenario, event.case] = event
            continue
        if isinstance(event, ev.CaseFinished):
            old = dropped.pop((event.scenario, event.case), None)
            if old is not None:
                event = msgspec.structs.replace(
                    event, beaten_by=old.beaten_by, ratio=old.ratio, ratio_bounds=old.ratio_bounds
                )
        yield event


def looks_like_one(path: Path) -> bool:
    """Whether a file is a journal rather than a document: by its name, else its first line."""
    if path.suffix == ".jsonl":
        return True
    try:
        with path.open("rb") as file:
            ev.decode(file.readline())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def check_schema(path: Path, version: int) -> None:
    """Raise JournalError if `path` was written to another schema than this program reads."""
    if version != SCHEMA_VERSION:
        raise JournalError(
            f"{path} has schema version {version}, this program reads {SCHEMA_VERSION}: "
            "open it with the version of workbench that wrote it"
        )


def run_ids() -> Iterator[str]:
    """The ids of the runs on this machine, newest first."""
    folder = runs_folder()
    if folder.is_dir():
        yield from sorted((file.stem for file in folder.glob("*.jsonl")), reverse=True)
