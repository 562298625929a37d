"""The share of its time in which a device has no batch to work on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from .._backends.torch import library_of


def mark(device: Any) -> Any:
    """The time now, or on a GPU an event after all queued work."""
    if device.type == "cpu":
        return time.perf_counter()
    event = library_of(device.type).Event(enable_timing=True)
    event.record()
    return event


def waiting_fraction(device: Any, steps: Sequence[Sequence[Any]]) -> dict[str, float]:
    """The metric `waiting_fraction` of steps whose work on the device is finished.

    A step's marks alternate: the device starts to wait, the batch is there.  The step lasts from
    the first mark to the last.
    """

    def between(start: Any, end: Any) -> float:
        return float(end - start if device.type == "cpu" else start.elapsed_time(end))

    waited = total = 0.0
    for marks in steps:
        waited += sum(map(between, marks[::2], marks[1::2]))
        total += between(marks[0], marks[-1])
    return {"waiting_fraction": waited / total} if total else {}
