"""A report as Markdown with GitHub's tables, for pull requests and issues."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..report.report import Report
from .sections import Section, sections
from .svg import clean

MARKUP = re.compile(r"([\\`*_{}\[\]<>|~#$&+=-])")
LINKING = re.compile(r"@|://|\bwww\.|(?<=\d)[.)](?= )", re.IGNORECASE)  # users, addresses, lists


def text(report: Report) -> str:
    return "\n\n".join(part for section in sections(report) for part in _parts(section))


def inert(text: str) -> str:
    """The text on one line, in which nothing is markup, a link or the mention of a user."""
    line = MARKUP.sub(r"\\\1", " ".join(clean(text).split()))
    return LINKING.sub(lambda found: f"{found.group()}<!-- -->", line)


def _parts(section: Section) -> Iterator[str]:
    yield f"## {inert(section.title)}"
    if section.origin:
        yield f"Provenance: {section.origin}."
    if section.lines:
        rule = ["---:" if column.align == "right" else "---" for column in section.columns]
        titles = [inert(column.title) for column in section.columns]
        rows = [titles, rule, *(map(inert, row) for row in section.rows)]
        yield "\n".join(f"| {' | '.join(row)} |" for row in rows)
    if section.remarks:
        parts = (filter(None, remark) for remark in section.remarks)
        yield "\n".join(f"- {': '.join(map(inert, part))}" for part in parts)
    if section.code:
        code = clean(section.code)
        fence = max(["```", *(f"{run}`" for run in re.findall("`+", code))], key=len)
        yield f"{fence}\n{code}\n{fence}"
