"""Where results and the log go: files, and streams that may be closed, full, or read by nobody."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TextIO


def say(line: str) -> None:
    """A line on stderr, as long as that takes any: no run fails for want of its log."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        let_go(sys.stderr)
        raise
    except OSError:
        let_go(sys.stderr)


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def beside_of(path: Path) -> Path:
    """The temporary file that becomes `path` in one step."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def let_go(stream: TextIO) -> None:
    """Lead a stream that failed nowhere: what is left in its buffer would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
