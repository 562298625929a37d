"""A file through everything that reads and shows it, in the process of the program under test."""

import json
import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from screens.state.session import Session
from workbench.advisor.model.overview import ranked_candidates
from workbench.export.formats import FILES, file_text, whole
from workbench.export.text import run_text, summary_text
from workbench.export.view import answers, curves, details, machine, model, tables
from workbench.export.view.events import log_line, log_tail, race_log
from workbench.export.view.lead import loss_lines
from workbench.export.view.section import section_lines
from workbench.export.view.sensors import live_sections
from workbench.export.view.spans import facts_lines, plain_lines
from workbench.records.events import encode
from workbench.report.report import Report
from workbench.report.run_files import OpenedRun, open_run

WIDTHS = (None, 1, 2, 17, 40, 80, 200, 1000)
STEERING = ("Cc", "Zl", "Zp")  # categories of characters that steer a terminal


def shown(path: Path, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Open `path`, and yield what a few of the formats and views make of it: name and text.

    JournalError if it is refused; nothing else may be raised.
    """
    opened = open_run(str(path))
    report = opened.report
    for name in ["json", *["plain"] * (rng.random() < 0.3)]:
        parts = whole(name, report)
        yield name, "".join(p if isinstance(p, str) else p.decode() for p in parts)
    yield "jsonl", b"\n".join(map(encode, opened.events[:300])).decode()
    for name in FILES:
        if rng.random() < 0.1:
            yield name, file_text(name, report)
    width = rng.choice(WIDTHS)
    yield f"text of {width}", run_text(report, width)
    for view in rng.sample(VIEWS, 2):
        yield view.__name__, view(opened, rng.choice(WIDTHS[1:]))


# ---------------------------------------------------------------------- views


def summary(opened: OpenedRun, width: int) -> str:
    return summary_text(opened.report, width)


def log(opened: OpenedRun, width: int) -> str:
    """The log lines, plain and of the screens."""
    fresh, lines = Report(), []
    for event in opened.events:
        fresh.apply(event)
        lines.append(log_line(event, fresh) or "")
    session = Session.of(opened)
    rows = session.report.rows.values()
    lines += [plain_lines(log_tail(race_log(row, session.log), width, 20)) for row in rows]
    return "\n".join(lines)


def hardware(opened: OpenedRun, width: int) -> str:
    report = opened.report
    titles = {name: row.plan.title for name, row in report.rows.items()}
    lines = facts_lines(machine.warnings(report.warnings, titles), width)
    if report.machine is not None and report.software is not None:
        known = report.ceilings
        left = machine.processor_sections(report.machine, report.software, known)
        right = machine.accelerator_sections(report.machine, report.software, known)
        live = live_sections(report.machine, report)
        lines += section_lines([*live, *left, *right], width)
    return plain_lines(lines)


def detail(opened: OpenedRun, width: int) -> str:
    session = Session.of(opened)
    lines = []
    for row in session.report.rows.values():
        for candidate in row.candidates:
            facts = details.candidate_facts(candidate, session)
            facts += details.why_facts(candidate, session.report)
            facts += details.profile_facts(candidate, session.report.trace)
            lines += facts_lines(facts, width)
        lines += loss_lines(row, session, width, 5)
        lines += answers.answer_lines(row, session, width)
        lines += answers.race_lines(row, session, width)
    return plain_lines(lines)


def run_table(opened: OpenedRun, width: int) -> str:
    from workbench.export.view.table import table_lines

    session = Session.of(opened)
    lines = []
    for row in session.report.rows.values():
        sweep = session.sweep(row)
        marks = curves.curve_marks(sweep) if sweep is not None else {}
        found = [
            tables.candidate_line(candidate, row, session, marks.get(candidate.case.label))
            for candidate in row.candidates
        ]
        lines += table_lines(tables.run_columns(row, session, marks=bool(marks)), found, width)
        lines += table_lines(tables.result_columns(row), found, width)
        if sweep is not None:
            lines += curves.curve_lines(sweep, row.plan.point, None, width, 12)
    rows = list(session.report.rows.values())
    if rows:
        found = [tables.advisor_line(row, session) for row in rows]
        lines += table_lines(tables.advisor_columns(rows, width), found, width)
    return plain_lines(lines)


def model_page(opened: OpenedRun, width: int) -> str:
    session = Session.of(opened)
    if session.report.subject_row is None:
        return ""
    found = ranked_candidates(session.report)
    chosen = found[0].candidate if found else None
    lines = [
        *model.head_lines(session, width, roomy=True, title="x"),
        *model.advice_lines(found, chosen, session, width),
        *model.rest_lines(chosen, session, width),
        *model.code_lines(chosen, session, width),
    ]
    return plain_lines(lines)


VIEWS: tuple[Callable[[Any, int], str], ...] = (
    summary,
    log,
    hardware,
    detail,
    run_table,
    model_page,
)

# ----------------------------------------------------------------------- judge


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} in the JSON")


def flaw(name: str, text: str) -> str | None:
    """The faults in the text of a view."""
    if name == "json":
        try:
            json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            return str(error)
    if "jsonl" not in name and "json" not in name:
        for character in set(text) - {"\n", "\t"}:
            if unicodedata.category(character) in STEERING or "\u202a" <= character <= "\u202e":
                return f"{character!r} in the output"
    return None
