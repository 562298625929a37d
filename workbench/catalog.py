"""Finds workloads and backends in `workloads/` and in the folders that WORKBENCH_WORKLOADS names.

Every `NAME.py` of a folder is a workload, every `_backends/NAME.py` a backend.  Engine and workers
use this module, so it imports only the standard library, and a file only when it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

from .contract import Backend, Case, Workload, WorkloadError

LAB = "onnx"  # the backend of the model lab's child process
LAB_MODULE = "workloads.lab.child"
ENV = "WORKBENCH_WORKLOADS"  # folders of further workloads, separated as in PATH
BUILT_IN = Path(__file__).resolve().parent.parent / "workloads"
UNLISTED = {"model": BUILT_IN / "lab" / "workload.py"}  # its cases come from `advise --model`
BACKEND_FOLDER = "_backends"


def files() -> dict[str, Path]:
    """Name to file of every workload; a user's file replaces a built-in one."""
    found: dict[str, Path] = {}
    for folder in _folders():
        if not folder.is_dir():
            raise WorkloadError(
                f"{ENV} names {folder}, which is not a folder", hint=f"correct or unset {ENV}"
            )
        for file in sorted(folder.glob("*.py")):
            if file.stem in UNLISTED:
                raise WorkloadError(
                    f"{file}: the name {file.stem} is reserved",
                    code="broken_workload",
                    hint="rename the file",
                )
            if not file.stem.startswith("_"):
                found[file.stem] = file
    return found


def load(name: str) -> Workload:
    """The workload called `name`; WorkloadError says what is wrong with its file."""
    file = UNLISTED.get(name) or files().get(name)
    if file is None:
        raise WorkloadError(f"there is no workload {name!r}", code="unknown_workload")
    workload: Workload = _bound(name, file, "WORKLOAD", Workload)
    return workload


def load_all() -> tuple[dict[str, Workload], dict[str, WorkloadError]]:
    """Every usable workload by name, and the errors of the others."""
    usable: dict[str, Workload] = {}
    broken: dict[str, WorkloadError] = {}
    for name in files():
        try:
            usable[name] = load(name)
        except WorkloadError as error:
            broken[name] = error
    return usable, broken


def backends() -> dict[str, Path]:
    """Name to file of every backend; a user's file replaces a built-in one."""
    return {
        file.stem: file
        for folder in _folders()
        for file in sorted((folder / BACKEND_FOLDER).glob("*.py"))
        if file.stem != "__init__"
    }


def load_backend(name: str) -> Backend:
    """The backend called `name`; WorkloadError says what is wrong with its file."""
    file = backends().get(name)
    if file is None:
        raise WorkloadError(f"there is no backend {name!r}", code="unknown_backend")
    return _backend(name, file)


def backend(name: str) -> Backend:
    """The backend called `name`, or the defaults where it cannot be used: its workers say why."""
    try:
        return load_backend(name)
    except WorkloadError:
        return Backend()


def process_of(case: Case) -> tuple[str, str, int | None]:
    """Device, backend and fixed number of threads: equal for cases that can share a worker."""
    fixed = backend(case.backend).threads_fixed_at_import
    return case.device, case.backend, case.threads if fixed else None


@cache
def _backend(name: str, file: Path) -> Backend:
    loaded: Backend = _bound(name, file, "BACKEND", Backend)
    return loaded


def _folders() -> list[Path]:
    return [BUILT_IN, *map(Path, filter(None, os.environ.get(ENV, "").split(os.pathsep)))]


def _bound(name: str, file: Path, variable: str, kind: type) -> Any:
    """The `kind` called `name` that `file` binds to `variable`."""
    code = f"broken_{kind.__name__.lower()}"
    try:
        found = getattr(_module(name, file), variable)
    except Exception as error:
        raise WorkloadError(
            f"{file.name} cannot be used: {type(error).__name__}: {error}",
            code=code,
            hint=f"bind {variable} to an instance of workbench.contract.{kind.__name__}",
        ) from error
    if not isinstance(found, kind) or found.name != name:  # type: ignore[attr-defined]
        raise WorkloadError(
            f"{file.name} must bind {variable} to a {kind.__name__} named {name!r}", code=code
        )
    return found


def _module(name: str, file: Path) -> Any:
    if file.is_relative_to(BUILT_IN):
        inside = file.relative_to(BUILT_IN).with_suffix("")
        return importlib.import_module(".".join(("workloads", *inside.parts)))
    spec = importlib.util.spec_from_file_location(f"workbench_user_{file.parent.name}_{name}", file)
    assert spec is not None and spec.loader is not None  # noqa: S101 - it ends in .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
