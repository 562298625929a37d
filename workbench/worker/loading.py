"""Modules that a library imports only when a case first needs them: a cost of the process.

The first case of a process would pay for all.  Standard library only.
"""

import builtins
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    """A list that gets the seconds of each outermost import statement of the block."""
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
