"""Runs the app in tests: recorded events, a clock that stands still, no child process."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual._context import active_app
from textual.app import App
from textual.events import Key
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import Input

from screens.app import WorkbenchApp
from screens.state.event_source import EngineSource, EventSourceError
from screens.state.session import Session
from workbench.records import events as ev
from workbench.report.report import Report
from workbench.report.run_files import OpenedRun, read_journal

JOURNALS = Path(__file__).parent / "fixtures" / "journals"
STILL_S = 0.02  # longer than between two steps of an animation
LOOK_S = 0.002  # between two looks whether an app is idle
BUSY = 0.1  # share of that time in which an idle process may compute

at_both_sizes = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])


class Feed:
    """A run whose events are all there at once."""

    def __init__(self, events: Sequence[ev.AnyEvent]) -> None:
        self._events = events

    async def events(self) -> AsyncGenerator[ev.AnyEvent, None]:
        for event in self._events:
            yield event

    def send(self, control: str) -> None:
        """It is over before anyone could control it."""

    async def close(self) -> None:
        """There is nothing to close."""


class HeldFeed:
    """A run that stands still until the test sends a control word, as to an engine."""

    def __init__(
        self, events: Sequence[ev.AnyEvent], failure: EventSourceError | None = None
    ) -> None:
        self.said: list[str] = []
        self.closed = False
        self.deaf = False
        self._events = events
        self._failure = failure
        self._more: asyncio.Queue[ev.AnyEvent | None] = asyncio.Queue()
        self._at_s = events[-1].at_s if events else 0.0

    async def events(self) -> AsyncGenerator[ev.AnyEvent, None]:
        for event in self._events:
            yield event
        if self._failure is not None:
            raise self._failure
        while (event := await self._more.get()) is not None:
            yield event

    def send(self, control: str) -> None:
        self.said.append(control)
        if self.deaf:
            return
        if control == "cancel":
            self._more.put_nowait(
                ev.RunFinished(
                    at_s=self._at_s,
                    status="cancelled",
                    finished_at="2026-11-21T15:31:10Z",
                    duration_s=self._at_s,
                    exit_code=130,
                )
            )
            self._more.put_nowait(None)
        else:
            status = "paused" if control == "pause" else "running"
            self._more.put_nowait(ev.StatusChanged(at_s=self._at_s, status=status))

    async def close(self) -> None:
        self.closed = True
        self._more.put_nowait(None)


def kept(events: Sequence[ev.AnyEvent]) -> Session:
    """The run of these events, as it is opened from its journal."""
    return Session.of(OpenedRun(Report.of(events), list(events)))


def replayed(events: Sequence[ev.AnyEvent], *, replay: bool = False) -> WorkbenchApp:
    """An app whose run is over before anyone looks."""
    return WorkbenchApp(
        lambda _: Feed(events),
        kept=kept(events) if replay else None,
        starts=not replay,
        monotonic=lambda: 0.0,
    )


def opened(name: str) -> WorkbenchApp:
    """An app on a kept journal, as `workbench open FILE` shows it."""
    kept = Session.of(read_journal(JOURNALS / f"{name}.jsonl"))
    return WorkbenchApp(EngineSource, kept=kept, starts=False)


def held(
    events: Sequence[ev.AnyEvent], failure: EventSourceError | None = None
) -> tuple[WorkbenchApp, HeldFeed]:
    """An app in the middle of a run, and its event source, which records control words."""
    feed = HeldFeed(events, failure)
    return WorkbenchApp(lambda _: feed, monotonic=lambda: 0.0), feed


async def wait_for_idle(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """Textual's wait of the same name, in shorter steps: until the process hardly computes, and no
    widget has a message that waits, which a busy machine may delay."""
    app, begun = active_app.get(), time.monotonic()
    while time.monotonic() - begun < max_sleep:
        computed = time.process_time()
        await asyncio.sleep(LOOK_S)
        if time.process_time() - computed > BUSY * LOOK_S or time.monotonic() - begun < min_sleep:
            continue
        if not any(p.message_queue_size or p._next_callbacks for p in (app, *app._registry)):
            break


async def left(app: App[Any]) -> None:
    """Wait until the application has left, which it announces to nothing."""
    while app.return_code is None:
        await asyncio.sleep(LOOK_S)


async def settle(pilot: Pilot[Any]) -> None:
    """Wait until all events are in, and everything that follows from them is drawn.

    Textual defers some drawing to a timer (`UPDATE_PERIOD`): a picture counts as finished when it
    has stayed the same for several times as long.
    """
    app = pilot.app
    assert isinstance(app, WorkbenchApp)
    await pilot.pause()
    if app._dirty:
        app.repaint()
    shown, since = "", time.monotonic()
    while time.monotonic() - since < STILL_S:
        await wait_for_idle()
        await app.animator.wait_until_complete()
        app.screen._on_timer_update()  # as `pilot.pause` does
        if (now := text(pilot)) != shown:
            shown, since = now, time.monotonic()


@asynccontextmanager
async def settled(
    app: App[Any], size: tuple[int, int] = (80, 24)
) -> AsyncGenerator[Pilot[Any], None]:
    """The app in a terminal, once everything is drawn."""
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        yield pilot


async def loaded(pilot: Pilot[Any]) -> None:
    """Wait for the threads that read journals."""
    await settle(pilot)
    while any(worker.is_running and worker.group != "source" for worker in pilot.app.workers):
        await pilot.pause(0.01)
    await settle(pilot)


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Press keys as a person does: wait for a new screen before the next key, but not between the
    letters of a word."""
    for key in keys:
        if len(key) == 1 and isinstance(pilot.app.focused, Input):
            pilot.app.post_message(Key(_character_to_key(key), key))
            continue
        await pilot.press(key)
        if key in ("1", "2", "3", "4", "5", "6", "enter"):
            await settle(pilot)
    await settle(pilot)


def text(pilot: Pilot[Any]) -> str:
    """The text on the screen, as plain lines."""
    screen = pilot.app.screen
    width, height = pilot.app.size
    strips = screen._compositor.render_strips()
    lines = ["".join(segment.text for segment in strip) for strip in strips]
    return "\n".join(line[:width].rstrip() for line in lines[:height])


async def click_on(pilot: Pilot[None], words: str) -> None:
    """Click on the second letter of these words."""
    lines = text(pilot).splitlines()
    y = next(y for y, line in enumerate(lines) if words in line)
    await pilot.click(offset=(lines[y].index(words) + 1, y))
    await settle(pilot)
