"""What a verdict knows beyond the answer: crossover, time to result, cost; as lines of text."""

from __future__ import annotations

from textual.content import Content

from workbench.advisor import break_even_text, crossover_text, whatif
from workbench.export import costs
from workbench.records.verdict import Verdict
from workbench.report import sweeps
from workbench.report.report import Report
from workbench.report.row import Row

from .curve import curve_lines, curve_marks
from .facts import Fact, fact, facts_lines
from .table import Column, Line, table_lines

PLOT_HEIGHT = 14  # lines of the curves, their axis and title included

_YARDSTICKS = (
    Column("0", ""),
    Column("1", "Candidate", minimum=18),
    Column("2", "Value"),
    Column("4", "Ahead by (95 %)", rank=1),
    Column("3", "Of", rank=2, minimum=18),
)


def advice_facts(verdict: Verdict) -> list[Fact]:
    """Crossover, break-even points, hardware elsewhere, the best by each baseline; a line each."""
    facts = []
    if verdict.crossover is not None:
        facts.append(fact("crossover", crossover_text.sentence(verdict.crossover)))
    for number, sentence in enumerate(break_even_text.sentences(verdict)):
        facts.append(fact(" " if number else "pays off", sentence))
    for number, found in enumerate(verdict.what_if):
        text = whatif.sentence(found, verdict.objective)
        facts.append(fact(" " if number else "what if", text, "dim" if found.missing else ""))
    # Most labels are narrower than `most frugal`, and so is their column.
    yardsticks = costs.lines(verdict)
    facts += [fact(name.removeprefix("most "), text) for name, text in yardsticks]
    return facts + [fact(" ", sentence, "dim") for sentence in costs.notes(verdict)]


def yardstick_lines(verdict: Verdict, width: int) -> list[Content]:
    """Fastest, cheapest and most frugal side by side; empty where only time was known."""
    lines = [
        Line(cells[0], {str(place): Content(text) for place, text in enumerate(cells)})
        for cells in costs.rows(verdict)
    ]
    return table_lines(_YARDSTICKS, lines, width) if lines else []


def crossover_lines(row: Row, report: Report, width: int) -> list[Content]:
    """The curves over the size of a scenario; empty where its crossover was not looked for."""
    name = row.plan.scenario
    rows = [r for r in report.rows.values() if r.plan.of == name or r is row]
    found = [sweep for sweep in sweeps.sweeps(rows) if sweep.scenario == name]
    if not found:
        return []
    at = sweeps.place_of(row, list(found[0].axes))
    pick = row.verdict.pick if row.verdict is not None else None
    label = report.candidates[pick].case.label if pick in report.candidates else None
    marks = [
        Content.assemble(mark, f" {curve.replace('/', ' ')}")
        for curve, mark in curve_marks(found[0]).items()
    ]
    legend = facts_lines([Fact("", marks)], width, 0)
    return [*curve_lines(found[0], at, label, width, PLOT_HEIGHT), *legend]
