"""A folder of recordings for several files of tests."""

from pathlib import Path

import pytest

from workbench.advisor import recordings


@pytest.fixture
def recordings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own, and nothing that came with the program."""
    monkeypatch.setattr(recordings, "asset", lambda _: tmp_path / "none")
    found = recordings.own_folder()
    found.mkdir(parents=True)
    return found
