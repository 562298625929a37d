"""Sections as GitHub Markdown, for pull requests and issues; texts of others are escaped."""

import re
from collections.abc import Iterable, Iterator

from ..report.report import Report
from ..text.output import terminal_width
from ..text.sanitize import clean
from .sections import sections
from .view.section import Section, section_text

MARKUP = re.compile(r"([\\`*_{}\[\]<>|~#$&+=-])")
LINKING = re.compile(r"@|://|\bwww\.|(?<=\d)[.)](?= )", re.IGNORECASE)  # users, addresses, lists


def text(report: Report) -> str:
    return markdown(sections(report))


def tables(found: Iterable[Section], *, as_markdown: bool, table_width: int | None = None) -> str:
    """The sections for stdout, be it a terminal or a file, or as Markdown."""
    return markdown(found) if as_markdown else section_text(found, terminal_width(), table_width)


def markdown(found: Iterable[Section]) -> str:
    return "\n\n".join(part for section in found for part in _parts(section))


def inert(text: str) -> str:
    """The text on one line, without markup, links or mentions of users."""
    line = MARKUP.sub(r"\\\1", " ".join(clean(text).split()))
    return LINKING.sub(lambda found: f"{found.group()}<!-- -->", line)


def _parts(section: Section) -> Iterator[str]:
    if section.plots and not (section.notes or section.lines or section.facts):
        return  # Markdown has no plots
    yield f"## {inert(section.title)}"
    yield from map(inert, section.notes)
    if section.lines:
        rule = ["---:" if column.align == "right" else "---" for column in section.columns]
        titles = [inert(column.title) for column in section.columns]
        lines = [titles, rule, *([*map(inert, row)] for row in section.rows)]
        yield "\n".join(f"| {' | '.join(line)} |" for line in lines)
    if section.remarks:  # one without a label belongs to the one above it
        yield "\n".join(
            f"- {inert(label)}: {inert(text)}" if label else f"  - {inert(text)}"
            for label, text in section.remarks
        )
    if section.code:
        code = clean(section.code)
        fence = max(["```", *(f"{run}`" for run in re.findall("`+", code))], key=len)
        yield f"{fence}\n{code}\n{fence}"
