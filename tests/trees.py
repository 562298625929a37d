"""Folders as the kernel shows them: /proc and /sys, made up."""

from collections.abc import Mapping
from pathlib import Path


def written(root: Path, files: Mapping[str, str]) -> Path:
    """`root`, with these files below it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
