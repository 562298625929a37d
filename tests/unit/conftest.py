"""What several files of tests need: hypothesis without deadlines, a folder of recordings.

Property tests judge results, not speed: no example fails for being slow on a busy machine.
"""

from pathlib import Path

import pytest
from hypothesis import settings

from workbench.advisor import recordings

settings.register_profile("workbench", deadline=None)
settings.load_profile("workbench")


@pytest.fixture
def recordings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own, and nothing that came with the program."""
    monkeypatch.setattr(recordings, "asset", lambda _: tmp_path / "none")
    found = recordings.own_folder()
    found.mkdir(parents=True)
    return found
