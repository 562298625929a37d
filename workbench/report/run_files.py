"""Opens a run from disk: a JSON document, a journal, the id of an earlier run, or `last`."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..files.read import whole
from ..records import events as ev
from ..records.document import Document, Tool
from ..records.errors import JournalError
from ..text.sanitize import printable_json, shown
from . import journal
from .plausible import absurdity
from .report import Report

MOST_BYTES = 64 << 20  # size of a document
# Marks around the document in the log of a Kubernetes pod (assets/fleet/job.json).
MARK, BEGIN = b"-----BEGIN WORKBENCH", b"-----BEGIN WORKBENCH DOCUMENT-----"
END = b"-----END WORKBENCH DOCUMENT-----"


@dataclass(frozen=True)
class OpenedRun:
    """A run read from disk."""

    report: Report
    events: list[ev.AnyEvent]  # the journal's; empty for a document, which keeps none


def open_run(name: str) -> OpenedRun:
    """The run in a file, or in the journal of a run id, the beginning of one, or `last`;
    JournalError lists the latest ids if nothing matches."""
    path = Path(name)
    if os.path.isfile(path):  # noqa: PTH113 - no error for a name that is too long
        if journal.looks_like_one(path):
            return read_journal(path)
        return OpenedRun(read_document(path), [])
    ids = journal.run_ids()
    if name == "last" and not ids:
        raise JournalError("no run is kept yet: `workbench` starts one")
    matches = [each for each in ids if each.startswith(name)]
    if name == "last":  # a run from the future began when the clock was wrong
        now = journal.new_run_id()[: len("20261121-153012")]
        matches = [next((each for each in ids if each[: len(now)] <= now), ids[0])]
    if len(matches) == 1:
        return read_journal(journal.path_of(matches[0]))
    latest = ", ".join(matches[:5] or ids[:5]) or "none yet"
    is_other = os.path.exists(path)  # noqa: PTH110 - as above
    missing = "neither a regular file nor a run:" if is_other else "no such file or run:"
    problem = "several runs begin with" if matches else missing
    which = "Matching" if matches else "Recent"
    raise JournalError(f"{problem} {shown(repr(name))}. {which} runs: {latest}")


def read_journal(path: Path) -> OpenedRun:
    """The run in a journal; JournalError says what is wrong with it."""
    events = journal.read(path)
    flaw: str | None = None
    for event in events:
        if isinstance(event, ev.RacePlanned) and event.point:
            sizes = [{"batch", *case.params} for case in event.cases]
            if not sizes or not all(sizes_of >= event.point.keys() for sizes_of in sizes):
                flaw = f"{event.scenario} is at a point of sizes that its cases do not have"
                break
    try:
        report = Report() if flaw else Report.of(events)
        largest = (found.case for found in report.largest_batches)
        for case in (*report.explained, *largest):
            _ = report.candidates[case]
    except LookupError:
        flaw = "an event names a candidate or a row that was never announced"
    if flaw is not None:
        raise JournalError(f"{path} is not the journal of a run: {shown(flaw)}")
    return OpenedRun(report, events)


def read_document(path: Path) -> Report:
    """The report of a JSON document; JournalError says what is wrong with it."""
    from .from_document import contradictions, report_of  # journals do without it

    document = decode_document(path)
    measured = [m for m in document.measurements if m.n]
    if measured and not any(m.samples_s for m in measured):
        text = f"{path} holds no samples (--no-samples), so it cannot be shown"
        remedy = f"open the journal, `workbench open {shown(document.run.id)}`"
        raise JournalError(f"{text}: {remedy}")
    for flaw in contradictions(document):
        raise _no_document(path, flaw)
    return report_of(document)


def _no_document(path: Path, flaw: str) -> JournalError:
    # A flaw may quote any text of the file.
    return JournalError(f"{path} is not a workbench document: {shown(flaw)}")


class _Head(msgspec.Struct):
    schema_version: int
    run: msgspec.Raw = msgspec.Raw()
    tool: Tool | None = None


def document_text(path: Path) -> bytes | str:
    """The JSON in a file, or between the marks if it is the log of a pod."""
    content = whole(path, MOST_BYTES)
    _, begun, rest = content.partition(BEGIN)
    return printable_json(rest.partition(END)[0] if begun else content)


def is_of_pod(path: Path) -> bool:
    """Whether a file is the log of a pod, perhaps an incomplete one."""
    with suppress(OSError):
        return MARK in whole(path, MOST_BYTES)
    return False


def decode_document(path: Path) -> Document:
    """The document in a file; JournalError if it is none of this schema."""
    try:
        text = document_text(path)
        head = msgspec.json.decode(text, type=_Head)
        journal.check_schema(path, head.schema_version)
        if head.tool is not None and not head.run:
            printed = shown(f"`workbench {head.tool.command}`")
            raise JournalError(f"{path} holds what {printed} printed, not a run")
        document = msgspec.json.decode(text, type=Document)
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from error
    except journal.UNREADABLE as error:
        raise _no_document(path, journal.why_unreadable(error)) from error
    if absurd := absurdity(document):
        raise _no_document(path, absurd)
    return document
