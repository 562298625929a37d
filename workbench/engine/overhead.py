"""Processor time that the tool itself takes while candidates are measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from ..records.document import Overhead


class OverheadMeter:
    """Adds up the processor time of the engine and of the front end that draws it, if any."""

    def __init__(self, front_end: int | None) -> None:
        self._front_end: psutil.Process | None = None
        if front_end is not None:
            with suppress(psutil.Error):
                self._front_end = psutil.Process(front_end)
        self._front_end_before_s = self._front_end_s()
        self._measured_s = self._measuring_s = 0.0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Count the enclosed block as measuring."""
        began, cpu_began = time.monotonic(), self._cpu_s()
        try:
            yield
        finally:
            self._measured_s += time.monotonic() - began
            self._measuring_s += self._cpu_s() - cpu_began

    def result(self, cores: int) -> Overhead:
        """The overhead so far; `cores` is the number that a candidate could have used."""
        available_s = self._measured_s * cores
        return Overhead(
            own_cpu_s=self._cpu_s() - self._front_end_before_s,
            measured_s=self._measured_s,
            own_cpu_measuring_s=self._measuring_s,
            share=self._measuring_s / available_s if available_s else 0.0,
        )

    def _cpu_s(self) -> float:
        return time.process_time() + self._front_end_s()

    def _front_end_s(self) -> float:
        if self._front_end is not None:
            with suppress(psutil.Error):
                times = self._front_end.cpu_times()
                return float(times.user + times.system)
        return 0.0
