"""The console script, and `python -m workbench`.  From the first import to the last line a signal
ends it without a traceback."""

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
    # Inherited from a parent that ignores it, it would keep us from waiting for children (wait(2)).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for output in (1, 2):  # a parent may have made its pipe non-blocking, which would cut writes
        with suppress(OSError):  # closed
            os.set_blocking(output, True)
    try:
        from .cli.main import main as run

        for number in ends:  # KeyboardInterrupt, so that all clean up
            signal.signal(number, signal.default_int_handler)
        run(arguments)
    except EOFError as error:  # no other one leaves the command line
        sys.exit(f"workbench: {error}: delete the folders __pycache__, which a full disk cut short")
    except KeyboardInterrupt:  # while an error was reported
        sys.exit(130)
    finally:
        for number in ends:  # the exit code is settled
            signal.signal(number, signal.SIG_IGN)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)  # `exit_codes.CUT_SHORT`; there is nothing to clean up yet


if __name__ == "__main__":
    # The current folder, unless it is ours, goes last, so that a statistics.py there hides nothing.
    ours = os.path.realpath(f"{__file__}/../..")
    if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != ours:
        sys.path.append(sys.path.pop(0))
    main()
