"""Workloads and backends for the engine and the front ends.

A built-in file is imported.  A user's file is never imported here: a child process describes it,
since its code can print, hang or crash.  Workers import what they run: see `importing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import WorkloadError
from .files import (
    BUILT_IN as BUILT_IN,
    ENV as ENV,
    backend_file,
    backends as backends,
    files as files,
    is_built_in as is_built_in,
    workload_file,
)

if TYPE_CHECKING:
    from ..contract import Backend, Case, Workload

LAB = "onnx"  # the backend of the model lab's child process


def load(name: str) -> Workload:
    """The workload called `name`; WorkloadError says what is wrong with its file."""
    file = workload_file(name)
    if is_built_in(file):
        from .importing import import_workload

        return import_workload(name)
    from .described import DescribedWorkload  # slow to import, and only users' files need it

    return DescribedWorkload(name, file)


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


def load_backend(name: str) -> Backend:
    """The backend called `name`; WorkloadError says what is wrong with its file."""
    file = backend_file(name)
    if is_built_in(file):
        from .importing import import_backend

        return import_backend(name)
    from .described import describe_backend

    return describe_backend(name, file)


def backend(name: str) -> Backend:
    """The backend called `name`, or a default one if it cannot be used: its workers report why."""
    try:
        return load_backend(name)
    except WorkloadError:
        from ..contract import Backend

        return Backend()


def process_of(case: Case) -> tuple[str, str, int | None]:
    """Device, backend and fixed number of threads, which are equal if cases can share a worker."""
    fixed = backend(case.backend).threads_fixed_at_import
    return case.device, case.backend, case.threads if fixed else None
