"""The folder of a made-up fleet, and the time at which it is read."""

from pathlib import Path

NOW = 1_795_338_000.0 + 900  # a quarter of an hour after START, and before the deadline


def only(folder: Path, *files: str) -> Path:
    """The folder of the first job, with these files alone."""
    at = folder / "jobs" / "old-1"
    for file in list(at.iterdir()):
        if file.name not in files:
            file.unlink()
    return at
