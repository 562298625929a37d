"""The output of `workbench doctor`."""

from __future__ import annotations

from ..advisor.doctor import FAIL, OK, WARN, Check, Examination, Level
from ..machine.nvidia.nvml import Links
from .view.facts import PROSE, fact, facts_lines, label_width
from .view.spans import Text, plain_lines
from .view.table import plain_table

_WORDS = {OK: "ok", WARN: "WARN", FAIL: "FAIL", None: "-"}


def doctor_text(found: Examination) -> str:
    """The stack, the checks with their remedies, and a summary."""
    parts = [_stack(found.stack), _checks(found.checks)]
    if found.links is not None:
        parts.append(_links(found.links))
    return "\n\n".join([*parts, _summary(found.checks)])


def _links(links: Links) -> str:
    """The connections between the GPUs, in the words of `nvidia-smi topo`."""
    if links.reason is not None:
        return f"How the GPUs are linked is not known: {links.reason.message}"
    header = ("", *(f"GPU {number}" for number in range(len(links.matrix))))
    rows = [(f"GPU {number}", *row) for number, row in enumerate(links.matrix)]
    return _indented("How the GPUs are linked", plain_table(header, rows))


def _stack(levels: list[Level]) -> str:
    rows = [
        ("  " * level.depth + level.name, level.found, _WORDS[level.status], level.note)
        for level in levels
    ]
    return _indented("The stack", plain_table(("", "", "", ""), rows))


def _indented(title: str, lines: list[Text]) -> str:
    return plain_lines([Text.of(title), *(line.pad_left(2) for line in lines)])


def _checks(checks: list[Check]) -> str:
    """A line for each check, and the remedy of one that did not pass below it."""
    facts = []
    for check in checks:
        facts.append(fact(f"  {_WORDS[check.status]:4}  {check.name}", check.message))
        if check.remedy is not None:
            facts.append(fact(" ", f"-> {check.remedy}"))
    return plain_lines([Text.of("Checks"), *facts_lines(facts, PROSE, label_width(facts))])


def _summary(checks: list[Check]) -> str:
    counts = {status: sum(c.status == status for c in checks) for status in (FAIL, WARN)}
    if not any(counts.values()):
        return "Everything is in order."
    parts = [f"{counts[FAIL]} failed"] if counts[FAIL] else []
    parts += [f"{counts[WARN]} to look at"] if counts[WARN] else []
    return f"{', '.join(parts)}."
