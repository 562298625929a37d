"""Where the files of `assets/` are, in a checkout, an editable install and a wheel alike."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_ROOTS = (_PACKAGE / "_assets", _PACKAGE.parent / "assets")  # a wheel's, then a checkout's


def path(name: str) -> Path:
    """The file `name` below `assets/`, such as "digits/digits.csv.gz".

    Raises FileNotFoundError, naming the folders that were searched.
    """
    for root in _ROOTS:
        found = root / name
        if found.exists():
            return found
    searched = " and ".join(str(root) for root in _ROOTS)
    raise FileNotFoundError(f"asset {name!r} is in neither of {searched}: reinstall workbench")
