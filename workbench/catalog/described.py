"""User's workloads and backends as their children describe them, every answer checked."""

import atexit
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ..contract import (
    Backend,
    Case,
    Host,
    ParameterValue,
    Setup,
    Task,
    Work,
    Workload,
    WorkloadError,
)
from ..text.sanitize import shown
from . import faults
from .faults import BackendDescription, WorkloadDescription
from .user_file import UserFile

LONGEST_TEXT = 300  # characters of a title

_MAYBE_CASE: Any = Case | None
Stamp = tuple[int, int, int]  # inode, size and time of the last change
_known: dict[tuple[str, Path], tuple[Stamp, UserFile]] = {}


class DescribedWorkload(Workload):
    """A user's workload: what it is asked, its child answers."""

    def __init__(self, name: str, file: UserFile) -> None:
        self._file = file
        found = file.ask("describe", WorkloadDescription, faults.in_workload)
        texts = {key: shown(getattr(found, key), LONGEST_TEXT) for key in ("title", "teaches")}
        # The contract has them as attributes of a class, here each instance has its own.
        vars(self).update({**msgspec.structs.asdict(found), **texts, "name": name})

    def work(self, case: Case) -> Work:
        return self._file.ask("work", Work, faults.in_work, case=case)

    def small_probe(self, case: Case) -> Case | None:
        find = partial(faults.in_probe, case=case, parameters=self.parameters)
        small: Case | None = self._file.ask("small_probe", _MAYBE_CASE, find, case=case)
        return small

    def tuning_values(
        self, parameter: str, host: Host, device_kind: str
    ) -> Sequence[ParameterValue]:
        find = partial(faults.in_values, next(p for p in self.parameters if p.name == parameter))
        asked = {"parameter": parameter, "host": host, "device_kind": device_kind}
        return self._file.ask("tuning_values", list[ParameterValue], find, **asked)

    def prepare(self, case: Case, setup: Setup) -> Task:
        raise NotImplementedError("workers import the file themselves")


def describe_workload(name: str, file: Path) -> Workload:
    """The workload in a user's file; WorkloadError says why it cannot be used."""
    return DescribedWorkload(name, _user_file("workload", name, file))


def describe_backend(name: str, file: Path) -> Backend:
    """The backend in a user's file; WorkloadError says why it cannot be used."""
    asked = _user_file("backend", name, file)
    try:
        found = asked.ask("describe", BackendDescription, faults.in_backend)
    finally:
        asked.close()  # there is nothing else to ask
    backend = Backend()
    vars(backend).update({**msgspec.structs.asdict(found), "name": name})
    return backend


def _user_file(kind: str, name: str, file: Path) -> UserFile:
    """The process that knows this version of the file."""
    try:
        status = file.stat()
    except OSError as error:
        text = f"{shown(file.name)} cannot be read: {error.strerror}"
        raise WorkloadError(text, code=f"broken_{kind}") from None
    stamp = status.st_ino, status.st_size, status.st_mtime_ns
    before = _known.get((kind, file))
    if before is not None and before[0] == stamp:
        return before[1]
    if before is not None:
        before[1].close()
    _known[kind, file] = stamp, UserFile(kind, name, file)
    return _known[kind, file][1]


@atexit.register
def close_all() -> None:
    """End every child."""
    for _, asked in _known.values():
        asked.close()
    _known.clear()
