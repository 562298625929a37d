"""Finds the files of workloads and backends: in `workloads/`, and in the user's folders.

Every `NAME.py` of a folder is a workload, every `_backends/NAME.py` a backend.  Standard library
only, since workers may run under a foreign interpreter.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..errors import WorkloadError
from ..text.sanitize import shown

ENV = "WORKBENCH_WORKLOADS"  # folders of further workloads, separated as in PATH
BUILT_IN = Path(__file__).resolve().parents[2] / "workloads"
UNLISTED = {  # their cases come from `advise --model`, and from --torch, --function and --command
    "model": BUILT_IN / "lab" / "workload.py",
    "own": BUILT_IN / "own" / "workload.py",
}
BACKEND_FOLDER = "_backends"
# Backends of the user's own code, which are always there and which no option names.
UNLISTED_BACKENDS = {
    name: BUILT_IN / BACKEND_FOLDER / f"{name}.py" for name in ("python", "command")
}
_NAME = re.compile(r"[\w.+-]{1,64}")


def files() -> dict[str, Path]:
    """Name to file of every workload; a user's file replaces a built-in one."""
    found: dict[str, Path] = {}
    for folder in _folders():
        if not os.path.isdir(folder):  # noqa: PTH112 - its answer for a folder of others is no
            text = f"{ENV} names {folder}, which is not a folder that can be read"
            raise WorkloadError(text, hint=f"correct or unset {ENV}")
        for name, file in _modules(folder).items():
            if name in UNLISTED:
                raise WorkloadError(
                    f"{file}: the name {name} is reserved",
                    code="broken_workload",
                    hint="rename the file",
                )
            if not name.startswith("_"):
                found[name] = file
    return found


def backends() -> dict[str, Path]:
    """Name to file of every library that a user can name; a user's file replaces a built-in one."""
    return {
        name: file
        for folder in _folders()
        for name, file in _modules(folder / BACKEND_FOLDER).items()
        if name not in ("__init__", *UNLISTED_BACKENDS)
    }


def workload_file(name: str) -> Path:
    """The file of the workload called `name`; WorkloadError if there is none."""
    return _file_of("workload", name, UNLISTED.get(name) or files().get(name))


def backend_file(name: str) -> Path:
    """The file of the backend called `name`; WorkloadError if there is none."""
    return _file_of("backend", name, UNLISTED_BACKENDS.get(name) or backends().get(name))


def is_built_in(file: Path) -> bool:
    return file.is_relative_to(BUILT_IN)


def _file_of(kind: str, name: str, file: Path | None) -> Path:
    """`file`; WorkloadError if it is None or its name does not fit into case ids."""
    if file is None:
        raise WorkloadError(f"there is no {kind} {name!r}", code=f"unknown_{kind}")
    if not _NAME.fullmatch(file.stem):
        text = f"{shown(file.name)}: a name has at most 64 letters, digits, _ . + and -"
        raise WorkloadError(text, code=f"broken_{kind}", hint="rename the file")
    return file


def _modules(folder: Path) -> Mapping[str, Path]:
    """Name to Python file in `folder`; empty if it cannot be read."""
    return _read_once(folder) if is_built_in(folder) else _read(folder)


def _read(folder: Path) -> Mapping[str, Path]:
    try:
        return {shown(file.stem): file for file in sorted(folder.glob("*.py"))}
    except OSError:
        return {}


_read_once = cache(_read)  # a race asks at each block, and our own files do not change


def _folders() -> list[Path]:
    return [BUILT_IN, *map(Path, filter(None, os.environ.get(ENV, "").split(os.pathsep)))]
