"""Sections as Markdown with GitHub's tables, for pull requests and issues."""

import re
from collections.abc import Iterable, Iterator

from ..report.report import Report
from ..text.markdown import inert, table
from ..text.output import terminal_width
from ..text.sanitize import clean
from .sections import sections
from .view.section import Section, section_text


def text(report: Report) -> str:
    return markdown(sections(report))


def tables(found: Iterable[Section], *, as_markdown: bool) -> str:
    """The sections for stdout: for its terminal, for a file, or as Markdown."""
    return markdown(found) if as_markdown else section_text(found, terminal_width())


def markdown(found: Iterable[Section]) -> str:
    return "\n\n".join(part for section in found for part in _parts(section))


def _parts(section: Section) -> Iterator[str]:
    if section.plots and not (section.notes or section.lines or section.facts):
        return  # plots are for pages
    yield f"## {inert(section.title)}"
    yield from map(inert, section.notes)
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
