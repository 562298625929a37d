"""Imports the file of a workload or backend into this process.

Workers do this with any file, the engine and the front ends only with built-in ones: see
`workbench.catalog`.  Standard library only, since workers may run under a foreign interpreter.
"""

import importlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from ..contract import Backend, Workload, WorkloadError
from .files import BUILT_IN, backend_file, is_built_in, workload_file


def import_workload(name: str) -> Workload:
    """The workload called `name`; WorkloadError says what is wrong with its file."""
    workload: Workload = _bound(name, workload_file(name), "WORKLOAD", Workload)
    return workload


def import_backend(name: str) -> Backend:
    """The backend called `name`; WorkloadError says what is wrong with its file."""
    backend: Backend = _bound(name, backend_file(name), "BACKEND", Backend)
    return backend


@cache
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
    if is_built_in(file):
        inside = file.relative_to(BUILT_IN).with_suffix("")
        return importlib.import_module(".".join(("workloads", *inside.parts)))
    spec = importlib.util.spec_from_file_location(f"workbench_user_{file.parent.name}_{name}", file)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
