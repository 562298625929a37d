"""What stays in the terminal after the screens have closed: the answers, as wide as it is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from textual.content import Content

from workbench.advisor.model.overview import recommendation, row_of
from workbench.export.curves import findings

from ..state.derived import row_title
from ..state.session import Session
from .table import table_lines
from .tables import advisor_columns, advisor_line, has_gpu, run_columns, run_line


def summary(session: Session, width: int) -> str:
    """What to ship of a model, the table of verdicts, of a plain run its candidates, and what
    curves show; "" where nothing was measured."""
    return "\n\n".join("\n".join(part) for part in _parts(session, width) if part)


def _parts(session: Session, width: int) -> Iterator[list[str]]:
    report, model = session.report, row_of(session.report)
    rows = [row for row in report.rows.values() if row is not model]
    if any(candidate.blocks for row in report.rows.values() for candidate in row.candidates):
        yield _wrapped(recommendation(report), width)
    decided = [row for row in rows if row.verdict is not None]
    if decided:
        gpu = has_gpu(decided)
        lines = [advisor_line(row, session, gpu=gpu) for row in decided]
        yield _plain(table_lines(advisor_columns(decided, width), lines, width))
    for row in rows:
        measured = any(c.blocks or session.figures.largest(c) for c in row.candidates)
        if row.verdict is None and not row.plan.point and measured:
            lines = [run_line(candidate, row, session) for candidate in row.candidates]
            yield [row_title(row), *_plain(table_lines(run_columns(row), lines, width))]
    for sweep in report.sweeps:
        if sweep.scenario is None and (found := list(findings(sweep))):
            yield [f"{sweep.workload} over {', '.join(sweep.axes)}", *_wrapped(found, width)]


def _plain(lines: list[Content]) -> list[str]:
    return [line.plain.rstrip() for line in lines]


def _wrapped(sentences: list[str], width: int) -> list[str]:
    return [line for sentence in sentences for line in textwrap.wrap(sentence, width)]
