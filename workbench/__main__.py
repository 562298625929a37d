"""The console script, which `python -m workbench` is too: a signal to end is obeyed from the first
import to the last line, without a traceback."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main(arguments: list[str] | None = None) -> None:
    """Import the command line and run it."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    ends = [getattr(signal, name) for name in names if hasattr(signal, name)]
    ends = [number for number in ends if signal.getsignal(number) != signal.SIG_IGN]  # nohup
    for number in ends:
        signal.signal(number, _leave)
    from .cli.main import main as run

    for number in ends:
        signal.signal(number, signal.default_int_handler)  # KeyboardInterrupt, so that all clean up
    try:
        run(arguments)
    finally:
        for number in ends:  # we are leaving, and the exit code is settled
            signal.signal(number, signal.SIG_IGN)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)  # `exit_codes.CUT_SHORT`: nothing has begun that would have to be cleared up


if __name__ == "__main__":
    main()
