"""Recorded runs of other devices: find the files, and the device that a user names.

A recording is the document of a run, as `--json --output` writes it, or its journal.  Recordings
are in `assets/recordings/` and in `recordings/` of the state folder.  Unusable files there lead to
a warning.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from ..assets import path as asset
from ..contract import kind_of
from ..machine.packages.software import shorten_home
from ..planning.usage import UsageError
from ..records.document import Document, Measurement
from ..records.errors import JournalError
from ..records.events import LONGEST_S
from ..records.fleet import COLLECTED, DOCUMENT, JOBS, JOURNAL, PLAN
from ..records.machine import Machine
from ..records.reason import Warning
from ..report import journal
from ..report.run_files import decode_document, is_of_pod, read_journal
from ..text.sanitize import shown
from .whatif import devices_by_name

SHORTEST_S = 1e-10  # a shorter step cannot have been measured
RECORD = "workbench advise --all --thorough --crossover --output"


@dataclass(frozen=True)
class Recording:
    """The measurements of one run on one device."""

    name: str  # name of the device
    devices: tuple[str, ...]  # its names in the cases; several cards of one kind share a recording
    file: str  # file name
    recorded_at: str  # ISO 8601, UTC
    machine: Machine
    measurements: list[Measurement]  # valid ones only


def own_folder() -> Path:
    """The folder of the user's recordings, below XDG_STATE_HOME."""
    return journal.runs_folder().with_name("recordings")


def load(places: Sequence[Path] | None = None) -> tuple[list[Recording], list[Warning]]:
    """All recordings, newest first, and a warning on each unusable file."""
    recordings: list[Recording] = []
    warnings = []
    for folder in (own_folder(), asset("recordings")) if places is None else places:
        for file in files(folder):
            try:
                recordings += of_document(_document(file), str(file.relative_to(folder)))
            except Exception as error:  # a foreign file must not stop this run
                name, cause = file.relative_to(folder), " ".join(why(error).split())
                text = f"{name} is not a usable recording: {cause}"
                remedy = "remove it from the folder of recordings"
                warnings.append(Warning("recording_unusable", shown(text), remedy, None))
    recordings.sort(key=lambda recording: (recording.recorded_at, recording.file), reverse=True)
    return recordings, warnings


def fleets(folder: Path) -> list[Path]:
    """The folder, and the folders in it that hold a fleet."""
    return [folder, *sorted(plan.parent for plan in folder.glob(f"*/{PLAN}"))]


def files(folder: Path) -> list[Path]:
    """The documents and journals in a folder and in those of its fleets."""
    found = []
    for place in fleets(folder):
        found += loose_files(place)
        for job in sorted((place / JOBS).glob("*")):
            found += [file for file in (job / DOCUMENT, job / JOURNAL) if file.exists()][:1]
    return found


def loose_files(folder: Path) -> list[Path]:
    """The documents, journals and logs of pods directly in a folder."""
    found = sorted(file for kind in ("*.json", "*.jsonl") for file in folder.glob(kind))
    found += filter(is_of_pod, sorted(folder.glob("*.log")))
    return [file for file in found if file.name not in (PLAN, COLLECTED)]


def why(error: Exception) -> str:
    """Why a file cannot be used, in words."""
    if isinstance(error, OSError):
        return error.strerror or "it cannot be read"
    if isinstance(error, (JournalError, msgspec.MsgspecError)):
        return journal.why_unreadable(error)
    return "its parts do not fit together"


def _document(file: Path) -> Document:
    if journal.looks_like_one(file):
        return read_journal(file).report.document()
    return decode_document(file)


def of_document(document: Document, file: str) -> Iterator[Recording]:
    """One recording for each kind of device that the run measured, simulated ones excepted."""
    machine = document.machine
    if machine is None:
        return
    try:
        datetime.fromisoformat(document.run.started_at)
    except ValueError:
        text = f"run.started_at is not a time: {document.run.started_at}"
        raise JournalError(text) from None
    for name, devices in devices_by_name(machine).items():
        measured = [
            msgspec.structs.replace(m, warnings=list(map(_cleaned, m.warnings)))
            for m in document.measurements
            if m.case.device in devices and is_valid(m)
        ]
        if measured:
            at = shown(document.run.started_at)
            yield Recording(name, tuple(devices), shown(file), at, machine, measured)


def _cleaned(warning: Warning) -> Warning:
    return Warning(*(part and shown(part) for part in msgspec.structs.astuple(warning)))


def is_valid(measured: Measurement) -> bool:
    """Whether a measurement is complete, correct, consistent and from a real device."""
    counts = [block.n for block in measured.blocks]
    if measured.status != "ok" or measured.simulated or kind_of(measured.case.device).simulated:
        return False
    if measured.accuracy is None or not measured.accuracy.passed:
        return False
    if not counts or min(counts) < 1 or sum(counts) != len(measured.samples_s):
        return False
    if not SHORTEST_S <= min(measured.samples_s) <= max(measured.samples_s) <= LONGEST_S:
        return False
    once = msgspec.structs.astuple(measured.setup)
    if not all(part is None or 0 <= part <= LONGEST_S for part in once):
        return False
    return measured.id == measured.case.id


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.casefold())


def named(asked: str, recordings: Sequence[Recording], unusable: Sequence[Warning] = ()) -> str:
    """The name of the one device with all words of `asked`, or with exactly these words.

    UsageError lists the recorded devices and the command that makes a recording.
    """
    names = list(dict.fromkeys(recording.name for recording in recordings))
    wanted = words(asked)
    fitting = [name for name in names if wanted and set(wanted) <= set(words(name))]
    exact = [name for name in fitting if sorted(words(name)) == sorted(wanted)]
    if len(fitting) == 1 or len(exact) == 1:
        return (exact or fitting)[0]
    if fitting:
        listed = "; ".join(fitting)
        raise UsageError(f"--what-if {asked!r} fits several devices: {listed}. Add a word")
    others = f" ({len(unusable)} unusable: {unusable[0].message})" if unusable else ""
    text = f"--what-if {asked!r}: no recording. Recorded: {'; '.join(names) or 'none'}{others}"
    how = f"run `{RECORD} {file_name(asked)}` on that machine and copy the file to"
    raise UsageError(f"{text}. To make one, {how} {shorten_home(own_folder())}")


def file_name(asked: str) -> str:
    """`h200.json`."""
    return f"{'-'.join(words(asked)) or 'device'}.json"
