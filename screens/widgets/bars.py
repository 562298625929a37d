"""The two lines at the top of every screen: tabs and machine, state and progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from workbench.advisor.subject import brief
from workbench.export.view import glyphs
from workbench.report.names import candidate_name
from workbench.text import units

from ..state.session import Session
from .drawn import Drawn


class Tab(NamedTuple):
    """One screen that can be shown."""

    mode: str
    title: str  # key and label: `2 Run`
    is_current: bool


PHASE_WORDS = {
    "starting": ("starting", "bold"),
    "running": ("racing", "bold"),
    "searching": ("searching", "bold"),
    "paused": ("paused", "bold $warning"),
    "stopping": ("stopping", "bold $warning"),
    "incomplete": ("breaks off", "bold $warning"),
    "died": ("engine died", "bold $error"),
}


class TopBars(Vertical):
    """Tabs and machine; below them the state of the run."""

    def compose(self) -> ComposeResult:
        yield Drawn(id="tabs")
        yield Drawn(id="status")

    def show(self, session: Session, tabs: Sequence[Tab]) -> None:
        self.query_one("#tabs", Drawn).show(lambda width, _: tab_line(tabs, session, width))
        self.query_one("#status", Drawn).show(lambda width, _: status_line(session, width))


def tab_line(tabs: Sequence[Tab], session: Session, width: int) -> Content:
    """`workbench  1 Hardware  [2 Run]  3 Advisor     machine`; a click does what the key does."""
    parts = [Content.styled("workbench", "bold $primary"), Content(" ")]
    short = sum(len(tab.title) + 2 for tab in tabs) + len("workbench ") > width
    for tab in tabs:
        click = f"@click=app.switch_mode('{tab.mode}')"
        title = tab.title.split()[0] if short and not tab.is_current else tab.title
        label = Content.from_markup(f"[{click}]{title}[/]")
        if tab.is_current:
            parts.append(Content.assemble("[", label.stylize("bold $primary"), "]"))
        else:
            parts.append(Content.assemble(" ", label.stylize("dim"), " "))
    left = Content("").join(parts)
    room = width - left.cell_length - 2
    run = session
    lines = run.machine_line(), run.machine_line(brief=True)
    machine = next((text for text in lines if len(text) <= room), "")
    return Content.assemble(left, " " * (width - left.cell_length - len(machine)), (machine, "dim"))


def status_line(session: Session, width: int) -> Content:
    """State, current activity, share of the budget used and time left."""
    state, activity = _state(session), _activity(session)
    end = _progress(session, width)
    room = width - state.cell_length - end.cell_length - 4
    middle = activity.truncate(max(0, room), ellipsis=True)
    gap = width - state.cell_length - middle.cell_length - end.cell_length - 2
    return Content.assemble(state, "  ", middle, " " * max(0, gap), end)


def _state(session: Session) -> Content:
    finished = session.report.finished
    if finished is None:
        phase = session.phase
        if phase == "running" and session.report.current_row is None:
            phase = "searching" if session.report.current_case else "starting"
        word, style = PHASE_WORDS[phase]
    else:
        word = finished.status
        style = "bold $success" if word == "done" else "bold $warning"
    if session.replay:
        word = f"recorded, {word}"
    return Content.styled(word, style)


def _activity(session: Session) -> Content:
    report, run = session.report, session
    match session.phase:
        case "starting":
            return Content("detecting hardware...")
        case "died":
            return Content(session.failure.message if session.failure else "")
        case "stopping":
            return Content("writing what was measured...")
        case "finished" | "incomplete" if session.has_model:
            pick = report.verdicts[0].pick if report.verdicts else None
            return Content(f"pick: {brief(candidate_name(pick), report)}" if pick else "")
        case "finished" | "incomplete":
            answered = sum(verdict.choice != "unknown" for verdict in report.verdicts)
            owed = sum(row.plan.textbook is not None for row in report.rows.values())
            return Content(f"{answered} of {owed} scenarios answered") if owed else Content("")
    case = run.case_name(report.current_case) if report.current_case else "preparing"
    if report.current_row is None and session.has_model:
        known = report.model is not None or report.code is not None
        return Content("choosing candidates..." if known else "reading it...")
    if report.current_row is None:
        return Content(f"largest batch: {case}" if report.current_case else "planning...")
    candidate = report.candidates.get(report.current_case or "")
    if session.has_model and candidate is not None:
        return Content(brief(candidate_name(candidate.case), report))
    title = run.title(report.current_row)
    return Content.assemble(title, (": ", "dim"), case)


def _progress(session: Session, width: int) -> Content:
    budget = session.budget_s
    elapsed = session.elapsed_s
    if not session.going or not budget:
        return Content(units.duration(elapsed) if elapsed else "")
    share = min(1.0, elapsed / budget)
    drawn = glyphs.gauge(share, max(8, width // 6))
    left = f"  {units.clock(max(0.0, budget - elapsed))} left"
    whole = f" of {units.clock(budget)}" if width >= 100 else ""
    return Content.assemble((drawn, "$primary"), f" {share * 100:3.0f} %", left, whole)
