"""The screen of a fleet: its tables, its keys, and what comes while jobs run."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from stage import at_both_sizes
from textual.app import App
from textual.pilot import Pilot
from textual.screen import ModalScreen

from benchmarks import fleet as made_up
from screens.fleet import FleetApp
from workbench.advisor.fleet import fleet_document, priced
from workbench.cli.program import head
from workbench.fleet.reader import read_folder
from workbench.planning.usage import UsageError
from workbench.records.fleet import FleetDocument

NOW = 1_795_338_000.0 + 900


@pytest.fixture
def read(tmp_path: Path) -> Callable[[], FleetDocument]:
    """A fleet of which one job runs and one has failed."""
    made_up.make(tmp_path, 8, {"epyc-old": 1.0, "epyc-new": 0.5, "a100": 0.2, "h100": 0.19})
    for name, file in (("a100-2", "log.txt"), ("h100-2", "exit_code")):
        at = tmp_path / "jobs" / name
        (at / "document.json").unlink()
        made_up.write(at / file, "1" if file == "exit_code" else "")
    made_up.write(tmp_path / "jobs" / "h100-2" / "log.txt", "Segmentation fault")

    def collected() -> FleetDocument:
        found = fleet_document(head("fleet"), read_folder(tmp_path, NOW))
        return priced(found, {"cpu": 0.1})

    return collected


def text(app: FleetApp) -> str:
    return str(app.query_one("#fleet").render())


@at_both_sizes
def test_the_tables_of_a_fleet(snap_compare, read, size) -> None:
    assert snap_compare(FleetApp(read, read()), terminal_size=size)


async def test_why_a_node_has_not_answered_has_room_in_80_columns(read) -> None:
    app = FleetApp(read, read())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        lines = text(app).splitlines()
    said = "h100-2: failed: it ended without a document, exit code 1 | Segmentation fault"
    assert said in " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 80
    assert next(n for n, line in enumerate(lines) if "Segmentation" in line) < 23


async def pressed(app: FleetApp, pilot: Pilot[None], *keys: str) -> str:
    await pilot.press(*keys)
    await app.workers.wait_for_complete()
    await pilot.pause()
    return text(app)


async def test_columns_that_have_no_room_come_by_the_arrow_keys(read) -> None:
    app = FleetApp(read, read())
    async with app.run_test(size=(60, 30)) as pilot:
        await pilot.pause()
        assert "either: h100, a100" in text(app) and "h100   " not in text(app).splitlines()[1]
        assert text(app).splitlines()[1].split()[-1] != "h100"
        shifted = await pressed(app, pilot, *["right"] * 5)
        assert shifted.splitlines()[1].split() == ["Scenario", "a100", "h100"]
        assert (await pressed(app, pilot, *["right"] * 20)).splitlines()[1].split()[-1] == "h100"
        back = await pressed(app, pilot, *["left"] * 40)
        assert back.splitlines()[1].split()[:4] == ["Scenario", "Node", "type", "Lead"]


async def test_the_folder_is_read_again_by_key_and_while_jobs_run(read, tmp_path) -> None:
    app = FleetApp(read, read())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "6 of 8 nodes have answered; 1 running, 1 failed." in text(app)
        made_up.write(tmp_path / "jobs/a100-2/document.json", made_up.document(0.2, "n6"))
        assert "7 of 8" in await pressed(app, pilot, "r")
        (tmp_path / "jobs/a100-2/document.json").unlink()
        app.reread_while_going()  # every job has ended: nothing is read
        assert "7 of 8" in await pressed(app, pilot)
        assert "6 of 8" in await pressed(app, pilot, "r")
        made_up.write(tmp_path / "jobs/a100-2/document.json", made_up.document(0.2, "n6"))
        app.reread_while_going()
        assert "7 of 8" in await pressed(app, pilot)


@pytest.mark.parametrize("key", ["q", "escape", "ctrl+c", "ctrl+q"])
async def test_it_ends_by_key(read, key: str) -> None:
    app = FleetApp(read, read())
    async with app.run_test() as pilot:
        assert app.screen.active_bindings[key].binding.action == "interrupt"
        await pilot.press(key)
    assert app.return_code == 0


async def test_a_folder_that_is_gone_leaves_what_was_shown(read) -> None:
    def gone() -> FleetDocument:
        raise UsageError("the folder is gone")

    app = FleetApp(gone, read())
    async with app.run_test(size=(120, 40)) as pilot:
        assert "6 of 8" in await pressed(app, pilot, "r")
        assert [each.message for each in app._notifications] == ["the folder is gone"]


async def test_no_second_reading_begins_while_one_is_going(read) -> None:
    begun, stall, found = [], threading.Event(), read()

    def slow() -> FleetDocument:
        begun.append(threading.current_thread())
        stall.wait(20)
        return found

    app = FleetApp(slow, found)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        for _ in range(3):  # the file system stalls for longer than the time between two
            app.reread_while_going()
            await pilot.pause()
        stall.set()
        await pressed(app, pilot)
        assert len(begun) == 1
        app.reread_while_going()
        await pressed(app, pilot)
        assert len(begun) == 2


async def test_ctrl_z_suspends_above_the_screen_too(read, monkeypatch: pytest.MonkeyPatch) -> None:
    suspended: list[App[None]] = []
    monkeypatch.setattr(App, "action_suspend_process", lambda app: suspended.append(app))
    app = FleetApp(read, read())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        app.push_screen(ModalScreen())
        await pilot.pause()
        await pilot.press("ctrl+z")
        assert suspended == [app]
