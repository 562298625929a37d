"""The report of a first hour as Markdown, and the table in docs/cuda.md."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from workbench.text.sanitize import shown

from .judge import FINDINGS, NOT_TRIED, Judged

BEGIN, END = "<!-- findings -->", "<!-- end -->"
UNPROVEN = "# CUDA: nothing on this page has been proven on a card"
PROVEN = "# CUDA: what is proven on which card"


def cell(text: Any) -> str:
    """Text of others as one cell of a table."""
    return shown(str(text)).replace("|", "\\|")


def row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(cell, cells))} |"


def markdown(report: dict[str, Any], found: Sequence[Judged]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in report["software"].items())
    counts = ", ".join(f"{count} {word}" for word, count in report["counts"].items())
    lines = [
        f"# First hour on {cell(report['card'] or 'no GPU')}",
        "",
        f"{cell(report['at'])}; {cell(versions or 'versions unknown')}. {counts}.",
        "",
        row(["finding", "what", "expected", "from", "found"]),
        "|---|---|---|---|---|",
        *(row([f.id, f.what, f.expected, f.source, f.answer]) for f in found),
        "",
        "The commands:",
        "",
        row(["part", "step", "command", "code", "seconds"]),
        "|--:|---|---|--:|--:|",
    ]
    for step in report["commands"]:
        code = "killed" if step["timed_out"] else step["code"]
        lines.append(row([step["part"], step["step"], step["command"], code, step["wall_s"]]))
    return "\n".join(lines) + "\n"


def reports(folder: Path) -> dict[str, dict[str, Any]]:
    """The newest kept report of each real card."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        report = json.loads(path.read_bytes())
        card = report["card"]
        if card and (card not in found or report["at"] > found[card]["at"]):
            found[card] = report
    return found


def page(text: str, kept: dict[str, dict[str, Any]]) -> str:
    """`text`, the present page, with the first line and the table that the reports give."""
    said = {card: {f["id"]: f for f in report["findings"]} for card, report in kept.items()}
    tried = any(f["word"] != NOT_TRIED for found in said.values() for f in found.values())
    cards = [f"{card}, {str(report['at'])[:10]}" for card, report in kept.items()] or ["any card"]
    lines = [row(["finding", "what", "expected", *cards]), "|---" * (3 + len(cards)) + "|"]
    for finding in FINDINGS:
        of_cards = [of_card(found.get(finding.id)) for found in said.values()] or [NOT_TRIED]
        lines.append(row([finding.id, finding.what, finding.expected_of_all, *of_cards]))
    block = "\n".join([BEGIN, *lines, END])
    body = re.sub(f"{BEGIN}.*?{END}", lambda _: block, text, flags=re.DOTALL)
    return "\n".join([PROVEN if tried else UNPROVEN, *body.splitlines()[1:]]) + "\n"


def of_card(found: dict[str, Any] | None) -> str:
    if found is None or found["word"] == NOT_TRIED:
        return NOT_TRIED
    return Judged(**found).answer
