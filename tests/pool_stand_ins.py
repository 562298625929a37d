"""A pool whose workers are no processes."""

import errno
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

from workbench.pool.control import Cancelled
from workbench.pool.pool import Pool
from workbench.pool.worker_process import WorkerKey, WorkerProcess, WorkerSettings
from workbench.records.events import WarningRaised

KEY = WorkerKey("cpu", "torch")


HELLO = b'{"ok": {"versions": {}}}'


class Process(WorkerProcess):
    """A worker without a process; it answers as long as there are `answers`."""

    pid = 1
    answers: ClassVar[list[bytes]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        self.began = time.monotonic()
        self.compiling_since, self._not_run, self.held = None, set(), set()
        self.process = self

    def nothing(self, *_: Any) -> int:
        return 0

    compiled_folders = (Path(),)

    def answer(self) -> bytes:
        return self.answers.pop()

    def log_tail(self) -> str:
        return ""

    thaw = send = fileno = kill = stop = exit_code = reap = ask_to_end = freeze = nothing


class Control:
    front_end = None
    at_pause = staticmethod(nullcontext)
    interrupted = False
    ends = 0

    def raising(self, _at: float) -> AbstractContextManager[None]:
        return nullcontext()

    def now(self) -> float:
        return 0.0

    def was_continued(self) -> bool:
        return False

    def wait(self, _fd: int, _timeout_s: float) -> str:
        if self.interrupted:
            raise Cancelled("SIGINT")
        return "readable" if Process.answers else "deadline"


class Guardian:
    def __init__(self, _run_id: str) -> None:
        pass

    def nothing(self, *_: Any) -> None:
        pass

    add_group = remove_group = own_folder = close = kill = nothing


class Listener:
    def __init__(self) -> None:
        self.happened: list[str] = []

    def __call__(self, event: Any) -> None:
        is_warning = isinstance(event, WarningRaised)
        self.happened.append(event.warning.code if is_warning else type(event).__name__)


def pool(control: Control) -> Pool:
    settings = WorkerSettings("test", "python", 1, 0, hide_gpus=False)
    made = Pool(settings, control=control, listener=Listener())
    Process.answers = [HELLO]
    made.start(KEY, 1.0)
    return made


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
