"""Recorded runs of devices that are not here: where they lie, and which of them is meant.

A recording is the document of a run, as `--json --output` writes it, or a run's journal.  They lie
in `assets/recordings/` and in `recordings/` of the state folder; what does not belong there is told
and left out.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from ..assets import path as asset
from ..contract import kind_of
from ..planning.usage import UsageError
from ..records.document import Document, Measurement
from ..records.machine import Machine
from ..records.reason import Warning
from ..report import journal
from ..report.from_document import LONGEST_S
from ..report.report import Report
from ..report.run_files import decode_document
from ..text.toml_file import shown as clean  # what another machine wrote reaches the terminal
from .whatif import devices_by_name

MOST_BYTES = 64 << 20
SHORTEST_S = 1e-10  # of a step: below it, as beyond LONGEST_S, is no measurement
RECORD = "workbench advise --all --thorough --crossover --output"


@dataclass(frozen=True)
class Recording:
    """What one run measured on one device."""

    name: str  # of the device
    devices: tuple[str, ...]  # its names in the cases: several cards of a kind may be one
    file: str
    recorded_at: str  # ISO 8601, UTC
    machine: Machine
    measurements: list[Measurement]  # valid ones only


def own_folder() -> Path:
    """Where a user's recordings lie; XDG_STATE_HOME moves it."""
    return journal.runs_folder().with_name("recordings")


def folders() -> list[Path]:
    """The user's own, then those that come with the program, where there are any."""
    found = [own_folder()]
    with suppress(FileNotFoundError):
        found.append(asset("recordings"))
    return [folder for folder in found if folder.is_dir()]


def load(places: Sequence[Path] | None = None) -> tuple[list[Recording], list[Warning]]:
    """Every recording, newest first, and a warning for each file that is none."""
    found: list[Recording] = []
    warnings = []
    for folder in folders() if places is None else places:
        files = sorted(file for kind in ("*.json", "*.jsonl") for file in folder.glob(kind))
        for file in files:
            try:
                found += of_document(_document(file), file.name)
            except Exception as error:  # whatever somebody put there, this run goes on without it
                told = _reason(error)
                text = f"{file.name} is no recording that can be used: {' '.join(told.split())}"
                warnings.append(
                    Warning("recording_unusable", clean(text), "take it out of the folder", None)
                )
    found.sort(key=lambda recording: (recording.recorded_at, recording.file), reverse=True)
    return found, warnings


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or "it cannot be read"
    if isinstance(error, (journal.JournalError, msgspec.MsgspecError)):
        return str(error)
    return "its parts do not fit together"


def _document(file: Path) -> Document:
    # Looked at first: to open a pipe that nobody writes to would wait for ever.
    status = os.stat(file)  # noqa: PTH116 - one look for both questions
    if not stat.S_ISREG(status.st_mode):
        raise journal.JournalError("it is not a regular file")
    if status.st_size > MOST_BYTES:
        raise journal.JournalError(f"it has more than {MOST_BYTES >> 20} MiB")
    if journal.looks_like_one(file):
        return Report.of(journal.read(file)).document()
    return decode_document(file)


def of_document(document: Document, file: str) -> Iterator[Recording]:
    """One for each kind of device that the run measured; simulated ones are none."""
    machine = document.machine
    if machine is None:
        return
    try:
        datetime.fromisoformat(document.run.started_at)
    except ValueError:
        told = f"run.started_at is no time: {document.run.started_at}"
        raise journal.JournalError(told) from None
    for name, devices in devices_by_name(machine).items():
        measured = [
            msgspec.structs.replace(m, warnings=[_cleaned(w) for w in m.warnings])
            for m in document.measurements
            if m.case.device in devices and is_valid(m)
        ]
        if measured:
            at = clean(document.run.started_at)
            yield Recording(name, tuple(devices), clean(file), at, machine, measured)


def _cleaned(warning: Warning) -> Warning:
    subject = warning.subject and clean(warning.subject)
    return Warning(clean(warning.code), clean(warning.message), clean(warning.remedy), subject)


def is_valid(measured: Measurement) -> bool:
    """Whether it was measured to its end on a real device, came out right, and its samples are
    what they say they are."""
    counts = [block.n for block in measured.blocks]
    if measured.status != "ok" or measured.simulated or kind_of(measured.case.device).simulated:
        return False
    if measured.accuracy is None or not measured.accuracy.passed:
        return False
    if not counts or min(counts) < 1 or sum(counts) != len(measured.samples_s):
        return False
    if not all(SHORTEST_S <= sample <= LONGEST_S for sample in measured.samples_s):
        return False
    once = msgspec.structs.astuple(measured.setup)
    if not all(part is None or 0 <= part <= LONGEST_S for part in once):
        return False
    return measured.id == measured.case.id


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.casefold())


def named(asked: str, recordings: Sequence[Recording], unusable: Sequence[Warning] = ()) -> str:
    """The name of the one device that has all words of `asked`, or these words and no others.

    Raises UsageError with what there is and how a recording is made.
    """
    names = list(dict.fromkeys(recording.name for recording in recordings))
    wanted = words(asked)
    fitting = [name for name in names if wanted and set(wanted) <= set(words(name))]
    exact = [name for name in fitting if sorted(words(name)) == sorted(wanted)]
    if len(fitting) == 1 or len(exact) == 1:
        return (exact or fitting)[0]
    if fitting:
        listed = "; ".join(fitting)
        raise UsageError(f"--what-if {asked!r} fits several devices: {listed}. Say more of a name")
    listed = "; ".join(names) or "none"
    others = f" ({len(unusable)} unusable: {unusable[0].message})" if unusable else ""
    raise UsageError(
        f"--what-if {asked!r}: there is no recording of it. Recorded: {listed}{others}. "
        f"To make one: on that machine `{RECORD} {file_name(asked)}`, "
        f"then copy the file into {shown(own_folder())}"
    )


def file_name(asked: str) -> str:
    """`h200.json`."""
    return f"{'-'.join(words(asked)) or 'device'}.json"


def shown(folder: Path) -> str:
    """A folder as it may stand in a document: `~` for the user's home."""
    home = Path.home()
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)
