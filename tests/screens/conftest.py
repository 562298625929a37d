"""The same terminal for every test, and pictures of it."""

from collections.abc import Callable
from typing import Any

import pytest
import scenes
from stage import press, settle, wait_for_idle
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from screens.app import WorkbenchApp
from workbench import catalog


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    # Textual draws at most every 16 ms, and its pilot looks every 20 ms whether the app is idle.
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", 0.002)
    monkeypatch.setattr("textual.pilot.wait_for_idle", wait_for_idle)
    monkeypatch.setattr("textual.app.wait_for_idle", wait_for_idle)
    # Few tests visit all screens.
    monkeypatch.setattr(WorkbenchApp, "_build", lambda *_: None)
    # On a busy machine a picture may come after half a second, when a cursor is dark.
    monkeypatch.setattr(Input.cursor_blink, "_default", False)


@pytest.fixture
def pictured(snap_compare: Callable[..., bool], size: tuple[int, int]) -> Callable[..., bool]:
    """`pictured(app, *keys)`: the screen after all events and these keys is as it was."""

    def compare(app: App[Any], *keys: str) -> bool:
        async def before(pilot: Pilot[Any]) -> None:
            await settle(pilot)
            await press(pilot, *keys)

        return snap_compare(app, terminal_size=size, run_before=before)

    return compare


@pytest.fixture
def few_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a further workload changes no picture; the scene is recorded with all of them."""
    scenes.h200()
    names = ("launch", "matmul", "train_cnn")
    few = {name: file for name, file in catalog.files().items() if name in names}
    monkeypatch.setattr(catalog, "files", lambda: few)
