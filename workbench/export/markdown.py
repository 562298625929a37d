"""A report as Markdown with GitHub's tables, for pull requests and issues."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..report.report import Report
from ..text.markdown import inert, table
from ..text.sanitize import clean
from .sections import Section, sections


def text(report: Report) -> str:
    return "\n\n".join(part for section in sections(report) for part in _parts(section))


def _parts(section: Section) -> Iterator[str]:
    yield f"## {inert(section.title)}"
    if section.origin:
        yield f"Provenance: {section.origin}."
    if section.lines:
        rule = ["---:" if column.align == "right" else "---" for column in section.columns]
        titles = [inert(column.title) for column in section.columns]
        yield table(titles, [[*map(inert, row)] for row in section.rows], rule)
    if section.remarks:
        parts = (filter(None, remark) for remark in section.remarks)
        yield "\n".join(f"- {': '.join(map(inert, part))}" for part in parts)
    if section.code:
        code = clean(section.code)
        fence = max(["```", *(f"{run}`" for run in re.findall("`+", code))], key=len)
        yield f"{fence}\n{code}\n{fence}"
