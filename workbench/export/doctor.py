"""The output of `workbench doctor`."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..records.inspection import FAIL, OK, WARN, Check, DoctorReport
from ..records.machine import Links
from ..text import units
from .view.section import Section, section_text
from .view.spans import Fact, fact
from .view.table import UNLIMITED, Column

_FOUND = (
    Column("found", "Found", minimum=12, maximum=UNLIMITED),
    Column("note", "", minimum=20, maximum=UNLIMITED),
)
_WORDS = {OK: "ok", WARN: "WARN", FAIL: "FAIL", None: "-"}


def doctor_text(found: DoctorReport, width: int | None = None) -> str:
    """The stack, the checks with their remedies, and a summary; `width` as for `section_text`."""
    names = {gpu.index: gpu.device for gpu in found.machine.gpus}
    stack = [
        ("  " * level.depth + level.name, _WORDS[level.status], level.found, level.note)
        for level in found.stack
    ]
    parts = [
        Section.of("The stack", (), ("", Column("status", ""), *_FOUND), stack),
        Section("Checks", facts=[fact for check in found.checks for fact in _check(check)]),
        *([_links(found.links, names)] if found.links is not None else []),
    ]
    return f"{section_text(parts, width)}\n\n{_summary(found.checks)}"


def _check(check: Check) -> list[Fact]:
    """A check, with the remedy below it unless it passed."""
    found = fact(f"{_WORDS[check.status]:4}  {check.name}", check.message)
    return [found, *([fact(" ", f"-> {check.remedy}")] if check.remedy is not None else [])]


def _links(links: Links, names: Mapping[int | None, str | None]) -> Section:
    """The connections between the GPUs, in the words of `nvidia-smi topo`."""
    notes = [f"not known: {links.reason.message}"] if links.reason is not None else []
    titles = [names.get(number) or f"GPU {number}" for number in range(len(links.matrix))]
    rows = [(title, *row) for title, row in zip(titles, links.matrix, strict=True)]
    columns = [Column(title, title) for title in titles]  # none leaves a narrow table
    return Section.of("How the GPUs are linked", notes, ("", *columns), rows)


def _summary(checks: Sequence[Check]) -> str:
    counts = Counter(check.status for check in checks)
    failed, warned = counts[FAIL], counts[WARN]
    parts = [f"{failed} failed"] if failed else []
    parts += [units.counted(warned, "warning")] if warned else []
    return f"{', '.join(parts)}." if parts else "Everything is in order."
