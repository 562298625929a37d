"""The history of runs: an index that can be rebuilt from the journals at any time.

It is one file, read and replaced as a whole, so that processes never wait for each other and a
killed one leaves the old index.  The digest at its end shows damage.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
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
from .names import candidate_name, machine_name
from .report import Report

OF_INTEREST = ("RunStarted", "HardwareDetected", "RacePlanned", "VerdictReached", "RunFinished")
INDEX = "history-4.msgpack"  # increase the number when `Index` or `RunSummary` changes
LARGEST_BYTES, DIGEST_BYTES = 64 << 20, 64

Index = dict[bytes, tuple[str, RunSummary]]  # each journal's name, stamp and summary


def refreshed() -> list[tuple[Path, RunSummary]]:
    """All journals as they are now, newest first; only new and changed ones are read."""
    found, folder, index = _stamps(), journal.runs_folder(), Index()
    path = folder.with_name(INDEX)
    try:
        index = _kept(path)
        if _update(index, found):
            content = msgspec.msgpack.encode(index)
            write.replace(path, content + blake2b(content).digest(), mode=0o600)  # like journals
    except OSError as error:
        say(f"workbench: the index of runs cannot be kept: {error.strerror}")
        _update(index, found)
    names = sorted(index, reverse=True)
    return [(folder / os.fsdecode(name), index[name][1]) for name in names]


def matching(
    runs: Iterable[tuple[Path, RunSummary]], *,
    status: str | None = None, since_s: float | None = None, before_s: float | None = None,
) -> Iterator[tuple[Path, RunSummary]]:  # fmt: skip
    """The runs with this status and within the bounds."""
    kept = "incomplete" if status == "running" else status  # what the index calls a running one
    for path, run in runs:
        if kept not in (None, run.status) or not _is_between(run, since_s, before_s):
            continue
        if run.status == "incomplete" and is_being_written(path):
            run = msgspec.structs.replace(run, status="running")
        if status in (None, run.status):
            yield path, run


def _is_between(run: RunSummary, since_s: float | None, before_s: float | None) -> bool:
    """Whether the run began between the bounds; False if its start is unknown."""
    if run.started_at is None:
        return since_s is None and before_s is None
    began_s = datetime.fromisoformat(run.started_at).timestamp()
    return (since_s is None or since_s <= began_s) and (before_s is None or began_s < before_s)


def is_being_written(path: Path) -> bool:
    """Whether a run holds this journal open."""
    try:
        with read.opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def delete(path: Path) -> None:
    """Delete a journal; OSError if a run holds it open, or may hold it open."""
    with read.opened(path) as file:
        # Not LOCK_EX, which NFS grants to files open for writing only (flock(2)).
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        path.unlink()


def _stamps() -> dict[bytes, str]:
    """Each journal with a stamp that changes when it grows."""
    found = dict[bytes, str]()
    for entry in journal.entries():
        with suppress(OSError):  # deleted meanwhile, or a broken link
            of = entry.stat()
            found[entry.name] = f"{of.st_size},{of.st_ctime_ns}"
    return found


def _kept(path: Path) -> Index:
    """The index on disk; an empty one if there is none, or if it is damaged."""
    if not path.exists():
        return {}
    content = read.whole(path, LARGEST_BYTES)
    encoded, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    is_whole = digest == blake2b(encoded).digest()
    return msgspec.msgpack.decode(encoded, type=Index) if is_whole else {}


def _update(index: Index, found: Mapping[bytes, str]) -> bool:
    """Update the index to `found`; returns whether anything changed."""
    gone = index.keys() - found.keys()
    new = {name: stamp for name, stamp in found.items() if index.get(name, ("",))[0] != stamp}
    for name in gone:
        del index[name]
    for name, stamp in new.items():
        index[name] = stamp, summary_of(journal.runs_folder() / os.fsdecode(name))
    return bool(gone or new)


def summary_of(path: Path) -> RunSummary:
    """The summary of a journal, without reading its blocks; of any other file, why it is none."""
    try:
        report = Report.of(journal.read(path, OF_INTEREST))
        started, finished = report.started, report.finished
        assert started is not None  # a journal begins with it
        datetime.fromisoformat(started.started_at).astimezone(UTC)  # raises what it cannot convert
    except (JournalError, LookupError, ValueError, OverflowError) as error:
        problem = str(error).removeprefix(str(path)).strip(", ")
        return RunSummary(shown(path.stem), "unreadable", reason=shown(problem))
    answers = {row.plan.scenario: "" for row in report.asked_rows}
    verdicts = report.verdicts
    for found in verdicts:
        is_pick = found.pick is not None and found.choice != "either"
        answers[found.scenario] = candidate_name(found.pick or "") if is_pick else found.choice
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
