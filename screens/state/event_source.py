"""The sources of events: an engine in a child process, or the readings of a machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING

from workbench.engine.exit_codes import FAILED, USAGE
from workbench.process.children import clean, ending, log_tail
from workbench.records import events as ev
from workbench.records.reason import Warning
from workbench.report.journal import UNREADABLE
from workbench.text.output import LONGEST_LINE
from workbench.text.sanitize import shown

if TYPE_CHECKING:
    from workbench.records.inspection import Snapshot

LINE_LIMIT = 2**26  # one event with a long block of samples is one line
CANCEL_S = 2.0  # time for an engine to write its partial result
TERMINATE_S = 1.0
LINGER_S = 10.0  # time for an engine to end after its last event, since it waits for its workers
SILENCE_S = 1.0  # between two checks whether a silent engine still lives
TAIL_LINES = 20


class EventSourceError(Exception):
    """The events broke off; the message says how, `log_tail` has the engine's last lines, and
    `code` is what the program returns."""

    def __init__(
        self, message: str, remedy: str, log_tail: Sequence[str] = (), code: int = FAILED
    ) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.log_tail = tuple(log_tail)
        self.code = code


class WatchSource:
    """The readings of a machine, without a run, until it is closed."""

    def __init__(
        self,
        known: Sequence[ev.AnyEvent],
        snapshots: Callable[[Callable[[float], object]], Iterator[Snapshot]],
    ) -> None:
        """`known` comes before the first snapshot; `snapshots` takes a function that waits for a
        number of seconds."""
        self._known, self._left = known, threading.Event()
        self._snapshots = snapshots(self._left.wait)

    async def events(self) -> AsyncGenerator[ev.AnyEvent, None]:
        for event in self._known:
            yield event
        said = None  # the gap that the log has named last
        while found := await asyncio.to_thread(next, self._snapshots, None):
            if self._left.is_set():
                return
            gap, said = None if found.gap == said else found.gap, found.gap
            yield ev.MachineRead(at_s=0.0, host=found.host, gpus=found.gpus, gap=gap)

    def send(self, control: str) -> None:
        """There is no run that a control could reach."""

    async def close(self) -> None:
        self._left.set()


class EngineSource:
    """`argv` writes events as JSON lines on its stdout and reads control lines on its stdin.

    When we are gone its stdin closes, and the engine cancels the run by itself.  It leads its own
    session, so that a key pressed in our terminal signals only us.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self._process: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] | None = None
        self._unsent: list[str] = []  # controls from before the engine was started
        self._cancelled_at: float | None = None
        self._closing: asyncio.Future[None] | None = None

    async def events(self) -> AsyncGenerator[ev.AnyEvent, None]:
        """The events in order; EventSourceError if they break off before the run ended."""
        process = await self._start()
        assert process.stdout is not None  # asked for a pipe
        begun = finished = False
        run = "last"
        async for line in _lines(process, process.stdout):
            event = _decode(line)
            begun = True
            run = event.id if isinstance(event, ev.RunStarted) else run
            finished = finished or isinstance(event, ev.RunFinished)
            yield event
        if not await _gone(process, LINGER_S):
            await self._end(process)
        code = process.returncode or 0
        if code == USAGE and (finished or not begun) and (lines := self._tail()):
            # Some requests turn out to be impossible only when the hardware or the model is known.
            message = lines[-1].removeprefix("workbench: ")
            raise EventSourceError(message, "n changes the options; s tries again", code=USAGE)
        if not finished:
            raise EventSourceError(
                ending("the engine ended before the run was finished", code),
                f"what was measured is kept: `workbench open {run}`; s tries again"
                if begun
                else "the log below says why; s tries again",
                self._tail(),
            )

    async def _start(self) -> asyncio.subprocess.Process:
        # A file, because a pipe would have to be drained; without a name, because it must not stay
        # behind if we are killed.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log,
                env=clean(os.environ),
                start_new_session=True,
                limit=LINE_LIMIT,
            )
        except OSError as error:
            raise EventSourceError(
                f"the engine could not be started: {error}", f"check {self._argv[0]}"
            ) from error
        for control in self._unsent:
            self.send(control)
        return self._process

    def _tail(self) -> list[str]:
        lines = [] if self._log is None else log_tail(self._log).splitlines()[-TAIL_LINES:]
        return [shown(line, LONGEST_LINE) for line in lines]

    def send(self, control: str) -> None:
        """Send "pause", "resume" or "cancel"; never waits, so that Ctrl-Z can do it in time."""
        process = self._process
        if process is None:
            self._unsent.append(control)
            return
        if process.stdin is None or process.stdin.is_closing():
            return
        if control == "cancel":
            self._cancelled_at = asyncio.get_running_loop().time()
        # After a write error stdout ends as well; there it is reported once, with the log.
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps({"control": control}).encode() + b"\n")

    async def close(self) -> None:
        """End the engine in seconds; it can be called twice."""
        # Once for all callers: one that is cancelled must not cancel the ending for the others.
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                await self._end(self._process)
            # Otherwise its pipes stay open as long as a grandchild holds the other end.
            self._process._transport.close()  # type: ignore[attr-defined]
        log, self._log = self._log, None
        if log is not None:
            log.close()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Cancel, then terminate, then kill, each after the patience for the step before."""
        now = asyncio.get_running_loop().time()
        since = now if self._cancelled_at is None else self._cancelled_at
        if process.stdin is not None:
            process.stdin.close()  # the engine takes it as a cancel
        drain = asyncio.ensure_future(_drain(process))
        for patience, escalate in (
            (max(0.1, since + CANCEL_S - now), process.terminate),
            (TERMINATE_S, process.kill),
        ):
            if await _gone(process, patience):
                break
            with contextlib.suppress(ProcessLookupError):
                escalate()
        else:
            await _gone(process, TERMINATE_S)
        drain.cancel()


EventSource = EngineSource | WatchSource


async def _gone(process: asyncio.subprocess.Process, patience_s: float) -> bool:
    """Whether the process ends in time.  `Process.wait` would also wait for its pipes to close,
    which a child it left behind may hold open."""
    clock = asyncio.get_running_loop().time
    until = clock() + patience_s
    while process.returncode is None and clock() < until:
        await asyncio.sleep(0.02)
    return process.returncode is not None


async def _lines(
    process: asyncio.subprocess.Process, stdout: asyncio.StreamReader
) -> AsyncIterator[bytes]:
    """Lines until the end of the stream, or until the engine is dead and silent: if a child it left
    behind holds the pipe open, neither the end of the stream nor `process.wait` ever comes."""
    while True:
        line = asyncio.ensure_future(stdout.readline())
        while not (await asyncio.wait({line}, timeout=SILENCE_S))[0]:
            if process.returncode is not None:
                line.cancel()
                return
        try:
            text = line.result()
        except ValueError as error:
            raise EventSourceError("the engine sent an endless line", "report it") from error
        if not text:
            return
        yield text


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read on until the end: an engine whose pipe is full cannot end."""
    if process.stdout is not None:
        with contextlib.suppress(RuntimeError):  # the events are still being read elsewhere
            while await process.stdout.read(2**16):
                pass


def _decode(line: bytes) -> ev.AnyEvent:
    """The event of one line; any other line becomes a warning, because a library's stray print must
    not end a measurement."""
    try:
        event: ev.AnyEvent = ev.decode(line)
        return event
    except UNREADABLE:
        text = shown(line.decode("utf-8", "replace").strip(), 120)
        message = f"the engine printed a stray line: {text}"
        warning = Warning("stray_output", message, "report it; the measurements are not affected")
        return ev.WarningRaised(at_s=0.0, warning=warning)
