"""The program suspended, or its terminal behind other windows."""

import pytest
import scenes
from stage import held, loaded, press, replayed, settle, settled
from textual._compositor import LayoutUpdate
from textual.app import App
from textual.events import AppBlur, AppFocus

from screens.widgets.table import Table

SIZE = (80, 24)


async def test_a_screen_that_opened_in_the_background_has_its_keys() -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        app.post_message(AppBlur())
        await settle(pilot)
        app.switch_mode("Run")
        await settle(pilot)
        app.post_message(AppFocus())
        await settle(pilot)
        before = app.screen.query_one(Table).cursor
        await press(pilot, "down")
        assert app.screen.query_one(Table).cursor != before


@pytest.mark.parametrize(("events", "phase"), [(None, "running"), (1, "starting")])
async def test_a_suspend_pauses_the_run_and_coming_back_resumes_it(events, phase) -> None:
    app, feed = held(scenes.midway()[:events])
    async with settled(app, SIZE) as pilot:
        assert app.session.phase == phase
        app.app_suspend_signal.publish(app)
        assert feed.said == ["pause"]
        app.app_resume_signal.publish(app)
        assert feed.said == ["pause", "resume"]
        await press(pilot, "space")
        app.app_suspend_signal.publish(app)
        app.app_resume_signal.publish(app)
        assert feed.said == ["pause", "resume", "pause"], "paused by hand stays paused"


@pytest.mark.parametrize("keys", [(), ("question_mark",), ("n",), ("n", "enter"), ("ctrl+p",)])
async def test_ctrl_z_suspends_above_the_screens_too(keys: tuple[str, ...], monkeypatch) -> None:
    suspended: list[App[None]] = []
    monkeypatch.setattr(App, "action_suspend_process", lambda app: suspended.append(app))
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await press(pilot, *keys)
        assert len(app.screen_stack) == 1 + bool(keys)
        await pilot.press("ctrl+z")
        assert suspended == [app]


@pytest.mark.parametrize("keys", [(), ("question_mark",)])
async def test_everything_is_drawn_again_after_a_suspend(keys, monkeypatch) -> None:
    drawn: list[object] = []
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await press(pilot, *keys)
        await loaded(pilot)
        monkeypatch.setattr(app, "_display", lambda _, update: drawn.append(type(update)))
        await settle(pilot)
        assert LayoutUpdate not in drawn
        app._resume_signal()
        await settle(pilot)
        assert LayoutUpdate in drawn
