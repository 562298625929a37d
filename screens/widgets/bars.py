"""The two lines at the top of every screen: tabs and machine, state and progress."""

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content

from workbench.advisor.subject import brief, pick_of
from workbench.export.view import glyphs
from workbench.records.verdict import OPEN
from workbench.text import units

from ..state.session import Session
from .drawn import Drawn
from .styles import link

MARGIN = 1  # columns at each side, as in app.tcss

PHASE_WORDS = {
    "starting": ("starting", "bold"),
    "running": ("racing", "bold"),
    "searching": ("searching", "bold"),
    "watching": ("watching", "bold"),
    "paused": ("paused", "bold $warning"),
    "stopping": ("stopping", "bold $warning"),
    "incomplete": ("incomplete", "bold $warning"),
    "died": ("engine died", "bold $error"),
    "refused": ("refused", "bold $error"),
}


class TopBars(Vertical):
    """Tabs and machine; below them the state of the run, in parts that are redrawn separately."""

    _machine: str | None = None  # shown next to the tabs

    def compose(self) -> ComposeResult:
        yield Drawn(id="tabs")
        with Horizontal(id="status"):
            yield Drawn(id="activity")
            yield Drawn(id="gauge")
            yield Drawn(id="clock")

    def show(self, session: Session, tabs: Mapping[str, str], current: str) -> None:
        """`tabs`: the key of each screen by its name."""
        if (known := session.machine_line()) != self._machine:  # else the tabs are as before
            self._machine = known
            self.query_one("#tabs", Drawn).show(
                lambda width: tab_line(tabs, current, session, width)
            )
        full = self.app.size.width - 2 * MARGIN
        gauge, clock = _gauge(session, full), _clock(session, full)
        for name, text in (("gauge", gauge), ("clock", clock)):
            drawn = self.query_one(f"#{name}", Drawn)
            drawn.styles.width = text.cell_length
            drawn.show(lambda _, text=text: text)  # type: ignore[misc]
        self.query_one("#activity", Drawn).show(lambda width: activity_line(session, width))


def tab_line(tabs: Mapping[str, str], current: str, session: Session, width: int) -> Content:
    """`workbench  1 Hardware  [2 Run]  3 Advisor     machine`; a click does what the key does."""
    parts = [Content.styled("workbench", "bold $primary"), Content(" ")]
    titles = {name: f"{key} {name}" for name, key in tabs.items()}
    short = sum(len(title) + 2 for title in titles.values()) + len("workbench ") > width
    for name, title in titles.items():
        text = tabs[name] if short and name != current else title
        label = link(text, f"app.switch_mode('{name}')")
        if name == current:
            parts.append(Content.assemble("[", label.stylize("bold $primary"), "]"))
        else:
            parts.append(Content.assemble(" ", label.stylize("dim"), " "))
    left = Content("").join(parts)
    room = width - left.cell_length - 2
    lines = session.machine_line(), session.machine_line(brief=True)
    machine = next((text for text in lines if len(text) <= room), "")
    return Content.assemble(left, " " * (width - left.cell_length - len(machine)), (machine, "dim"))


def activity_line(session: Session, width: int) -> Content:
    state = _state(session)
    room = max(0, width - state.cell_length - 4)
    return Content.assemble(state, "  ", _activity(session).truncate(room, ellipsis=True))


def _state(session: Session) -> Content:
    finished = session.report.finished
    if finished is None:
        phase = session.phase
        if phase == "running" and session.report.current_row is None:
            phase = "searching" if session.report.current_case else "starting"
        word, style = PHASE_WORDS[phase]
    else:
        word = finished.status
        has_times = any(each.is_valid for each in session.report.candidates.values())
        style = "bold $success" if word == "done" and has_times else "bold $warning"
    if session.replay and session.phase != "watching":
        word = f"recorded, {word}"
    return Content.styled(word, style)


def _activity(session: Session) -> Content:
    report, run = session.report, session
    match session.phase:
        case "starting":
            return Content("detecting hardware...")
        case "died" | "refused":
            return Content("")  # the message is right below
        case "watching":
            return Content("this machine; n starts a run")
        case "stopping":
            return Content("writing what was measured...")
        case "finished" | "incomplete":
            return Content("; ".join(filter(None, [session.rest, _outcome(session)])))
    case = run.case_name(report.current_case) if report.current_case else "preparing"
    if report.current_row is None and session.has_model:
        doing = "choosing candidates" if report.subject else "reading the model or code"
        return Content(f"{doing}...")
    if report.current_row is None:
        stage = "preparing..." if report.rows else "planning..."
        return Content(f"largest batch: {case}" if report.current_case else stage)
    candidate = report.candidates.get(report.current_case or "")
    if session.has_model and candidate is not None:
        return Content(brief(candidate.name, report))
    title = run.title(report.current_row)
    return Content.assemble(title, (": ", "dim"), case)


def _outcome(session: Session) -> str:
    """The result of a run that is over: the pick, or the number of answers or rows."""
    report = session.report
    if session.has_model:
        pick = pick_of(report)
        return "no pick" if pick is None else f"pick: {brief(pick.name, report)}"
    verdicts = [v for v in report.verdicts if v.choice != "unknown"]
    answered = sum(verdict.confidence != OPEN for verdict in verdicts)
    rows = report.rows.values()
    if owed := sum(row.plan.owes_verdict for row in rows):
        return f"{answered} of {units.counted(owed, 'scenario')} answered"
    raced = sum(any(c.blocks for c in row.candidates) for row in rows)
    return f"{units.counted(raced, 'row')} measured" if raced else ""


def _gauge(session: Session, width: int) -> Content:
    share = session.share
    if share is None:
        return Content("")
    drawn = glyphs.gauge(share, max(8, width // 6))
    return Content.assemble((drawn, "$primary"), f" {share:4.0%}")


def _clock(session: Session, width: int) -> Content:
    """The time left, or the time that the run took."""
    most_s, elapsed = session.report.most_s, session.elapsed_s
    if session.share is None:
        return Content(units.duration(elapsed) if elapsed else "")
    whole = f" of {units.clock(most_s)}" if width >= 100 else ""
    return Content(f"  {units.clock(max(0.0, most_s - elapsed))} left{whole}")
