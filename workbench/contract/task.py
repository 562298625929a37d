"""A prepared case inside a worker, the times of its preparation, and the clock of its device."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import WorkloadError
from .result import Accuracy, Profile

WAITING_FRACTION = "waiting_fraction"  # metric: share of the time that waits for data
DEFAULT_CACHE_BYTES = 64 << 20  # used where the size of the last-level cache is unknown


@dataclass(kw_only=True)
class Setup:
    """Times the parts of a preparation: `with setup.phase("transfer"): ...`."""

    PHASES = ("build", "transfer", "compile")

    seed: int = 0
    files: Mapping[str, str] = field(default_factory=dict)  # made for this case: paths by role
    cache_bytes: int = DEFAULT_CACHE_BYTES  # last-level cache of the CPU
    seconds: dict[str, float] = field(default_factory=dict, init=False)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        if name not in self.PHASES:
            raise ValueError(f"unknown set-up phase {name!r}")
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + spent


class DeviceTimer(ABC):
    """Marks in a device's queue of work, such as a pair of CUDA events."""

    @abstractmethod
    def start(self) -> None:
        """Queue the first mark."""

    @abstractmethod
    def stop(self) -> None:
        """Queue the second mark."""

    @abstractmethod
    def elapsed_s(self) -> float:
        """Seconds from mark to mark; only after the task's `finish`."""

    def hold(self, seconds: float) -> bool:
        """Keep the device busy for at least about so many seconds; False if it cannot."""
        return False


class Task(ABC):
    """A prepared case inside a worker: everything is loaded, the next `step` can be timed.

    `waits`: a `step` waits for the device (it reads a result back) or for its data, so its time on
    the host is not the time that queueing takes.

    `checks_latest`: `check` judges what the latest step left, so it follows the warm-up and takes
    no step of its own.

    `finishes`: a `step` returns when all its work is done (it reads its result back), so a latency
    needs no `finish`, and work that is queued before the step would not overlap with it.
    """

    waits: bool = False
    checks_latest: bool = False
    finishes: bool = False
    restores: bool = False  # a sample is one step, since each step needs `restore`
    together: int = 1  # steps of one sample at least: loaders in step deliver their batches at once
    latest_loss: Any = None  # of a training step: a number, or an array with one element

    def restore(self) -> None:  # noqa: B027 - most steps leave their inputs alone
        """Put back what steps have changed: before each block and after each sample, untimed."""

    @abstractmethod
    def step(self) -> None:
        """One unit of work.  On a GPU it may return before the work is finished."""

    def finish(self) -> None:  # noqa: B027 - nothing is queued on a CPU
        """Return only when all work that `step` queued is done."""

    def activate(self) -> None:  # noqa: B027 - most tasks share no global setting
        """Set what the process shares (threads, TF32) before a block of this case."""

    @abstractmethod
    def check(self) -> Accuracy:
        """Compare the result with a reference; called once, untimed, before any block."""

    def transfer_out_s(self) -> float | None:
        """Seconds to bring the result back to the host, measured on its own; None on a CPU."""
        return None

    def device_timer(self) -> DeviceTimer | None:
        """The device's own clock for what `step` queues; None where only the host has a clock."""
        return None

    def loss(self) -> float | None:
        """The latest training loss, or None where nothing is trained."""
        return None if self.latest_loss is None else float(self.latest_loss)

    def memory_peak_bytes(self) -> int | None:
        """Peak memory of the other processes that do the work; None where this one does it."""
        return None

    def metrics(self) -> dict[str, float]:
        """Further results of the latest block, such as `WAITING_FRACTION`, asked for after it.

        The names end in their unit.
        """
        return {}

    def profile(self, steps: int) -> Profile:
        """Run `steps` steps under the backend's profiler; never called while anything is timed."""
        raise WorkloadError(
            "this backend has no profiler",
            code="no_profiler",
            hint="run `perf record -g` on the worker's process to see where its time goes",
        )

    def close(self) -> None:  # noqa: B027 - garbage collection is enough for most
        """Release memory, files and child processes."""
