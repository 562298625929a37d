"""A prepared case inside a worker, the times of its preparation, and the clock of its device."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import WorkloadError
from .result import Accuracy, Profile

WAITING_FRACTION = "waiting_fraction"  # metric: share of the time spent waiting for data
# Metric of a turn on a CPU: the share of its time that page faults take, at most; it is less if
# several threads fault at once.
FAULTING_FRACTION = "faulting_fraction"
DEFAULT_CACHE_BYTES = 64 << 20  # if the size of the last-level cache is unknown


@dataclass(kw_only=True)
class Setup:
    """Times the parts of a preparation: `with setup.phase("transfer"): ...`."""

    PHASES = ("build", "transfer", "compile")

    seed: int = 0
    files: Mapping[str, str] = field(default_factory=dict)  # paths for this case, by role
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
        """Seconds from mark to mark; valid only after the task's `finish`."""

    def hold(self, seconds: float) -> bool:
        """Queue work of about this many seconds or more; False if it cannot."""
        return False


class Task(ABC):
    """A prepared case inside a worker, ready for timed steps.

    `waits`: a `step` waits for the device or for data, so its time on the host is not the time to
    queue its work.

    `checks_latest`: `check` judges the result of the latest step, so it follows the warm-up and
    takes no step of its own.

    `finishes`: a `step` returns when all its work is done, so a latency needs no `finish`, and work
    queued before the step does not overlap with it.
    """

    waits: bool = False
    checks_latest: bool = False
    finishes: bool = False
    restores: bool = False  # a sample is one step, since each step needs `restore`
    together: int = 1  # least steps of a sample: loaders that limit deliver their batches together
    latest_loss: Any = None  # from a training step: a number, or an array with one element

    def restore(self) -> None:  # noqa: B027 - most steps leave their inputs alone
        """Undo changes by steps; called untimed before each block and after each sample."""

    @abstractmethod
    def step(self) -> None:
        """One unit of work; on a GPU it may return before the work is done."""

    def finish(self) -> None:  # noqa: B027 - nothing is queued on a CPU
        """Wait until all work that `step` queued is done."""

    def activate(self) -> None:  # noqa: B027 - most tasks share no global setting
        """Apply settings of the whole process (threads, TF32) before a block of this case."""

    @abstractmethod
    def check(self) -> Accuracy:
        """Compare the result with a reference; called once, untimed, before any block."""

    def transfer_out_s(self) -> float | None:
        """Seconds to copy the result to the host, measured separately; None on a CPU."""
        return None

    def device_timer(self) -> DeviceTimer | None:
        """The device's clock for the work that `step` queues; None if only the host has a clock."""
        return None

    def loss(self) -> float | None:
        """The latest training loss; None if nothing is trained."""
        return None if self.latest_loss is None else float(self.latest_loss)

    def memory_peak_bytes(self) -> int | None:
        """Peak memory of other processes that do the work; None if this one does it."""
        return None

    def metrics(self) -> dict[str, float]:
        """Further results of the latest block, such as `WAITING_FRACTION`; names end in a unit."""
        return {}

    def profile(self, steps: int) -> Profile:
        """Run `steps` steps under the backend's profiler; never called while anything is timed."""
        raise WorkloadError(
            "this backend has no profiler that workbench can read",
            code="no_profiler",
            hint="run `perf record -g` on the worker's process to see where its time goes",
        )

    def close(self) -> None:  # noqa: B027 - garbage collection is enough for most
        """Release memory, files and child processes."""
