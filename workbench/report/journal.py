"""Journals: the events of a run on disk, in `<state folder>/runs/<id>.jsonl`, one per line.

An event is appended before any front end receives it, so a crash loses no measurement.
"""

import fcntl
import gc
import os
from array import array
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import platformdirs

from ..files.read import lines
from ..records import events as ev
from ..records.document import SCHEMA_VERSION
from ..records.errors import JournalError
from ..records.reason import Warning
from ..text.sanitize import printable_json, shown
from .plausible import absurdity

MOST_BYTES = 256 << 20  # in a journal; a long run writes a few MiB
LONGEST_LINE = 16 << 20
NO_METRICS: dict[str, float] = {}  # shared by all blocks without metrics, to save memory
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def runs_folder() -> Path:
    """The folder of all journals, below XDG_STATE_HOME."""
    return platformdirs.user_state_path("workbench", appauthor=False) / "runs"


def path_of(run_id: str) -> Path:
    """The journal of a run, which need not exist."""
    return runs_folder() / f"{run_id}.jsonl"


def can_be_written(folder: Path) -> bool:
    """Whether files can be written into a folder, which need not exist yet."""
    there = next(place for place in (folder, *folder.parents) if os.access(place, os.F_OK))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def new_run_id() -> str:
    """A sortable id, `20261121-153012-4f3a`."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def is_kept(run_id: str) -> bool:
    """Whether the run has a journal that `workbench open` finds."""
    return os.path.isfile(path_of(run_id))  # noqa: PTH113 - no error if locked


def no_journal(outcome: str, path: object, error: OSError) -> Warning:
    """The warning on a run whose journal is missing or incomplete."""
    remedy = "set XDG_STATE_HOME to a writable folder on a disk with free space"
    return Warning("no_journal", f"this run {outcome}: {path}: {error.strerror}", remedy)


class Journal:
    """The journal of one run, open for appending."""

    def __init__(self, path: Path) -> None:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        with suppress(OSError):  # held until this process ends, so that others see it being written
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def append(self, event: ev.AnyEvent) -> None:
        """Append one line, in one write call if possible, so that a kill leaves whole lines.

        There is no sync, which would disturb measurements, so a crash of the machine may lose
        events.  OSError on a full disk: the last line is then incomplete, and none may follow.
        """
        line = ev.encode(event) + b"\n"
        while line:  # a full disk takes a part, and the next call reports the error
            line = line[os.write(self._fd, line) :]

    def close(self) -> None:
        with suppress(OSError):  # a network disk may report only here that it is full
            os.close(self._fd)

    def discard(self) -> None:
        """Close and remove the file of a run that never began."""
        self.close()
        self.path.unlink(missing_ok=True)


def read(path: Path, only: Collection[str] = ()) -> list[ev.AnyEvent]:
    """The events of a journal, without a last line that is incomplete.

    They end before any other line that is no event, with a warning that names it.  Events not in
    `only` are skipped, if they are JSON.
    """
    beginnings = tuple(f'{{"event":"{name}"'.encode() for name in only)
    events: list[ev.AnyEvent] = []
    names: dict[str, str] = {}
    gc.disable()  # a long journal makes millions of objects, none of them garbage
    try:
        for number, line in enumerate(lines(path, MOST_BYTES, LONGEST_LINE), start=1):
            if line.isspace():
                continue
            try:
                if only and not line.startswith(beginnings):
                    msgspec.json.decode(line, type=msgspec.Raw)
                    continue
                event = ev.decode(printable_json(line))
                if absurd := absurdity(event):
                    raise msgspec.ValidationError(absurd)
            except UNREADABLE as error:
                if line.endswith(b"\n") and events:  # else its writer died, or it is no journal
                    problem = f"line {number} of the journal is damaged: {why_unreadable(error)}"
                    flaw = Warning("damaged_journal", shown(problem), "the run is shown up to it")
                    events.append(ev.WarningRaised(at_s=events[-1].at_s, warning=flaw))
                break
            if isinstance(event, ev.BlockMeasured):
                event = _packed(event, names)
            events.append(event)
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from error
    finally:
        gc.enable()
    if not events or not isinstance(events[0], ev.RunStarted):
        raise JournalError(f"{path} is not the journal of a run: it does not begin with RunStarted")
    check_schema(path, events[0].schema_version)
    return events


def _packed(block: ev.BlockMeasured, names: dict[str, str]) -> ev.BlockMeasured:
    """The block in a third of the memory: samples in an array, and shared names."""
    return msgspec.structs.replace(
        block,
        case=names.setdefault(block.case, block.case),
        scenario=names.setdefault(block.scenario, block.scenario),
        samples_s=array("d", block.samples_s),
        lead_in_s=tuple(block.lead_in_s),
        metrics=block.metrics or NO_METRICS,
    )


def why_unreadable(error: Exception) -> str:
    """Why JSON could not be decoded, in words."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return str(error).replace("Input data was truncated", "it is empty or ends too early")


def looks_like_one(path: Path) -> bool:
    """Whether a file is a journal rather than a document, by its name or first line."""
    if path.suffix == ".jsonl":
        return True
    try:
        ev.decode(next(lines(path, MOST_BYTES, LONGEST_LINE), b""))
    except (OSError, *UNREADABLE):
        return False
    return True


def check_schema(path: Path, version: int) -> None:
    """Raise JournalError if `path` has another schema version than this program reads."""
    if version != SCHEMA_VERSION:
        text = f"{path} has schema version {version}, this program reads {SCHEMA_VERSION}"
        raise JournalError(f"{text}: open it with the version of workbench that wrote it")


def entries() -> list[os.DirEntry[bytes]]:
    """The files of all journals on this machine; JournalError if they cannot be listed."""
    folder = runs_folder()
    try:
        found = os.scandir(os.fsencode(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise JournalError(f"{folder} cannot be read: {error.strerror}") from error
    return [entry for entry in found if entry.name.endswith(b".jsonl")]


def run_ids() -> list[str]:
    """The ids of these journals, newest first."""
    return sorted((os.fsdecode(entry.name)[: -len(".jsonl")] for entry in entries()), reverse=True)
