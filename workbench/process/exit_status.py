"""How a process ended, in words.  Standard library only, since workers use it."""

import os
import signal
from contextlib import suppress
from typing import IO

from ..text.sanitize import shown

LOG_TAIL_BYTES = 16_384


def describe_exit(code: int) -> str:
    """An exit code in words: `exit code 1`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def log_tail(log: IO[bytes]) -> str:
    """The last lines of a log that may still grow, read without moving the writer's position."""
    log.flush()
    size = os.fstat(log.fileno()).st_size
    start = max(0, size - LOG_TAIL_BYTES)
    return os.pread(log.fileno(), size - start, start).decode(errors="replace").strip()


def ending(text: str, code: int | None, log: str = "") -> str:
    """`text` with the exit code, if known, and the last three lines of the log."""
    message = text if code is None else f"{text} ({describe_exit(code)})"
    lines = [shown(line.strip(), 200) for line in log.splitlines()[-3:]]
    return f"{message}; its log ends: {' | '.join(lines)}" if lines else message
