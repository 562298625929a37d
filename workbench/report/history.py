"""The history of runs: SQLite as an index over the journals, which stay the truth.

The index is one file, read and replaced as a whole: two workbenches never wait for each other, and
a killed one leaves the old index.  The digest at its end shows damage.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from pathlib import Path

import msgspec

from ..contract import kind_of
from ..files import read, write
from ..records.comparison import RunSummary
from ..records.errors import JournalError
from ..text.output import say
from ..text.sanitize import shown
from . import journal
from .candidate import candidate_name
from .names import machine_name
from .report import Report

OF_INTEREST = ("RunStarted", "HardwareDetected", "RacePlanned", "VerdictReached", "RunFinished")
INDEX = "history-3.sqlite"  # another number for another TABLE or `RunSummary`
TABLE = """CREATE TABLE IF NOT EXISTS run (name BLOB PRIMARY KEY, stamp TEXT, started_s REAL,
    status TEXT, words TEXT, summary BLOB) WITHOUT ROWID"""
LARGEST_BYTES, DIGEST_BYTES = 1 << 30, 64
IS_KEPT = hasattr(sqlite3.Connection, "serialize")  # some builds of SQLite leave it out


def refreshed() -> sqlite3.Connection:
    """The index of all runs as they are now, in memory; only new and changed journals are read."""
    # Screens refresh in a thread and ask from another one, never both at once.
    found, index = _stamps(), sqlite3.connect(":memory:", check_same_thread=False)
    path = journal.runs_folder().with_name(INDEX)
    try:
        if IS_KEPT and (kept := _image(path)):
            index.deserialize(kept)
        if _update(index, found) and IS_KEPT:
            image = index.serialize()
            write.replace(path, image + blake2b(image).digest(), mode=0o600)  # as the journals
    except OSError as error:
        say(f"workbench: the index of runs cannot be kept: {error.strerror}")
        _update(index, found)
    return index


def matching(
    index: sqlite3.Connection, words: Sequence[str] = (), *, status: str | None = None,
    since_s: float | None = None, before_s: float | None = None,
) -> Iterator[tuple[Path, RunSummary]]:  # fmt: skip
    """The journals of runs that match all `words` and bounds, newest first."""
    kept = "incomplete" if status == "running" else status  # until its journal is at rest
    bounds = {"status = ?": kept, "started_s >= ?": since_s, "started_s < ?": before_s}
    given = {condition: value for condition, value in bounds.items() if value is not None}
    where = " AND ".join([*given, *["instr(words, ?)"] * len(words)]) or "1"
    query = f"SELECT name, summary FROM run WHERE {where} ORDER BY name DESC"  # noqa: S608
    for name, encoded in index.execute(query, [*given.values(), *words]):
        path = journal.runs_folder() / os.fsdecode(name)
        summary = msgspec.json.decode(encoded, type=RunSummary)
        if summary.status == "incomplete" and is_being_written(path):
            summary = msgspec.structs.replace(summary, status="running")
        if status in (None, summary.status):
            yield path, summary


def count(index: sqlite3.Connection) -> int:
    """The number of runs."""
    (found,) = index.execute("SELECT count(*) FROM run").fetchone()
    return int(found)


def is_being_written(path: Path) -> bool:
    """Whether a run holds this journal open."""
    try:
        with read.opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def delete(path: Path) -> None:
    """Delete a journal; OSError if a run holds it open, or if that cannot be found out."""
    with read.opened(path) as file:
        # Not LOCK_EX, which NFS grants to files open for writing only (flock(2)).
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        path.unlink()


def _stamps() -> dict[bytes, str]:
    """Each journal with what changes when it grows; the folder's own time does not."""
    found, folder = dict[bytes, str](), journal.runs_folder()
    try:
        for entry in os.scandir(os.fsencode(folder)) if folder.exists() else ():
            if entry.name.endswith(b".jsonl"):
                try:
                    of = entry.stat()
                except OSError:  # deleted meanwhile, or a link that leads nowhere
                    continue
                found[entry.name] = f"{of.st_size},{of.st_ctime_ns}"
    except OSError as error:
        raise JournalError(f"{folder} cannot be read: {error.strerror}") from error
    return found


def _image(path: Path) -> bytes:
    """The database as it was kept, b"" if there is none; a damaged file is moved aside."""
    if not path.exists():
        return b""
    content = b"" if path.is_dir() else read.whole(path, LARGEST_BYTES)
    image, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if digest == blake2b(image).digest():
        return image
    aside = path.with_name(f"{path.name}.damaged-{journal.new_run_id()}")
    path.rename(aside)
    say(f"workbench: the index of runs was damaged; it is kept as {aside.name}")
    return b""


def _update(index: sqlite3.Connection, found: Mapping[bytes, str]) -> bool:
    """Bring the index up to `found`; returns whether anything was new."""
    index.execute(TABLE)
    known: dict[bytes, str] = dict(index.execute("SELECT name, stamp FROM run"))
    gone = [(name,) for name in known.keys() - found.keys()]
    new = [(name, stamp) for name, stamp in found.items() if known.get(name) != stamp]
    with index:
        index.executemany("DELETE FROM run WHERE name = ?", gone)
        rows = [(*each, *_columns(each[0])) for each in new]
        index.executemany("REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?)", rows)
    return bool(gone or new)


def _columns(name: bytes) -> tuple[float | None, str, str, bytes]:
    found = summary_of(journal.runs_folder() / os.fsdecode(name))
    started_s = datetime.fromisoformat(found.started_at).timestamp() if found.started_at else None
    words = "\n".join([found.command, *found.answers, found.machine or ""])
    return started_s, found.status, words.casefold(), msgspec.json.encode(found)


def summary_of(path: Path) -> RunSummary:
    """The summary of a journal, without reading its blocks; of anything else, why it is none."""
    try:
        report = Report.of(journal.read(path, OF_INTEREST))
        started, finished = report.started, report.finished
        assert started is not None  # a journal begins with it
        datetime.fromisoformat(started.started_at).astimezone()  # raises what it cannot convert
    except (JournalError, LookupError, ValueError, OverflowError) as error:
        problem = str(error).removeprefix(str(path)).strip(", ")
        return RunSummary(shown(path.stem), "unreadable", reason=shown(problem))
    answers = {row.plan.scenario: "" for row in report.asked_rows}
    verdicts = report.verdicts
    for found in verdicts:
        clear = found.pick is not None and not found.tie
        answers[found.scenario] = candidate_name(found.pick or "") if clear else found.choice
    return RunSummary(
        id=shown(path.stem),
        status=shown(report.status),
        started_at=started.started_at,
        duration_s=finished.duration_s if finished else None,
        command=shown(started.tool.command, 1000),
        simulated=any(kind_of(each.case.device).simulated for each in report.candidates.values()),
        answers={shown(row): shown(answer) for row, answer in answers.items()},
        machine=shown(machine_name(report.machine)) if report.machine else None,
        confidences={shown(each.scenario): shown(each.confidence) for each in verdicts},
    )
