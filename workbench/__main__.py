"""The console script, which `python -m workbench` is too: a signal to end is obeyed from the first
import to the last line, without a traceback."""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType


def main(arguments: list[str] | None = None) -> None:
    """Import the command line and run it."""
    ends = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    ends = [number for number in ends if signal.getsignal(number) != signal.SIG_IGN]  # nohup
    for number in ends:
        signal.signal(number, _leave)
    # A parent that ignores it hands that down, and then no child can be waited for (wait(2)).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for output in (1, 2):  # a parent may have made its pipe non-blocking: a write would be cut off
        with suppress(OSError):  # closed
            os.set_blocking(output, True)
    from .cli.main import main as run

    try:
        for number in ends:  # KeyboardInterrupt, so that all clean up
            signal.signal(number, signal.default_int_handler)
        run(arguments)
    except KeyboardInterrupt:  # while an error was reported
        sys.exit(130)
    finally:
        for number in ends:  # we are leaving, and the exit code is settled
            signal.signal(number, signal.SIG_IGN)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)  # `exit_codes.CUT_SHORT`: nothing has begun that would have to be cleared up


if __name__ == "__main__":
    # Unless it is ours, the current folder goes last: a statistics.py there hides nothing.
    ours = os.path.realpath(f"{__file__}/../..")
    if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != ours:
        sys.path.append(sys.path.pop(0))
    main()
