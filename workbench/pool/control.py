"""The run's clock, and what may interrupt a run: signals, and control lines of a front end.

The engine waits in one place, `Control.wait`, which wakes for a worker's answer, a deadline,
a signal or a control line.  It never polls, since that would take a core from measurements.
The first signal to end is noted and obeyed there; the second one interrupts anything else that this
process does, except where a record would be left half written.
"""

import errno
import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import msgspec
import psutil

Happening = Literal["readable", "child", "deadline", "pause", "suspend"]

NEVER = math.inf
FIRST, SECOND = 1, 2  # signals to end a run: the first is obeyed in `wait`, the second at once
LONGEST_LINE = 4096  # bytes of a control line
LEAVE_S = 0.4  # after the second signal, or one during the output, for a write to finish
MOST_AGE_S, LIKELY_AGE_S = 10.0, 60.0  # most of the budget for our start; the slowest plausible


class _ControlLine(msgspec.Struct):
    """A request of the front end: "pause", "resume" or "cancel"."""

    control: str


class Cancelled(BaseException):
    """The run is to end now; the message says why."""


def process_started_s() -> float | None:
    """The start of this process in seconds of CLOCK_BOOTTIME, to a clock tick; None: not Linux."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 in proc(5)
    except (OSError, ValueError, IndexError):
        return None


def process_age_s() -> float:
    """Seconds since this process started, imports included; 0 if the system does not say."""
    age, started_s = 0.0, process_started_s()
    if started_s is not None:
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    else:
        with suppress(psutil.Error):  # Linux without /proc
            age = time.time() - psutil.Process().create_time()
    # A clock that was adjusted, or that a sandbox invents, must not use up the budget.
    return min(age, MOST_AGE_S) if 0 <= age <= LIKELY_AGE_S else 0.0


class Control:
    """The run's clock, and the user's requests to pause or end the run."""

    def __init__(self, control_fd: int | None = None) -> None:
        # The process at the other end of the control pipe draws this run.
        self.front_end = None if control_fd is None else os.getppid()
        # Entered for the length of a pause.
        self.at_pause: Callable[[], AbstractContextManager[None]] = nullcontext
        self._began = time.monotonic() - process_age_s()
        self._control_fd = control_fd
        self._control_text = b""
        self._cancelled: str | None = None
        self.ends = 0  # how often the run was asked to end
        self._raise_at = NEVER  # this one of them raises Cancelled at once
        self._writing = False  # the result is being written
        self._wish: Literal["pause", "suspend"] | None = None
        self._continued = False
        self._child = False
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        if control_fd is not None:
            self._selector.register(control_fd, selectors.EVENT_READ)

    def now(self) -> float:
        """Seconds since the process started, without pauses."""
        return round(time.monotonic() - self._began, 4)

    def exclude(self, seconds: float) -> None:
        """Take a pause out of the run's clock."""
        self._began += seconds

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle signals in the block; ignored ones stay ignored, such as SIGHUP under nohup."""
        handlers: dict[int, Any] = {
            signal.SIGINT: self._on_end,
            signal.SIGTERM: self._on_end,
            signal.SIGHUP: self._on_end,
            signal.SIGTSTP: self._on_suspend,
            signal.SIGCONT: self._on_continue,
            signal.SIGCHLD: self._on_child,
            signal.SIGALRM: self._on_alarm,
        }
        previous: dict[int, Any] = {}
        for number, handler in handlers.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                previous[number] = signal.signal(number, handler)
        old_wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            if self.ends:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.set_wakeup_fd(old_wakeup)
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_end(self, number: int, _frame: FrameType | None) -> None:
        self.ends += 1
        self._cancelled = self._cancelled or signal.Signals(number).name
        if self.ends >= SECOND or self._writing:
            signal.setitimer(signal.ITIMER_REAL, LEAVE_S, LEAVE_S)
        self._interrupt()

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        if self._writing:
            # Not EINTR, after which Python would retry the write (PEP 475).
            raise OSError(errno.ECANCELED, "the reader does not read")
        self._interrupt()

    def _interrupt(self) -> None:
        if self.ends >= self._raise_at:
            self._raise_at = NEVER  # only once: a further signal must not interrupt cleaning up
            self.check()

    @contextmanager
    def raising(self, at: float) -> Iterator[None]:
        """During the block, let the `at`-th signal of the run raise Cancelled at once, not only in
        `wait`; NEVER for a block that must not be interrupted."""
        before, self._raise_at = self._raise_at, at
        try:
            yield
        finally:
            self._raise_at = before

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Give the block, which writes the result, a moment after a signal to end; then a write
        that hangs raises OSError."""
        self._writing = True
        if self.ends >= SECOND:
            signal.setitimer(signal.ITIMER_REAL, LEAVE_S, LEAVE_S)
        try:
            yield
        finally:
            self._writing = False

    def _on_suspend(self, _number: int, _frame: FrameType | None) -> None:
        self._wish = "suspend"

    def _on_continue(self, _number: int, _frame: FrameType | None) -> None:
        self._continued = True

    def _on_child(self, _number: int, _frame: FrameType | None) -> None:
        self._child = True

    def cancel(self, reason: str) -> None:
        self._cancelled = self._cancelled or reason
        self.ends = max(self.ends, FIRST)

    @property
    def is_ending(self) -> bool:
        return self._cancelled is not None

    def check(self) -> None:
        """Raise Cancelled if the run is to end."""
        if self._cancelled is not None:
            raise Cancelled(self._cancelled)

    def was_continued(self) -> bool:
        """Whether this process was stopped and continued since the last call."""
        continued, self._continued = self._continued, False
        return continued

    def wait(self, fd: int, timeout_s: float) -> Happening:
        """Block until `fd` is readable, a child changes state, the time is up, or the user asks for
        a pause.  Raises Cancelled as soon as the run is to end.

        Children matter: those of a dead worker may hold its pipe open, without an end-of-file.
        """
        until = time.monotonic() + timeout_s
        self._selector.register(fd, selectors.EVENT_READ)
        try:
            while True:
                self.check()
                if self._wish is not None:
                    wish, self._wish = self._wish, None
                    return wish
                left_s = max(0.0, until - time.monotonic())
                ready = {key.fd for key, _ in self._selector.select(left_s)}
                self._take_control(ready)
                self.check()
                if fd in ready:
                    return "readable"
                if self._child:
                    self._child = False
                    return "child"
                if not ready and time.monotonic() >= until:
                    return "deadline"
        finally:
            self._selector.unregister(fd)

    def wait_for_resume(self) -> None:
        """Block until the front end resumes; Cancelled if it cancels or goes away."""
        while True:
            self.check()
            ready = {key.fd for key, _ in self._selector.select()}
            if "resume" in self._take_control(ready):
                return

    def _take_control(self, ready: set[int]) -> list[str]:
        """Read and handle the ready descriptors; returns the control words."""
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if self._control_fd is None or self._control_fd not in ready:
            return []
        data = b""
        with suppress(OSError):  # the other end of a socket or a terminal is gone
            data = os.read(self._control_fd, 65536)
        if not data:
            self._selector.unregister(self._control_fd)
            self._control_fd = None
            self.cancel("the front end went away")
            return []
        *lines, rest = (self._control_text + data).split(b"\n")
        self._control_text = rest[-LONGEST_LINE:]  # a longer line cannot be a control line
        words = [word for line in lines if (word := _word(line)) is not None]
        for word in words:
            if word == "cancel":
                self.cancel("cancelled by the user")
            elif word == "pause":
                self._wish = "pause"
            elif word == "resume" and self._wish == "pause":
                self._wish = None  # withdrawn before the pause began
        return words


def _word(line: bytes) -> str | None:
    """The word of a control line; None for any other line."""
    try:
        return msgspec.json.decode(line, type=_ControlLine).control
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
