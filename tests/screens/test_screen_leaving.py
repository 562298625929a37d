"""The end of the application: in the middle of anything, and after an error of our own."""

import asyncio
import os
import random
import select
import signal
import threading
import tty
from types import SimpleNamespace

import pytest
import scenes
from stage import Feed, HeldFeed, held, left, press, replayed, settle, settled
from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from screens import app as app_module
from screens.app import WorkbenchApp, run_tui
from screens.pages.help import HelpScreen
from screens.state.event_source import EventSourceError
from screens.terminal import KEEP_TITLE, RESTORE_TITLE, TerminalApp, TerminalDriver
from workbench.engine.exit_codes import FAILED, USAGE
from workbench.planning.request import Request
from workbench.records.events import RunFinished
from workbench.report.report import Report

SIZE = (80, 24)
OPENERS = {"question_mark": "?", "n": "n", "enter": None, "1": "1", "2": "2"}


@pytest.fixture
def headless(monkeypatch: pytest.MonkeyPatch) -> None:
    """`show` without a terminal."""
    monkeypatch.setattr(TerminalApp, "run", lambda app: App.run(app, headless=True, size=SIZE))


@pytest.mark.parametrize("turns", [0, 2, 4, 6])
@pytest.mark.parametrize("opener", OPENERS)
async def test_leaving_while_a_screen_opens_is_no_error(opener: str, turns: int) -> None:
    app = held(scenes.midway())[0] if turns % 4 else replayed(scenes.h200())
    async with app.run_test(size=SIZE) as pilot:  # raises what went wrong in the application
        await pilot.pause()
        app.post_message(events.Key(opener, OPENERS[opener]))
        for _ in range(turns):
            await asyncio.sleep(0)
        app.post_message(events.Key("ctrl+c", None))
        await left(app)


async def test_no_order_and_no_haste_of_keys_is_an_error() -> None:
    chance, keys = random.Random(1), {**OPENERS, "escape": None, "tab": "\t", "x": "x", "s": "s"}
    async with held(scenes.midway())[0].run_test(size=SIZE) as pilot:
        await pilot.pause()
        for _ in range(50):
            key = chance.choice(list(keys))
            pilot.app.post_message(events.Key(key, keys[key]))
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.01]))
        pilot.app.post_message(events.Key("ctrl+c", None))
        await left(pilot.app)


def test_an_error_of_ours_is_one_line_and_keeps_the_run(headless, monkeypatch, capsys) -> None:
    kept: list[int] = []

    def broken(app: App[None]) -> None:
        app.call_later(app.push_screen, HelpScreen([], ""))

    def fails(_: HelpScreen) -> None:
        raise RuntimeError("a bug\nof ours")

    monkeypatch.setattr(HelpScreen, "on_mount", fails)
    monkeypatch.setattr("screens.app.WorkbenchApp.on_ready", broken, raising=False)
    code = run_tui(
        lambda _: Feed(scenes.midway()),
        Request(),
        finish=lambda _, __, code: kept.append(code) or code,
    )
    assert code == 1
    assert kept == [1]
    said = capsys.readouterr().err
    assert said == (
        "workbench: internal error: RuntimeError: a bug of ours (details: WORKBENCH_DEBUG=1)\n"
    )


def test_a_panic_of_textual_is_a_failure_too(headless: None, monkeypatch) -> None:
    """As after an error in a thread of its own, of which it leaves no exit code."""
    monkeypatch.setattr(
        "screens.app.WorkbenchApp.on_ready", lambda app: app.panic("x"), raising=False
    )
    source = Feed(scenes.midway())
    assert run_tui(lambda _: source, Request(), finish=lambda _, __, code: code) == 1


def never_begun() -> HeldFeed:
    return HeldFeed([], EventSourceError("the engine ended", "the log says why"))


def refused() -> HeldFeed:
    """A run that turns out to be impossible once the hardware is known."""
    begun = scenes.midway()[:3]
    end = RunFinished(
        at_s=1.0, status="failed", finished_at="2026-11-21T15:31:10Z", duration_s=1.0, exit_code=1
    )
    failure = EventSourceError("there is no cuda:0 here", "use another device", code=USAGE)
    return HeldFeed([*begun, end], failure)


def begun() -> HeldFeed:
    return HeldFeed(scenes.midway())


@pytest.mark.parametrize(
    ("later", "again"),
    [(begun, False), (never_begun, True), (never_begun, False), (refused, True), (refused, False)],
)
async def test_another_run_or_one_without_a_result_takes_no_output_away(later, again) -> None:
    feeds = [Feed(scenes.cpu_only()), later()]
    app = WorkbenchApp(lambda _: feeds.pop(0), Request(quick=True), monotonic=lambda: 0.0)
    async with settled(app) as pilot:
        first = app.session
        if again:
            app.action_start()
        else:
            app.start_other(Request(workloads=("matmul",)))
        await settle(pilot)
        assert app.raced is not first and app.answer is first.report


async def test_a_run_that_is_refused_late_is_a_usage_error_without_a_document() -> None:
    app = WorkbenchApp(lambda _: refused(), Request(quick=True), monotonic=lambda: 0.0)
    async with settled(app):
        assert app.session.exit_code == USAGE and app.answer is None


@pytest.mark.parametrize("first_begins", [True, False])
def test_the_end_gets_the_run_that_was_asked_for_whichever_began(
    headless: None, monkeypatch: pytest.MonkeyPatch, first_begins: bool
) -> None:
    sources = [Feed(scenes.cpu_only()), never_begun()]
    feeds = sources if first_begins else sources[::-1]
    got: list[Report | None] = []

    async def another(app: WorkbenchApp) -> None:
        await app._over.wait()
        app.start_other(Request(workloads=("matmul",)))
        await app._over.wait()
        app.action_leave()

    monkeypatch.setattr(
        WorkbenchApp, "on_ready", lambda app: app.run_worker(another(app)), raising=False
    )
    code = run_tui(
        lambda _: feeds.pop(0),
        Request(quick=True),
        finish=lambda _, asked, code: got.append(asked) or code,
    )
    (asked,) = got
    assert (asked is not None) is first_begins
    assert code == (FAILED if first_begins else 0)


@pytest.mark.parametrize("lost", [True, False])
async def test_a_terminal_that_closes_is_no_second_ctrl_c(lost: bool, monkeypatch) -> None:
    monkeypatch.setattr(TerminalApp, "is_lost", property(lambda _: lost))
    hurried: list[int] = []
    app, feed = held(scenes.midway())
    feed.deaf = True
    async with settled(app, SIZE) as pilot:
        monkeypatch.setattr(app, "hurry", hurried.append)
        app.action_interrupt()
        app.action_interrupt()
        assert hurried == ([] if lost else [130])
        await pilot.pause()
        app.exit(return_code=0)


def test_a_suspend_gives_the_title_back_and_the_next_one_keeps_it_again(monkeypatch) -> None:
    app, written = held(scenes.midway())[0], []
    driver = object.__new__(TerminalDriver)
    driver._app = app
    monkeypatch.setattr(LinuxDriver, "stop_application_mode", lambda _: None)
    monkeypatch.setattr(driver, "write", written.append)
    monkeypatch.setattr(app, "write_to_terminal", written.append)
    app.show_title("a")
    driver.stop_application_mode()
    app.show_title("a")
    assert written == [f"{KEEP_TITLE}\x1b]2;a\x07", RESTORE_TITLE, f"{KEEP_TITLE}\x1b]2;a\x07"]


def test_what_the_terminal_takes_at_once_waits_for_no_thread_and_the_rest_follows() -> None:
    master, slave = os.openpty()
    tty.setraw(slave)
    os.set_blocking(slave, False)
    driver, left = object.__new__(TerminalDriver), list[bytes]()
    driver._direct, driver._given, driver._unbuffered = slave, 0, SimpleNamespace(done=0)
    driver._writer_thread = SimpleNamespace(write=left.append)
    try:
        driver.write("a")
        assert (os.read(master, 9), left) == (b"a", [])
        driver.write("b" * 100_000)
        assert len(left) == 1 and 0 < len(left[0]) < 100_000
        while select.select([master], [], [], 0.0)[0]:
            os.read(master, 1 << 16)
        driver.write("c")
        assert left[1:] == [b"c"], "not before what the thread has"
        driver._unbuffered.done = 2
        driver.write("d")
        assert (os.read(master, 9), len(left)) == (b"d", 2)
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quitting_after_a_run_returns_what_the_run_returned(key: str) -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await press(pilot, key)
    assert app.return_code == 0


@pytest.mark.parametrize("keys", [["q", "q"], ["ctrl+c"]])
async def test_quitting_during_a_run_cancels_it_and_returns_130(keys: list[str]) -> None:
    app, feed = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, *keys[:-1])
        assert not feed.said, "q asks at first"
        await press(pilot, keys[-1])
    assert feed.said == ["cancel"]
    assert app.session.report.finished is not None
    assert app.return_code == 130


async def test_an_engine_that_does_not_answer_holds_nobody_up(monkeypatch) -> None:
    monkeypatch.setattr(app_module, "CANCEL_S", 0.05)
    app, feed = held(scenes.midway())
    feed.deaf = True
    async with settled(app, SIZE) as pilot:
        await press(pilot, "q", "q")
        await pilot._wait_for_screen()
        while app.is_running and not feed.closed:
            await pilot.pause(0.01)
    assert app.return_code == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signals_end_in_the_same_order(number: signal.Signals) -> None:
    app, feed = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        os.kill(os.getpid(), number)
        while not feed.closed:
            await pilot.pause(0.01)
        await settle(pilot)
    assert feed.said == ["cancel"]
    assert app.return_code == 130


@pytest.mark.parametrize(
    "bad", ["\x1b[9999999999u", "\x1b[1114112u", "\x1b[97;1:3u", "\x1b[97;5;9999999999u"]
)
def test_a_key_that_cannot_be_read_takes_no_other_with_it(bad: str, monkeypatch) -> None:
    """Nor what the terminal has said before, here that it counts in pixels, ten by ten a cell."""
    here, there = os.pipe()
    driver, got, left = object.__new__(TerminalDriver), list[events.Event](), list[object]()
    driver.fileno, driver.exit_event = here, threading.Event()
    driver._app = SimpleNamespace(call_later=left.append)
    driver._leave = lambda: None
    monkeypatch.setattr(driver, "process_message", got.append)
    pixels, moved = "\x1b[48;24;80;240;800t", "\x1b[<35;401;201M"
    os.write(there, f"{pixels}a{bad}b\x1b[A{moved}".encode())
    os.close(there)
    try:
        driver.run_input_thread()
    finally:
        os.close(here)
    assert [event.key for event in got if isinstance(event, events.Key)] == ["a", "b", "up"]
    assert [(e.x, e.y) for e in got if isinstance(e, events.MouseMove)] == [(40, 20)]
    assert driver.is_lost and left == [driver._leave]
