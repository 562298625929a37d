"""Where the time of a run goes: wall seconds by phase, and processor time of the tool itself."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from ..records.document import PHASES, Overhead, Spent

STARTING, PREPARING, MEASURED, IDLE, CLOSING = PHASES


class OverheadMeter:
    """Counts each second of the run's clock `now` in a phase of the current row, and the processor
    time of the engine and of the front end, if that is a process of its own."""

    def __init__(self, front_end: int | None, now: Callable[[], float]) -> None:
        self._front_end: psutil.Process | None = None
        if front_end is not None:
            with suppress(psutil.Error):
                self._front_end = psutil.Process(front_end)
        self._front_end_last_s = 0.0
        self._front_end_before_s = self._front_end_s()
        self._measuring_s = 0.0  # processor time
        self._cold_s = 0.0  # counted as measured in other phases, without their processor time
        self._now, self._since_s = now, 0.0
        self._row, self._phase = "", STARTING
        self._spent_s: defaultdict[tuple[str, str], float] = defaultdict(float)  # by row and phase

    def turn_to(self, phase: str, row: str | None = None) -> tuple[str, str]:
        """Count in `phase`, and in `row` if given, from now on; returns the previous two."""
        now_s, before = self._now(), (self._phase, self._row)
        self._spent_s[self._row, self._phase] += now_s - self._since_s
        self._since_s, self._phase = now_s, phase
        self._row = self._row if row is None else row
        return before

    @contextmanager
    def spending(self, phase: str, row: str | None = None) -> Iterator[None]:
        """Count the enclosed time in `phase`, except for that of nested phases."""
        before = self.turn_to(phase, row)
        try:
            yield
        finally:
            self.turn_to(*before)

    def count_as_measured(self, seconds: float, phase: str) -> None:
        """Count `seconds` of an earlier `phase` as measured, since they are part of a result."""
        self.turn_to(self._phase)
        # They were timed from outside the phase, so they may exceed it a little.
        seconds = min(seconds, self._spent_s[self._row, phase])
        self._cold_s += seconds
        self._spent_s[self._row, phase] -= seconds
        self._spent_s[self._row, MEASURED] += seconds

    @contextmanager
    def measuring(self) -> Iterator[None]:
        cpu_began = self._cpu_s()
        try:
            with self.spending(MEASURED):
                yield
        finally:
            self._measuring_s += self._cpu_s() - cpu_began

    def result(self, cores: int) -> Overhead:
        """The overhead so far; `cores` is how many a candidate could have used."""
        self.turn_to(self._phase)
        rows = dict.fromkeys(row for row, _ in self._spent_s if row)
        run_s = {each: sum(self._spent_s[row, each] for row in ("", *rows)) for each in PHASES}
        available_s = (run_s[MEASURED] - self._cold_s) * cores
        return Overhead(
            own_cpu_s=self._cpu_s() - self._front_end_before_s,
            own_cpu_measuring_s=self._measuring_s,
            share=self._measuring_s / available_s if available_s else 0.0,
            rows={
                row: Spent(**{f"{each}_s": self._spent_s[row, each] for each in PHASES[:-1]})
                for row in rows
            },
            **{f"{phase}_s": seconds for phase, seconds in run_s.items()},
        )

    def _cpu_s(self) -> float:
        return time.process_time() + self._front_end_s()

    def _front_end_s(self) -> float:
        """Processor time of the front end, or the last reading if it has ended."""
        if self._front_end is not None:
            with suppress(psutil.Error):
                times = self._front_end.cpu_times()
                self._front_end_last_s = float(times.user + times.system)
        return self._front_end_last_s
