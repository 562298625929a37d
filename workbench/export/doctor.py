"""What `workbench doctor` prints."""

from __future__ import annotations

import getpass
import textwrap
from pathlib import Path

from ..advisor.doctor import FAIL, OK, WARN, Check, Examination, Level
from ..machine.nvidia.nvml import Links
from ..records.machine import Machine
from .tables import table, wrapped

_WORDS = {OK: "ok", WARN: "WARN", FAIL: "FAIL", None: "-"}


def doctor_text(found: Examination) -> str:
    """The stack as it is drawn, the checks, and what helps."""
    parts = [_stack(found.stack), *_checks(found.checks)]
    if found.links is not None:
        parts.append(_links(found.links))
    return "\n\n".join([*parts, _summary(found.checks)])


def _links(links: Links) -> str:
    """Who reaches whom, and how: the words of `nvidia-smi topo`."""
    if links.reason is not None:
        return f"How the GPUs are linked is not known: {links.reason.message}"
    header = ("", *(f"GPU {number}" for number in range(len(links.matrix))))
    rows = [(f"GPU {number}", *row) for number, row in enumerate(links.matrix)]
    return "How the GPUs are linked\n" + textwrap.indent(table(header, rows, set()), "  ")


def _stack(levels: list[Level]) -> str:
    rows = [
        ("  " * level.depth + level.name, level.found, _WORDS[level.status], level.note)
        for level in levels
    ]
    return "The stack\n" + textwrap.indent(table(("", "", "", ""), rows, set()).lstrip("\n"), "  ")


def _checks(checks: list[Check]) -> list[str]:
    """The checks one a line; the remedy of one that did not pass below it."""
    width = max(len(check.name) for check in checks)
    lines = ["Checks"]
    for check in checks:
        head = f"  {_WORDS[check.status]:4}  {check.name:<{width}}  "
        lines.append(_wrapped(head, check.message))
        if check.remedy is not None:
            lines.append(_wrapped(" " * len(head) + "-> ", check.remedy))
    return ["\n".join(lines)]


def _wrapped(head: str, text: str) -> str:
    return wrapped(text, first=head, rest=" " * len(head))


def _summary(checks: list[Check]) -> str:
    counts = {status: sum(c.status == status for c in checks) for status in (FAIL, WARN)}
    if not any(counts.values()):
        return "Everything is in order."
    told = [f"{counts[FAIL]} failed"] if counts[FAIL] else []
    told += [f"{counts[WARN]} to look at"] if counts[WARN] else []
    return f"{', '.join(told)}."


def private_words(machine: Machine) -> dict[str, str]:
    """What names this user and this machine -> what stands in its place."""
    words = {str(Path.home()): "~", machine.hostname: "host"}
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user in a container
        user = ""
    if user != "root":  # a word of its own, that names nobody
        words[user] = "user"
    return words
