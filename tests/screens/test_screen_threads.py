"""Reading in threads: what is superseded or stalls holds nothing up."""

import threading
from pathlib import Path

import pytest
import scenes
from stage import replayed, settle, settled

from screens.state.threads import in_thread
from workbench.report.report import Report
from workbench.report.run_files import OpenedRun


async def test_a_thread_that_may_stall_does_not_hold_up_the_end() -> None:
    assert await in_thread(lambda: threading.current_thread().daemon)


async def test_an_error_in_the_thread_is_that_of_the_caller() -> None:
    with pytest.raises(FileNotFoundError):
        await in_thread(Path("/gone/nowhere").read_bytes)


async def test_a_read_that_was_superseded_is_not_acted_upon(monkeypatch) -> None:
    stall, threads, taken = threading.Event(), [], []

    runs = {name: OpenedRun(Report(), []) for name in ("slow", "fast")}

    def read(path: Path) -> OpenedRun:
        threads.append(threading.current_thread())
        if path.name == "slow":
            stall.wait(20)
        return runs[path.name]

    monkeypatch.setattr("screens.shell.read_journal", read)
    app = replayed(scenes.cpu_only())
    async with settled(app) as pilot:
        app.read_run(Path("slow"), taken.append)
        await pilot.pause()
        await app.read_run(Path("fast"), taken.append).wait()
        stall.set()
        while any(thread.is_alive() for thread in threads):
            await pilot.pause(0.005)
        await settle(pilot)
        assert len(taken) == 1 and taken[0].report is runs["fast"].report
