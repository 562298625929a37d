"""Output of results and log lines to streams that may be closed or full."""

import os
import shutil
import sys
from collections.abc import Iterable
from itertools import chain
from typing import TextIO

from ..files.write import send
from .sanitize import shown

LONGEST_LINE = 4000  # characters


def say(line: str) -> None:
    """Write a line to stderr.  A reader that is gone ends a run; other errors of a log do not."""
    try:
        sys.stderr.write(shown(line, LONGEST_LINE) + "\n")
        sys.stderr.flush()
    except OSError as error:
        let_go(sys.stderr)
        if isinstance(error, BrokenPipeError):
            raise


def say_bug(error: BaseException) -> None:
    """Write an internal error to stderr: as one line, or with its traceback on request."""
    if os.environ.get("WORKBENCH_DEBUG"):
        import traceback

        for line in "".join(traceback.format_exception(error)).splitlines():
            say(line)
        return
    words = " ".join(f"internal error: {type(error).__name__}: {error}".split())
    say(f"workbench: {words} (details: WORKBENCH_DEBUG=1)")


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def put(parts: Iterable[str | bytes]) -> None:
    """Write to stdout, text in its encoding, past its buffer, whose flush at exit could block."""
    sys.stdout.flush()
    encoding, errors = sys.stdout.encoding, sys.stdout.errors or "strict"
    for part in chain(parts, ["\n"]):
        line = part if isinstance(part, bytes) else part.encode(encoding, errors)
        send(sys.stdout.fileno(), line)


def let_go(stream: TextIO) -> None:
    """Redirect a failed stream to /dev/null, since flushing its buffer at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
