"""The same terminal for every test, and a state folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    # Textual's pilot looks every 20 ms whether the app is idle: a quarter of it halves the time.
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 0.005, raising=False)
    monkeypatch.setattr("textual._wait.SLEEP_IDLE", 0.00025, raising=False)
    # On a busy machine a picture may come after half a second, when a cursor is dark.
    monkeypatch.setattr(Input.cursor_blink, "_default", False)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of the Runs screen delete: never the developer's runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
