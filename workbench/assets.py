"""The files of `assets/`, in a checkout, an editable install or a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_ROOTS = (_PACKAGE / "_assets", _PACKAGE.parent / "assets")  # a wheel's, then a checkout's


def path(name: str) -> Path:
    """The path of `name`, such as "digits/digits.csv.gz"; FileNotFoundError if it is missing."""
    for root in _ROOTS:
        file = root / name
        if file.exists():
            return file
    searched = " and ".join(str(root) for root in _ROOTS)
    raise FileNotFoundError(f"asset {name!r} is in neither of {searched}: reinstall workbench")
