"""The command palette: its entries, and the runs that open from it."""

import scenes
from kept_runs import keep
from stage import held, opened, press, replayed, settle, settled, text

from screens.app import WorkbenchApp
from screens.pages.palette import Entries
from screens.widgets.table import Table
from workbench import catalog
from workbench.files import config

SIZE = (120, 40)


async def test_the_palette_finds_rows_screens_and_themes_and_a_theme_is_remembered() -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        for words, wanted in (("branching", "[3 Advisor]"), ("screen: hard", "[1 Hardware]")):
            await pilot.press("ctrl+p")
            await pilot.pause()
            for letter in words:
                await pilot.press({" ": "space", ":": "colon"}.get(letter, letter))
            while not app.screen.query("CommandList")[0].option_count:
                await pilot.pause(0.01)
            await press(pilot, "enter")
            assert wanted in text(pilot)
        await press(pilot, "3")
        assert app.screen.query_one(Table).cursor == "branching"
        app.choose_theme("nord")
        await settle(pilot)
        assert app.theme == "nord" and config.load() == ({"theme": "nord"}, [])
    assert replayed(scenes.h200()).theme == "nord"


def kinds(app: WorkbenchApp) -> set[str]:
    return {entry.text.split(":")[0] for entry in Entries(app.screen)._entries()}


async def test_the_palette_offers_workloads_and_recent_runs_only_between_runs() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        assert "Workload" not in kinds(app)
        await press(pilot, "x", "x")
        assert {"Workload", "Row", "Screen", "Theme", "Export"} <= kinds(app)


async def test_the_palette_tells_the_sizes_of_a_sweep_apart() -> None:
    async with settled(opened("run-sweep"), SIZE) as pilot:
        found = {entry.text for entry in Entries(pilot.app.screen)._entries()}
        assert {"Row: Matrix product, n=256", "Row: Matrix product, n=512"} <= found


async def test_the_palette_opens_where_a_folder_of_workloads_is_gone(monkeypatch) -> None:
    app = replayed(scenes.cpu_only())
    monkeypatch.setenv(catalog.ENV, "/none/such")
    async with settled(app, SIZE):
        assert {"Row", "Screen", "Theme"} <= kinds(app) and "Workload" not in kinds(app)


async def test_an_earlier_run_opens_from_the_palette_and_the_last_result_is_not_lost() -> None:
    earlier = keep("20261121-100000-bbbb", scenes.cpu_only())
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        mine = app.session
        app.read_run(earlier.with_name("gone.jsonl"), app.show_run)
        await app.workers.wait_for_complete([w for w in app.workers if w.group == "read"])
        assert app.session is mine and app._notifications
        app.read_run(earlier, app.show_run)
        await app.workers.wait_for_complete([w for w in app.workers if w.group == "read"])
        await settle(pilot)
        assert app.session.replay and "recorded, done" in text(pilot)
        assert app.raced is mine
        await press(pilot, "escape")
        assert app.session is mine
