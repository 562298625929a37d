"""The cost of a case in a fresh process, although many cases share one worker.

Only the first case of a process pays for loading kernels and for modules that a library imports
lazily.  Preparing it twice shows how much that was, and the amount is added to every later case.
"""

import builtins
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..contract import Setup

LOADING = "loading"


class LoadingSetup(Setup):
    """Counts the imports inside a phase as a phase of their own."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with imports_timed() as spent_s, super().phase(name):
            yield
        loading_s = sum(spent_s)
        self.seconds[name] -= loading_s
        self.seconds[LOADING] = self.seconds.get(LOADING, 0.0) + loading_s


@contextmanager
def imports_timed() -> Iterator[list[float]]:
    """A list to which the seconds of each outermost import in the block are appended."""
    usual, spent_s, depth = builtins.__import__, list[float](), 0

    def timed(*arguments: Any, **details: Any) -> Any:
        nonlocal depth
        depth += 1
        began = time.perf_counter()
        try:
            return usual(*arguments, **details)
        finally:
            depth -= 1
            if not depth:
                spent_s.append(time.perf_counter() - began)

    builtins.__import__ = timed
    try:
        yield spent_s
    finally:
        builtins.__import__ = usual


@dataclass(frozen=True)
class StartUp:
    """Seconds from nothing to the first result."""

    phases: dict[str, float]  # seconds of each phase of the preparation
    first_step_s: float

    @property
    def seconds(self) -> float:
        return sum(self.phases.values()) + self.first_step_s


class ColdStart:
    """The start-up costs of the cases of one process."""

    def __init__(self) -> None:
        self._loading: StartUp | None = None  # paid by the first case for all
        self._loaded: dict[str, float] = {}  # seconds that its first case paid, by workload

    def charged(self, workload: str, repeated: StartUp, measured: StartUp | None) -> StartUp:
        """The cost of a case in a fresh process; `measured` is the first of two preparations."""
        loading_s = repeated.phases.get(LOADING, 0.0)
        loaded_s = self._loaded.setdefault(workload, loading_s)
        if measured is not None:
            return self.alone(measured, repeated)
        phases = {**repeated.phases, LOADING: max(loading_s, loaded_s)}
        return StartUp(phases, repeated.first_step_s)

    def alone(self, measured: StartUp, repeated: StartUp) -> StartUp:
        """The cost of a case in a process of its own, from its first and second preparation.

        The phase "loading" is the part that the process pays once for all cases.
        """
        own, first_step_s = measured.phases, measured.first_step_s
        if self._loading is None:
            # Not compiling: its code is in a cache the second time, but no other case uses it.
            once = {
                name: max(0.0, spent - repeated.phases.get(name, 0.0))
                for name, spent in own.items()
                if name != "compile"
            }
            self._loading = StartUp(once, max(0.0, first_step_s - repeated.first_step_s))
            own = {name: spent - once.get(name, 0.0) for name, spent in own.items()}
        else:
            # Not the sum, since a first step that loads kernels already includes that cost.
            first_step_s = max(first_step_s, self._loading.first_step_s)
        loading_s = own.get(LOADING, 0.0) + sum(self._loading.phases.values())
        return StartUp({**own, LOADING: loading_s}, first_step_s)
