"""The end of the application: in the middle of anything, and after an error of our own."""

from __future__ import annotations

import asyncio
import random

import pytest
import scenes
from stage import HeldFeed, held, replayed, settle
from textual import events
from textual.app import App

from screens.app import WorkbenchApp, run_tui
from screens.pages.help import HelpScreen
from screens.state.event_source import ReplaySource
from screens.terminal import TerminalApp
from workbench.planning.request import Request

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
        while app.return_code is None:
            await asyncio.sleep(0.005)


async def test_no_order_and_no_haste_of_keys_is_an_error() -> None:
    chance, keys = random.Random(1), {**OPENERS, "escape": None, "tab": "\t", "x": "x", "s": "s"}
    async with held(scenes.midway())[0].run_test(size=SIZE) as pilot:
        await pilot.pause()
        for _ in range(50):
            key = chance.choice(list(keys))
            pilot.app.post_message(events.Key(key, keys[key]))
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.01]))
        pilot.app.post_message(events.Key("ctrl+c", None))
        while pilot.app.return_code is None:
            await asyncio.sleep(0.005)


def test_an_error_of_ours_is_one_line_and_keeps_the_run(
    headless: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: list[int] = []

    def broken(app: App[None]) -> None:
        app.call_later(app.push_screen, HelpScreen([]))

    def fails(_: HelpScreen) -> None:
        raise RuntimeError("a bug\nof ours")

    monkeypatch.setattr(HelpScreen, "on_mount", fails)
    monkeypatch.setattr("screens.app.WorkbenchApp.on_ready", broken, raising=False)
    code = run_tui(
        lambda _: ReplaySource(scenes.midway()),
        finish=lambda _, __, code: kept.append(code) or code,
    )
    assert code == 1
    assert kept == [1]
    said = capsys.readouterr().err
    assert said == (
        "workbench: internal error: RuntimeError: a bug of ours (details: WORKBENCH_DEBUG=1)\n"
    )


def test_a_panic_of_textual_is_a_failure_too(
    headless: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an error in a thread of its own, of which it leaves no exit code."""
    monkeypatch.setattr(
        "screens.app.WorkbenchApp.on_ready", lambda app: app.panic("x"), raising=False
    )
    assert run_tui(lambda _: ReplaySource(scenes.midway())) == 1


async def test_output_is_of_the_run_that_the_command_line_asked_for() -> None:
    feeds = [HeldFeed(scenes.cpu_only()), HeldFeed(scenes.midway()), HeldFeed(scenes.h200())]
    app = WorkbenchApp(lambda _: feeds.pop(0), Request(quick=True), monotonic=lambda: 0.0)
    async with app.run_test() as pilot:
        await settle(pilot)
        first = app.session
        app.start_other(Request(workloads=("matmul",)))
        await settle(pilot)
        assert app.raced is not first and app.asked is first
