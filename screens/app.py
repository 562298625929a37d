"""The application: one run at a time, built up from its events and shown on several screens."""

import asyncio
import contextlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.binding import BindingType
from textual.screen import Screen

from workbench.contract import WorkloadError
from workbench.engine.exit_codes import CUT_SHORT
from workbench.export.view.events import ALARMING
from workbench.planning.request import Request
from workbench.records.events import WarningRaised
from workbench.report.candidate import Row
from workbench.report.report import Report

from .keys import ADVISOR, HARDWARE, KEYS, MODEL, PAGES, RUN, RUNS, Page
from .shell import Shell
from .state.event_source import CANCEL_S, EventSource, EventSourceError
from .state.session import Session, can_follow

REPAINT_S = 0.25  # at most four repaints a second, for slow connections
TICK_S = 1.0  # the time left is redrawn even without an event
CONFIRM_S = 3.0  # a second `x`, `q` or `del` within it does what the first asked
BUILD_S = 0.05  # seconds from one screen that is mounted unseen to the next
LONG_S = 30.0  # the end of a run that took longer is announced
PROPOSED = re.compile(r"`(workbench (?:advise|run) [^`]+)`")  # a command in a sentence


class WorkbenchApp(Shell):
    """Shows the run that `start_source` starts for a request; it measures nothing itself."""

    TITLE = "workbench"
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        page.label: page.screen for page in PAGES
    }
    BINDINGS: ClassVar[list[BindingType]] = [*KEYS]

    def __init__(
        self,
        start_source: Callable[[Request | str], EventSource],
        request: Request | None = None,
        *,
        kept: Session | None = None,
        starts: bool = True,
        preview: Sequence[Row] = (),
        watched: EventSource | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kept` is an earlier run to show, `watched` a source of this machine's readings; unless
        `starts`, no run can be started.  `start_source` takes a request or a command line."""
        mode = HARDWARE if watched is not None else _mode_asked(request)
        self.DEFAULT_MODE = mode if kept is None else _mode_of(kept)  # type: ignore[misc]
        super().__init__()
        self._start_source = start_source
        self._request = request or Request()  # the one that the form begins with
        self._wanted: Request | str = self._request  # the run that `s` starts
        self._starts, self._watched = starts, watched
        self._unconfirmed: tuple[str, float] | None = None  # the last question, and when
        self._preview = preview  # rows of `request` before the engine has planned them
        self._monotonic = monotonic
        self._over = asyncio.Event()  # set when the current run has ended in any way
        self._leaving = False
        # Whether the screen for this kind of run was opened.
        self._opened = self.DEFAULT_MODE != ADVISOR
        self._dirty = False
        self._painted_at = 0.0
        self._typed = False  # a key since the last tick
        self._able: tuple[object, ...] = ()  # the state for which the key bar was drawn
        # The one shown, and the one raced here.
        self.session = self.raced = kept or self._new_session(replay=watched is not None)
        self._asked = self._wanted  # on the command line
        self._answers = [self.session]  # the runs of that request

    # ----------------------------------------------------------- the run

    def on_mount(self) -> None:
        self.set_interval(REPAINT_S, self._tick)
        self.show_first()

    def shown(self) -> None:
        if self._source is None and not (self._leaving or self.session.ended):
            self._start()
        self._build(PAGES)

    def _build(self, pages: Sequence[Page]) -> None:
        """Mount the other screens one by one, while nothing is measured, to show them sooner."""
        if pages and not (self.session.going or self._leaving):
            self._init_mode(pages[0].label)
            self.set_timer(BUILD_S, partial(self._build, pages[1:]))  # keys come first

    def _new_session(self, *, replay: bool = False) -> Session:
        question = self._wanted.question if isinstance(self._wanted, Request) else None
        return Session(
            replay=replay,
            subject=None if question is None else question.scenario().title,
            monotonic=self._monotonic,
            preview=list(self._preview),
        )

    def action_start(self) -> None:
        """Start the same run again; in a replay, a run of the recorded command."""
        if self.session.going or self._leaving:
            return
        if self.session.replay and self.session.report.started is not None:
            self._wanted, self._preview = self.session.report.started.tool.command, ()
        self._begin()

    def start_command(self, command: str) -> None:
        if self.check_action("new", ()):
            self._wanted, self._preview, self._opened = command, (), False
            self.show_mode(ADVISOR)
            self._begin()

    def _begin(self) -> None:
        """Leave the kept run or the readings that were shown, and start a run."""
        if self._source is not None:
            self.run_worker(self._source.close(), group="source")  # readings have no end
        self.session = self.raced = self._new_session()
        if self._wanted is self._asked:
            self._answers.append(self.session)
        self._start()

    def show_run(self, kept: Session) -> None:
        """Show a kept run instead of the one raced here, until escape."""
        if self.raced.going:  # one was started while the journal was read
            return
        self._show(kept, _mode_of(kept))

    def _show(self, session: Session, mode: str) -> None:
        self.session, self._opened = session, True
        self.show_mode(mode)
        self.repaint()

    @property
    def answer(self) -> Report | None:
        """The report of the last run of the command line's request; None if none has begun."""
        return next((run.report for run in reversed(self._answers) if run.has_begun), None)

    def action_close_run(self) -> None:
        """Show the run that was raced here again, on the list of runs."""
        self._show(self.raced, RUNS)

    def _start(self) -> None:
        self._over.clear()
        self._source, self._watched = self._watched or self._start_source(self._wanted), None
        self.run_worker(self._pump(self._source, self.session), group="source")
        self.repaint()

    async def _pump(self, source: EventSource, session: Session) -> None:
        """Apply the events to the session until there are no more."""
        try:
            async with contextlib.aclosing(source.events()) as stream:
                async for event in stream:
                    session.apply(event)
                    self._dirty = True
                    if isinstance(event, WarningRaised) and event.warning.code in ALARMING:
                        self.complain(event.warning.one_line)  # else only the log shows it
        except EventSourceError as error:
            session.failure = error
        except (KeyError, ValueError) as error:
            # Report.apply refuses an event about a case or scenario that was never announced.
            session.failure = EventSourceError(
                f"an event does not fit the run: {error!r}", "report it with the run's journal"
            )
        finally:
            session.ended = True
            if session is self.raced:
                self._over.set()
            await source.close()
        if not session.replay:
            self.show_title("workbench")
            if session.elapsed_s > LONG_S:
                self.announce(f"workbench: the run has {'failed' if session.failure else 'ended'}")
        self.repaint()
        self._build(PAGES)

    # ------------------------------------------------------ the repaints

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            self._typed = True
        await super().on_event(event)

    def _tick(self) -> None:
        """Repaint after events, and every TICK_S while the clock of a run goes on."""
        if self.is_unread:
            return
        typing, self._typed = self._typed, False  # answers to keys come before events
        is_late = self._monotonic() - self._painted_at >= TICK_S
        if (self._dirty and not typing) or (is_late and (self._dirty or self.session.ticking)):
            self.repaint()

    def repaint(self) -> None:
        """Have the visible screen draw the current state."""
        self._dirty = False
        self._painted_at = self._monotonic()
        if not self._opened and (mode := _mode_of(self.session)) != ADVISOR:
            self._opened = True  # the kind of run is known now
            self.switch_mode(mode)
        session = self.session
        able = session.phase, len(session.report.rows), self.current_mode, session is self.raced
        if able != self._able:  # else the same keys work as before
            self._able = able
            self.screen.refresh_bindings()  # the app's own method does nothing while it mounts
        if (share := session.share) is not None and not session.replay:
            self.show_title(f"workbench {share:.0%}")
        self.view.call_later(self.view.repaint)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        going = self.session.going
        match action:
            case "start":
                session = self.session
                started = session.report.started if session.replay else None
                able = started is None or can_follow(started.tool.command)
                # On Runs the same key starts the chosen run again.
                return not going and self._starts and able and self.current_mode != RUNS
            case "new":
                return not going and self._starts
            case "close_run":
                return self.session is not self.raced
            case "resume":
                return self.session.phase == "paused"
            case "pause":
                return going and self.session.phase not in ("stopping", "paused")
            case "stop":
                return going and self.session.phase != "stopping"
            case "copy":
                return self.view.command() is not None
            case "next_step":
                return not going and self._starts and self._next_step() is not None
            case "export":
                # An export would disturb a run; Runs exports the chosen one.
                can = self.session.report.has_results and not going
                return can and self.current_mode != RUNS
        return True

    # ---------------------------------------------------------- the keys

    async def action_switch_mode(self, mode: str) -> None:
        """Show a screen, and close its details, which belong to the same mode."""
        self._opened = True  # keep the screen that the user has opened
        while mode == self.current_mode and len(self.screen_stack) > 1:
            self.pop_screen()
        await super().action_switch_mode(mode)

    def _next_step(self) -> str | None:
        """The command that the verdict of the selected row proposes."""
        row = self.view.row if "next_step" not in self.view.UNUSED else None
        proposed = row.verdict.next_best if row is not None and row.verdict is not None else ""
        found = PROPOSED.search(proposed)
        return found[1] if found else None

    def action_next_step(self) -> None:
        if (command := self._next_step()) is not None:
            self.start_command(command)

    def action_stop(self) -> None:
        if self.confirmed("x again stops the run; results so far are kept"):
            self._stop()

    def confirmed(self, question: str) -> bool:
        """Whether the user pressed the key again after this question; if not, ask it."""
        now, asked = self._monotonic(), self._unconfirmed
        again = asked is not None and asked[0] == question and now - asked[1] <= CONFIRM_S
        self._unconfirmed = None if again else (question, now)
        if asked is not None:
            self.clear_notifications()  # the earlier question is answered or outdated
        if not again:
            self.notify(question, timeout=CONFIRM_S)
        return again

    def _stop(self) -> None:
        session = self.session
        session.cancelling = True
        # The row stays on all screens, though a run that is over begins with the first.
        session.looked_at = session.looked_at or session.report.current_row
        self.send_control("cancel")
        self.repaint()

    def action_new(self, request: Request | None = None) -> None:
        from .pages.new_run import NewRunScreen  # its imports would delay the first picture

        # The machine and packages of a kept run may differ from those here now.
        is_old = self.raced.replay and self.raced.phase != "watching"
        report = Report() if is_old else self.raced.report
        installed = report.software.packages if report.software else None
        try:
            screen = NewRunScreen(request or self._request, report.machine, installed)
        except WorkloadError as error:  # the user's own workloads cannot be read
            self.complain(str(error))
        else:
            self.push_screen(screen, self.start_other)

    def request_for(self, **asked: Any) -> Request:
        """A request with the devices, interpreter, seed, budget and strictness of the last one."""
        before = self._request
        budget, strict = ("budget_s", "quick", "thorough"), ("strict", "strict_samples")
        kept = ("devices", "python", "seed", *budget, *strict)
        return Request(**asked, **{name: getattr(before, name) for name in kept})

    def start_other(self, request: Request | None) -> None:
        """Start the run that the form describes, and show its screen."""
        if request is None:
            return
        self._request, self._wanted, self._preview = request, request, ()
        self._opened = True
        self.show_mode(_mode_asked(request))
        self._begin()

    def action_interrupt(self) -> None:
        """Leave; a second call exits at once, since the engine ends when its stdin closes.

        A terminal that closes calls twice, by a signal and by the end of its input.
        """
        if not self._leaving:
            self._begin_to_leave()
        elif not self.is_lost:
            self.hurry(CUT_SHORT if self.raced.going else self.raced.exit_code)

    def action_leave(self) -> None:
        going = self.raced.going and not self._leaving
        if not going or self.confirmed("q again stops the run and quits; results are kept"):
            self._begin_to_leave()

    def _begin_to_leave(self) -> None:
        if not self._leaving:
            self._leaving = True
            self.run_worker(self._leave(), group="leave")

    async def _leave(self) -> None:
        """Stop a run in progress, wait for its results, and exit."""
        session, code = self.raced, self.raced.exit_code
        if session.going and self._source is not None:
            self._stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), CANCEL_S)
            code = session.exit_code if session.report.finished else CUT_SHORT
        if self._source is not None:
            await self._source.close()
        self.exit(return_code=code)


def _mode_asked(request: Request | None) -> str:
    """The screen on which a run of this request begins."""
    if request is None or not request.workloads:
        return ADVISOR if request is None or request.question is None else MODEL
    return RUN


def _mode_of(session: Session) -> str:
    """The screen of a run of a model or code, of a plain `run`, or of scenarios."""
    rows = session.report.rows.values()
    plain = any(not (row.plan.owes_verdict or row.plan.is_crossover_point) for row in rows)
    return MODEL if session.has_model else RUN if plain else ADVISOR


def run_tui(
    start_source: Callable[[Request | str], EventSource],
    request: Request,
    *,
    finish: Callable[[Report, Report | None, int], int],
    **options: Any,
) -> int:
    """Show runs until the user quits, and return the exit code.

    `start_source` starts a run: first `request`, later those from the form; `options` are those of
    `WorkbenchApp`.  When the TUI has closed, the summary of the last run goes to stdout, except in
    a replay.  `finish` takes the report of that run, the report of the last run of `request` (None
    if none has begun) and the exit code, and returns the code to use.
    """
    app = WorkbenchApp(start_source, request, **options)
    code = app.show()
    raced = app.raced
    if raced.replay:
        return code
    from workbench.export.text import summary_text

    report = raced.report
    if summary := summary_text(report, shutil.get_terminal_size().columns):
        sys.stdout.write(f"{summary}\n")
    return finish(report, app.answer, code)
