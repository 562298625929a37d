"""The same terminal for every test, and a state folder of its own."""

from pathlib import Path

import pytest
import scenes
from stage import wait_for_idle
from textual.widgets import Input

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
    # On a busy machine a picture may come after half a second, when a cursor is dark.
    monkeypatch.setattr(Input.cursor_blink, "_default", False)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of the Runs screen delete: never the developer's runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def few_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a further workload changes no picture; the scene is recorded with all of them."""
    scenes.h200()
    names = ("launch", "matmul", "train_cnn")
    few = {name: file for name, file in catalog.files().items() if name in names}
    monkeypatch.setattr(catalog, "files", lambda: few)
