"""Output of results and log lines to files, and to streams that may be closed or full."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import TextIO


def say(line: str) -> None:
    """Write a line to stderr; a run does not fail because its log cannot be written."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        let_go(sys.stderr)
        raise
    except OSError:
        let_go(sys.stderr)


def say_bug(error: BaseException) -> None:
    """Write an error of our own to stderr: as one line, or with its traceback on request."""
    if os.environ.get("WORKBENCH_DEBUG"):
        say("".join(traceback.format_exception(error)))
        return
    words = " ".join(f"internal error: {type(error).__name__}: {error}".split())
    say(f"workbench: {words} (details: WORKBENCH_DEBUG=1)")


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def partial_of(path: Path) -> Path:
    """The temporary file that is renamed to `path` once it is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def let_go(stream: TextIO) -> None:
    """Redirect a failed stream to /dev/null, since flushing its buffer at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
