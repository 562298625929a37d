"""The columns of each table and the cells that fill them, from a report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from textual.content import Content

from workbench.records.document import SetupTimes
from workbench.records.verdict import Verdict
from workbench.report.candidate import Candidate
from workbench.report.row import Row
from workbench.text import units

from ..state.derived import Figures, choice_word, row_title
from ..state.session import Session
from . import glyphs
from .styles import (
    basis_text,
    case_text,
    choice_style,
    device_style,
    here_text,
    marked,
    pick_texts,
    state_texts,
)
from .table import Cell, Column, Line

# --------------------------------------------------------------- advisor

NARROW = 72
_ADVISOR_COLUMNS = (
    Column("scenario", "Scenario", minimum=18),
    Column("textbook", "Textbook", rank=4),
    Column("here", "Here"),
    Column("ratio", "GPU/CPU", rank=1, align="right"),
    Column("interval", "95 %", rank=3),
    Column("pick", "Pick", rank=2),
    Column("basis", "Basis", rank=5),
)


def has_gpu(rows: Iterable[Row]) -> bool:
    return any(c.case.device_kind == "gpu" for row in rows for c in row.candidates)


def advisor_columns(rows: Collection[Row], width: int) -> list[Column]:
    """Without a GPU each pick's lead stands in place of the ratio; of models no textbook tells.
    In a narrow terminal titles give way to picks."""
    book = not rows or any(row.plan.textbook for row in rows)
    columns = [column for column in _ADVISOR_COLUMNS if book or column.key != "textbook"]
    lead = not has_gpu(rows) and bool(rows)
    if lead:
        columns = [replace(c, title="Ahead by") if c.key == "ratio" else c for c in columns]
    if width < NARROW:
        columns = [replace(c, minimum=13) if c.key == "scenario" else c for c in columns]
    return columns


def advisor_line(row: Row, session: Session, *, gpu: bool) -> Line:
    """One scenario: its verdict, or where the race for it stands; `gpu` is of the whole table."""
    plan, verdict, figures = row.plan, row.verdict, session.figures
    book = plan.textbook or ""
    cells: dict[str, Cell] = {
        "scenario": Content(row_title(row)),
        "textbook": Content.styled(choice_word(book), choice_style(book).replace("bold ", "")),
    }
    if verdict is None:
        cells["here"] = Content.styled("...", "dim")
        return Line(plan.scenario, cells, ("ratio", pending_texts(row, session)))
    cells |= {"here": here_text(verdict), "basis": basis_text(verdict)}
    # Of a model's forms one is picked, whatever is known of other devices.
    owed = plan.textbook or verdict.pick is None
    if verdict.choice == "unknown" and verdict.device_ratio is None and owed:
        why = verdict.reasons[0] if verdict.reasons else "no reason was given"
        return Line(plan.scenario, cells, ("ratio", [Content.styled(why, "dim")]))
    cells |= ratio_cells(verdict) if gpu else lead_cells(verdict)
    cells["pick"] = pick_texts(verdict, figures, mark=gpu)  # else the lead says so
    return Line(plan.scenario, cells)


def ratio_cells(verdict: Verdict) -> dict[str, Cell]:
    if verdict.device_ratio is None:
        return {"ratio": Content.styled("no GPU" if verdict.no_gpu else "-", "dim")}
    value, interval = units.ratio_parts(verdict.device_ratio, verdict.device_ratio_ci95)
    return {"ratio": Content(value), "interval": Content(interval)}


def lead_cells(verdict: Verdict) -> dict[str, Cell]:
    """How far the pick is ahead of the next."""
    if verdict.tie:
        return {"ratio": Content("tie")}
    value, interval = units.ratio_parts(verdict.pick_ratio, verdict.pick_ratio_ci95)
    return {"ratio": Content(value or "-"), "interval": Content(interval)}


def pending_texts(row: Row, session: Session) -> list[Content]:
    """What stands in place of a verdict, longest form first."""
    report, figures = session.report, session.figures
    searched = any(figures.largest(candidate) for candidate in row.candidates)
    if row.plan.textbook is None and (row.started or searched):
        return _fastest(row, figures)
    if not row.started:
        return [Content.styled("waiting" if session.going else "not reached", "dim")]
    if session.going and report.current_row == row.plan.scenario:
        left = f"racing, {figures.left_in_race(row)} of {len(row.candidates)}"
        return [Content.styled(f"{left}{end}", "bold") for end in (" candidates left", " left")]
    return [Content.styled("deciding" if session.going else "cut short before a verdict", "dim")]


def _fastest(row: Row, figures: Figures) -> list[Content]:
    best = figures.best(row)
    if best is None:
        return [Content.styled("no verdict asked", "dim")]
    long, short = candidate_names(best, figures)
    told = (("no verdict asked; fastest: ", long), ("fastest: ", long), ("fastest: ", short))
    return [Content.assemble((lead, "dim"), name) for lead, name in told]


# ------------------------------------------------------------ candidates

_CANDIDATE = Column("candidate", "Candidate", minimum=36, names=True)
_STATE = Column("state", "State", rank=1, patient=True)
_SPEED = Column("speed", "Speed vs best", rank=3, minimum=13, maximum=32)
_RATE = Column("rate", "Rate", rank=4, align="right")
_COUNT = Column("n", "n", rank=7, align="right")

OBJECTIVE_TITLES = {"latency_p99": "p99", "time_to_result": "To result"}


def counted_columns(row: Row) -> list[Column]:
    """What the row's objective counts, where that is not the median itself."""
    title = OBJECTIVE_TITLES.get(row.plan.objective)
    return [Column("value", title, rank=1, align="right")] if title else []


def run_columns(row: Row, *, marks: bool = False) -> list[Column]:
    """With `marks` each candidate is led by what draws its curve."""
    counted = counted_columns(row)
    median = Column("median", "Median", rank=5 if counted else 2, align="right")
    mark = [Column("mark", "")] if marks else []
    return [*mark, _CANDIDATE, _SPEED, _RATE, *counted, median, _COUNT, _STATE]


def run_line(candidate: Candidate, row: Row, session: Session, mark: Content | None = None) -> Line:
    figures = session.figures
    numbers = figures.numbers(candidate)
    found = numbers.measurement
    cells: dict[str, Cell] = {
        "candidate": candidate_names(candidate, figures),
        "state": state_texts(candidate, row, figures, racing=session.going),
    }
    if mark is not None:
        cells["mark"] = mark
    if found.n:
        speed = figures.speed(candidate, row)
        if speed is not None:
            cells["speed"] = speed_bar(speed, device_style(candidate.case))
        cells |= {
            "rate": Content(rate_text(candidate, figures)),
            "value": Content(units.duration(numbers.value_s, align=True)),
            "median": median_texts(candidate, figures),
            "n": Content(f"{found.n}"),
        }
    return Line(candidate.case.id, cells)


def candidate_names(candidate: Candidate, figures: Figures) -> list[Content]:
    return [case_text(candidate.case.id, figures, short=short) for short in (False, True)]


def speed_bar(share: float, style: str) -> Callable[[int], Content]:
    """`0.42x ████`: a drawing of the width it is given."""
    text = f"{units.ratio(share):>7}"

    def draw(width: int) -> Content:
        return Content.assemble(
            text, " ", (glyphs.bar(share, max(1, width - len(text) - 1)), style)
        )

    return draw


def rate_text(candidate: Candidate, figures: Figures) -> str:
    """FLOP/s where the work is known, else items per second."""
    found = figures.numbers(candidate).measurement
    if found.flops_per_s is not None:
        return units.rate(found.flops_per_s, "FLOP/s")
    if found.throughput is None:
        return units.NOT_AVAILABLE
    return units.rate(found.throughput.value, found.throughput.unit)


def median_texts(candidate: Candidate, figures: Figures) -> list[Content]:
    """The median with its interval, or alone where the column is narrow."""
    found = figures.numbers(candidate).measurement
    alone = units.duration(found.median_s, align=True)
    spread = units.spread(found.median_s, found.ci95_s)
    return [Content.assemble(alone, (f"{spread:>7}", "dim")), Content(alone)]


# ---------------------------------------------------------------- detail

_DETAIL_COLUMNS = (
    Column("median", "Median", rank=2, align="right"),
    Column("rate", "Rate", rank=3, align="right"),
    Column("accuracy", "Check / limit", rank=4, align="right"),
    Column("import", "Import", rank=5, align="right"),
    Column("build", "Build", rank=6, align="right"),
    Column("transfer", "Transfer", rank=7, align="right"),
    Column("compile", "Compile", rank=8, align="right"),
    Column("n", "n", rank=9, align="right"),
    Column("reason", "Reason", rank=10, minimum=20, patient=True),
)


def detail_columns(row: Row) -> list[Column]:
    status = Column("status", "Status", rank=1)
    return [_CANDIDATE, status, *counted_columns(row), *_DETAIL_COLUMNS]


NO_LIMIT = 1.0  # of a user's model: what may be picked is for --max-error to say
SETUP_FIELDS = (
    ("import", "import_s"),
    ("build", "build_s"),
    ("transfer", "transfer_s"),
    ("transfer out", "transfer_out_s"),
    ("compile", "compile_s"),
)


def detail_line(candidate: Candidate, row: Row, session: Session) -> Line:
    figures = session.figures
    cells: dict[str, Cell] = {
        "candidate": candidate_names(candidate, figures),
        "status": status_text(candidate, row, session),
        "accuracy": Content(accuracy_text(candidate)),
    }
    for name, field in SETUP_FIELDS:
        value: float | None = getattr(candidate.setup, field)
        if value is not None:
            cells[name] = Content(units.duration(value, align=True))
    if candidate.blocks:
        numbers = figures.numbers(candidate)
        cells |= {
            "rate": Content(rate_text(candidate, figures)),
            "value": Content(units.duration(numbers.value_s, align=True)),
            "median": median_texts(candidate, figures),
            "n": Content(f"{numbers.measurement.n}"),
        }
    reason = reason_message(candidate, figures)
    if reason:
        cells["reason"] = Content.styled(reason, "dim")
    return Line(candidate.case.id, cells)


def status_text(candidate: Candidate, row: Row, session: Session) -> Content:
    """One word; the pick is marked."""
    if row.verdict is not None and row.verdict.pick == candidate.case.id:
        return marked(Content.styled("pick", "bold $success"), candidate, session.figures)
    return state_texts(candidate, row, session.figures, racing=session.going)[-1].first_line


def reason_message(candidate: Candidate, figures: Figures) -> str:
    if candidate.eliminated:
        return figures.elimination_text(candidate)
    return candidate.reason.message if candidate.reason is not None else ""


def accuracy_text(candidate: Candidate) -> str:
    """`0.0012 / 0.01`, the second being the limit it was judged by, where the check has one; ""
    where none was checked."""
    accuracy = candidate.accuracy
    if accuracy is None:
        return ""
    mark = "" if accuracy.passed else "! "
    limit = "" if accuracy.limit == NO_LIMIT else f" / {units.figure(accuracy.limit)}"
    return f"{mark}{units.figure(accuracy.value)}{limit}"


def setup_text(setup: SetupTimes) -> str:
    """`import 1.93 s, build 12.0 ms`: the parts that arose."""
    parts = []
    for name, field in SETUP_FIELDS:
        value: float | None = getattr(setup, field)
        if value is not None:
            parts.append(f"{name} {units.duration(value)}")
    return ", ".join(parts) or units.NOT_AVAILABLE


def is_over(candidate: Candidate) -> bool:
    return candidate.ended
