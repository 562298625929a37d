"""The process that describes one user's file: `description.py FD KIND NAME`.

It answers like a worker, but loads only that file.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

from ..catalog.importing import import_backend, import_workload
from ..contract import Backend, Case, Host, ParameterValue, Work, Workload
from ..process.children import limit
from .serve import serve

MOST_MEMORY_BYTES = 8 << 30  # private: enough to import any library, even with many cores
MOST_FILE_BYTES = 16 << 20  # mainly for the log
OF_A_WORKLOAD = "title", "teaches", "default_batch", "latency", "convolves", "isolates"
OF_A_BACKEND = Backend.__annotations__.keys() - {"name", "optional"}


class BackendFile:
    """Answers for a file of a backend; each public method is one question."""

    def __init__(self, name: str) -> None:
        self._name = name

    def describe(self) -> dict[str, Any]:
        backend = import_backend(self._name)
        return {name: getattr(backend, name) for name in OF_A_BACKEND}


class WorkloadFile:
    """The same for a file of a workload."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _workload(self) -> Workload:
        return import_workload(self._name)

    def describe(self) -> dict[str, Any]:
        found = self._workload
        return {
            **{name: getattr(found, name) for name in OF_A_WORKLOAD},
            "parameters": [asdict(parameter) for parameter in found.parameters],
            "variants": [asdict(variant) for variant in found.variants],
            "quick": dict(found.quick),
        }

    def work(self, case: dict[str, Any]) -> dict[str, Any]:
        work = self._workload.work(Case(**case))
        if not isinstance(work, Work):
            raise TypeError(f"expected a Work, not {type(work).__name__}")
        return asdict(work)

    def small_probe(self, case: dict[str, Any]) -> dict[str, Any] | None:
        small = self._workload.small_probe(Case(**case))
        return None if small is None else asdict(small)

    def tuning_values(
        self, parameter: str, host: dict[str, int], device_kind: str
    ) -> Sequence[ParameterValue]:
        return list(self._workload.tuning_values(parameter, Host(**host), device_kind))


FILES = {"backend": BackendFile, "workload": WorkloadFile}


def main(arguments: list[str]) -> None:
    """Answer from the socket whose descriptor is the first argument until it closes."""
    descriptor, kind, name = arguments
    limit(os.getpid(), DATA=MOST_MEMORY_BYTES, FSIZE=MOST_FILE_BYTES, CORE=0)
    serve(FILES[kind](name), int(descriptor))
