"""The list of kept runs, and two of them compared."""

import fcntl
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import machines
import pytest
import scenes
from kept_runs import keep, keep_five
from stage import Feed, HeldFeed, held, loaded, press, replayed, settle, settled, text
from textual.pilot import Pilot

from screens.app import WorkbenchApp
from screens.pages import palette
from screens.pages.compare import CompareScreen
from screens.pages.runs import PAGE, RunsScreen
from screens.state.event_source import WatchSource
from screens.state.session import Session
from screens.widgets.drawn import Drawn
from screens.widgets.table import Table
from workbench.machine.snapshots import Snapshot
from workbench.records import events as ev
from workbench.records.comparison import RunSummary
from workbench.records.errors import JournalError
from workbench.records.machine import HostReading
from workbench.report import history, journal
from workbench.report.run_files import read_journal

SIZES = [
    pytest.param((80, 24), id="80x24"),
    pytest.param((120, 40), id="120x40"),
    pytest.param((60, 20), id="60x20", marks=pytest.mark.sizes),
    pytest.param((200, 60), id="200x60", marks=pytest.mark.sizes),
]
SIZE = (120, 40)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    journal.runs_folder().mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return journal.runs_folder()


@pytest.fixture
def kept(folder: Path) -> Path:
    return keep_five()


def cursor(pilot: Pilot[None]) -> str | None:
    return pilot.app.screen.query_one(Table).cursor


async def open_runs(pilot: Pilot[None]) -> None:
    """Go to the Runs screen, and wait until the index is read."""
    await settle(pilot)
    await press(pilot, "5")
    await loaded(pilot)


@asynccontextmanager
async def on_runs(
    app: WorkbenchApp | None = None, size: tuple[int, int] = SIZE
) -> AsyncGenerator[Pilot[None], None]:
    """The Runs screen, of an app whose run is over where none is given."""
    async with settled(app or replayed(scenes.cpu_only()), size) as pilot:
        await open_runs(pilot)
        yield pilot


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", [(), ("v", "down", "down", "v", "c")], ids=["list", "compared"])
def test_the_runs(snap_compare, kept, size, keys) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await open_runs(pilot)
        await press(pilot, *keys)
        await loaded(pilot)

    app = replayed(scenes.cpu_only())
    assert snap_compare(app, terminal_size=size, run_before=before)


async def test_a_resize_just_after_another_run_was_opened_still_draws_the_row_before(
    folder: Path,
) -> None:
    """The title is drawn again for its new width before the screen shows the other run."""
    opened = read_journal(keep("20261121-100000-bbbb", scenes.cpu_only()))
    app = replayed(scenes.sweep())
    async with settled(app, SIZE) as pilot:
        title = app.screen.query_one("#row-title", Drawn)
        app.show_run(Session.of(opened))
        title.on_resize()
        assert "n=2048" in title.render().plain
        await settle(pilot)
        assert "recorded, done" in text(pilot)


async def test_without_a_run_it_says_how_to_get_one() -> None:
    async with on_runs() as pilot:
        assert "No run is kept yet: n starts one" in text(pilot)


async def test_where_no_run_can_be_kept_it_says_so(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    async with on_runs() as pilot:
        assert "Runs are not kept: set XDG_STATE_HOME" in text(pilot)
        assert "n starts one" not in text(pilot)


async def test_s_starts_the_command_of_the_chosen_run_again(kept: Path) -> None:
    asked: list[object] = []

    def start(request: object) -> HeldFeed:
        asked.append(request)
        return HeldFeed(scenes.cpu_only() if len(asked) == 1 else scenes.midway())

    app = WorkbenchApp(start, monotonic=lambda: 0.0)
    async with on_runs(app) as pilot:
        assert "s Start" in text(pilot)
        await press(pilot, "down", "down", "s")
        await loaded(pilot)
        assert (
            asked[1]
            == read_journal(kept / "20261121-100000-bbbb.jsonl").report.started.tool.command
        )
        assert "racing" in text(pilot) and "[3 Advisor]" in text(pilot)
        await press(pilot, "5", "s")
        await loaded(pilot)
        assert len(asked) == 2 and "s Start" not in text(pilot)


async def test_s_starts_no_other_run_where_the_chosen_one_cannot_be(kept: Path) -> None:
    asked: list[object] = []
    app = WorkbenchApp(
        lambda request: asked.append(request) or Feed(scenes.cpu_only()), monotonic=lambda: 0.0
    )
    async with on_runs(app) as pilot:
        await press(pilot, "end")
        assert cursor(pilot).startswith("20250101")
        await press(pilot, "s", "home", "v", "down", "v", "c")
        await loaded(pilot)
        assert isinstance(app.screen, CompareScreen)
        await press(pilot, "s")
        await loaded(pilot)
        assert len(asked) == 1


async def test_ceilings_are_not_offered_again(kept: Path) -> None:
    keep("20261124-090000-aaaa", scenes.cpu_only(), "workbench ceilings --again")
    app = replayed(scenes.cpu_only())
    async with on_runs(app) as pilot:
        assert "s Start" not in text(pilot).splitlines()[-1]
        await press(pilot, "enter")
        await loaded(pilot)
        assert "recorded" in text(pilot) and "s Start" not in text(pilot)


async def test_an_opened_run_stays_while_a_watch_goes_on(kept: Path) -> None:
    again, is_read = threading.Event(), threading.Event()
    machine, software = machines.cpu_server()
    host = HostReading(40.0, 2000.0, None, None, 2**30, {})

    def readings(wait: Callable[[float], object]) -> Iterator[Snapshot]:
        yield Snapshot("2026-11-21T12:00:00.000Z", host, [])
        again.wait(60.0)
        yield Snapshot("2026-11-21T12:00:01.000Z", host, [])
        is_read.set()
        wait(60.0)

    known = ev.HardwareDetected(at_s=0.0, machine=machine, software=software)
    source = WatchSource([known], readings)
    app = WorkbenchApp(lambda _: HeldFeed([]), watched=source, monotonic=lambda: 0.0)
    async with on_runs(app) as pilot:
        await press(pilot, "enter")
        await loaded(pilot)
        again.set()
        while not is_read.is_set():
            await pilot.pause(0.01)
        await settle(pilot)
        assert "[3 Advisor]" in text(pilot) and "recorded, done" in text(pilot)
        await press(pilot, "escape")
        assert "[5 Runs]" in text(pilot) and "watching" in text(pilot)
        await press(pilot, "q")


async def test_a_state_folder_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = Mock(side_effect=JournalError("the folder cannot be read: Permission denied"))
    monkeypatch.setattr(history, "refreshed", locked)
    monkeypatch.setattr(palette, "refreshed", locked)
    async with on_runs() as pilot:
        assert "Permission denied" in text(pilot) and "reading the runs" not in text(pilot)
        await press(pilot, "ctrl+p")
        await loaded(pilot)
        assert "Screen: Advisor" in text(pilot)


async def test_strings_of_a_journal_do_not_steer_the_terminal(kept: Path) -> None:
    async with on_runs() as pilot:
        await press(pilot, "down")
        shown = text(pilot)
        assert "\x1b" not in shown and "\u202e" not in shown
        assert "run matmul --set 'n=\\x1b[31m64" in shown
        await press(pilot, "end")
        assert "is not the journal of a run" in text(pilot)


async def test_the_filter_takes_words_of_all_that_the_list_shows(kept: Path) -> None:
    async with on_runs() as pilot:
        await press(pilot, "slash", *"EPYC matmul", "enter")
        assert "5 runs, 2 shown" in text(pilot)
        for words in ("cancel", "20261120", "unreadable", "not the journal"):
            await press(pilot, "slash", "escape", "slash", *words, "enter")
            assert "5 runs, 1 shown" in text(pilot), words
        await press(pilot, "slash", *" nothing", "enter")
        assert "nothing matches the filter" in text(pilot)
        await press(pilot, "slash", "escape")
        assert "5 runs" in text(pilot) and "shown" not in text(pilot)
        await press(pilot, "slash", *"EPYC matmul", "enter", "escape")
        assert "5 runs" in text(pilot) and "shown" not in text(pilot)
        assert "[5 Runs]" in text(pilot)


async def test_enter_opens_a_run_and_escape_leads_back_to_the_list(kept: Path) -> None:
    app = replayed(scenes.cpu_only())
    async with on_runs(app) as pilot:
        own = app.session
        await press(pilot, "enter")
        await loaded(pilot)
        shown = text(pilot)
        assert "recorded, done" in shown and "[3 Advisor]" in shown and "H200" in shown
        await press(pilot, "enter", "escape", "escape")
        assert "[5 Runs]" in text(pilot) and app.session is own
        await press(pilot, "end", "enter")
        await loaded(pilot)
        assert app.session is own, "an unreadable file is not opened"
        assert any("not the journal" in str(n.message) for n in app._notifications)
        await press(pilot, "q")
    assert app.return_code == own.exit_code


async def test_an_opened_sweep_comes_with_its_curves(kept: Path) -> None:
    async with on_runs() as pilot:
        await press(pilot, "down", "down", "down", "enter")
        await loaded(pilot)
        assert "[2 Run]" in text(pilot) and "Rate over n" in text(pilot)


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        (fcntl.LOCK_UN, "`workbench resume 20261121-110000-cccc` measures the rest"),
        (fcntl.LOCK_EX, "the run is still under way"),
    ],
)
async def test_a_run_without_an_end_says_how_to_get_the_rest(folder, lock: int, said: str) -> None:
    with keep("20261121-110000-cccc", scenes.midway()).open("r+b") as file:
        fcntl.flock(file, lock)
        async with on_runs() as pilot:
            await press(pilot, "enter")
            await loaded(pilot)
            assert f"recorded, incomplete  {said}; 1 of 6 scenarios answered" in text(pilot)


async def test_a_run_in_progress_is_not_disturbed(kept: Path) -> None:
    feeds = [Feed(scenes.cpu_only()), HeldFeed(scenes.midway())]
    app = WorkbenchApp(lambda _: feeds.pop(0), monotonic=lambda: 0.0)
    async with on_runs(app) as pilot:
        await press(pilot, "3", "s")
        own = app.session
        await open_runs(pilot)
        assert cursor(pilot), "the list is the one that was read before"
        await press(pilot, "v", "down", "v", "c", "e", "enter")
        await loaded(pilot)
        assert app.session is own and isinstance(app.screen, RunsScreen)
        assert "enter Open" not in text(pilot)
        assert "wait for it to end" in text(pilot)


async def test_no_journal_is_read_during_a_race(kept: Path, monkeypatch) -> None:
    reads: list[object] = []
    refreshed = history.refreshed
    monkeypatch.setattr(history, "refreshed", lambda: reads.append(refreshed()) or reads[-1])
    app, _ = held(scenes.midway())
    async with on_runs(app) as pilot:
        assert "The list is read when the run has ended" in text(pilot) and not reads
        await press(pilot, "x", "x")
        await loaded(pilot)
        assert "5 runs" in text(pilot) and cursor(pilot) and reads


async def test_the_list_follows_the_end_of_a_run_and_e_writes_no_other(kept, tmp_path) -> None:
    app, _ = held(scenes.midway())
    async with on_runs(app) as pilot:
        await press(pilot, "e")
        assert not [*tmp_path.glob("*.html")], "the chosen run cannot be written now"
        keep("20261123-100000-ffff", scenes.h200())
        await press(pilot, "x", "x")
        await loaded(pilot)
        assert "6 runs" in text(pilot)


async def test_a_run_that_was_read_too_late_takes_no_running_one_away(kept: Path) -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE):
        app.show_run(Session.of(read_journal(kept / "20261121-100000-bbbb.jsonl")))
        assert app.session is app.raced


async def test_two_marks_are_compared_and_a_third_takes_the_place_of_b(
    kept: Path, tmp_path: Path
) -> None:
    async with on_runs() as pilot:
        assert " Compare" not in text(pilot).splitlines()[-1]
        await press(pilot, "v")
        assert "v on another run marks it as B" in text(pilot)
        await press(pilot, "down", "v", "down", "v")
        assert "marks it as B" not in text(pilot)
        marked = [line.split()[:2] for line in text(pilot).splitlines() if " 2026-11-2" in line]
        sides = {day: side for side, day in marked if side in ("A", "B", "▌A", "▌B")}
        assert len([line for line in text(pilot).splitlines() if "B  2026" in line]) == 1, sides
        await press(pilot, "c")
        await loaded(pilot)
        shown = text(pilot)
        assert "B against A" in shown and "FASTER" in shown
        assert "A is run 20261121-120000-dddd, B is run 20261121-100000-bbbb." in shown
        await press(pilot, "end")
        assert re.search("OMP_NUM_THREADS +16 +16", text(pilot)), "both sides have a column"
        await press(pilot, "e")
        (file,) = tmp_path.glob("workbench-compare-*-dddd-*-bbbb.md")
        assert "## B against A" in file.read_text()
        await press(pilot, "escape")
        assert "[5 Runs]" in text(pilot)
        await press(pilot, "v")
        assert " Compare" not in text(pilot).splitlines()[-1], "the mark was taken away"


async def test_runs_without_a_common_case_say_so(kept: Path) -> None:
    keep("20261122-100000-eeee", scenes.training_midway())
    async with on_runs() as pilot:
        await press(pilot, "v", *["down"] * 4, "v", "c")
        await loaded(pilot)
        assert isinstance(pilot.app.screen, CompareScreen)
        assert "no measured case in common" in text(pilot)


async def test_e_writes_the_page_of_the_chosen_run(kept: Path, tmp_path: Path) -> None:
    async with on_runs() as pilot:
        await press(pilot, "down", "down", "e")
        await loaded(pilot)
        assert (tmp_path / "workbench-20261121-100000-bbbb.html").exists()


async def test_del_deletes_a_run_at_the_second_press_on_it(kept: Path) -> None:
    app = replayed(scenes.cpu_only())
    app._monotonic = lambda: 0.0
    async with on_runs(app, size=(60, 20)) as pilot:
        await press(pilot, "delete")
        (notice,) = app._notifications
        assert "del again deletes 20261121-120000-dddd" in notice.message
        await press(pilot, "down", "delete", "up", "delete")
        assert len([*kept.glob("*.jsonl")]) == 5
        await press(pilot, "delete")
        await loaded(pilot)
        assert not (kept / "20261121-120000-dddd.jsonl").exists()
        assert "4 runs" in text(pilot)
        await press(pilot, "down", "backspace", "backspace")
        await loaded(pilot)
        assert cursor(pilot) == "20261120-090000-aaaa", "the one below, not the newest"


def kept_index(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    names = [f"run-{n:05}" for n in reversed(range(runs))]
    index = [(Path(n), RunSummary(n, "done", command=f"workbench {n}")) for n in names]
    monkeypatch.setattr(history, "refreshed", lambda: index)


async def test_the_last_line_loads_more_runs_whatever_the_order(monkeypatch) -> None:
    kept_index(monkeypatch, 150)
    async with on_runs() as pilot:
        await press(pilot, "greater_than_sign", "equals_sign")
        assert "150 runs, 60 shown" in text(pilot)
        last = pilot.app.screen.query_one(Table)._shown.lines[-1].key
        await press(pilot, "end")
        assert cursor(pilot) == last
        assert "150 runs, 120 shown" in text(pilot)
        await press(pilot, "end")
        assert "150 runs, 120" not in text(pilot) and "150 runs" in text(pilot)


async def test_a_history_of_ten_thousand_runs_is_read_by_pages(monkeypatch) -> None:
    kept_index(monkeypatch, 10_000)
    async with on_runs() as pilot:
        assert "10,000 runs, 60 shown" in text(pilot)
        assert len(pilot.app.screen.query_one(Table)._shown.lines) == PAGE
        await press(pilot, "end")
        assert cursor(pilot) == f"run-{10_000 - PAGE:05}"
        await press(pilot, "down")
        assert "10,000 runs, 120 shown" in text(pilot)
        await press(pilot, "slash", *"run-00007", "enter")
        assert cursor(pilot) == "run-00007"
