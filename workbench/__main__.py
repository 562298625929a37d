"""The console script, which `python -m workbench` is too."""

import os
import signal
from types import FrameType


def main() -> None:
    """Import the command line and run it; Ctrl-C meanwhile ends the process in silence."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from .cli.main import main as run

    run()


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)  # `exit_codes.CUT_SHORT`; nothing has begun, so nothing is to be cleared up


if __name__ == "__main__":
    main()
