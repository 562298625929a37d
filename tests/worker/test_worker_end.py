"""The end of a worker's process, and what it leaves in its log."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from workbench.process.children import MOST_LOGGED

SCRIPT = """
import atexit, sys
from workbench.worker.serve import serve

class Held:
    def close(self):
        print("closed")

    def __del__(self):
        print("taken apart")

atexit.register(print, "exit function")
held = Held()
serve(held, int(sys.argv[1]))
"""


def started(script: str, **options: Any) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process of a script that serves, and our end of its channel."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-c", script, str(theirs.fileno())]
        return subprocess.Popen(command, pass_fds=[theirs.fileno()], **options), ours


def test_a_worker_ends_with_its_exit_functions_but_takes_no_module_apart() -> None:
    worker, ours = started(SCRIPT, stdout=subprocess.PIPE)
    ours.close()
    said, _ = worker.communicate(timeout=60)
    assert said.decode().splitlines() == ["closed", "exit function"]
    assert worker.returncode == 0


PRINTS = """
import os, sys
from workbench.process.children import MOST_LOGGED
from workbench.worker.serve import serve

class Prints:
    def fill(self, into):
        if into:
            os.dup2(os.open(into, os.O_WRONLY), 2)
        os.write(2, b"x" * (MOST_LOGGED + 1))
        return {}

    def tidy(self):
        pass

serve(Prints(), int(sys.argv[1]))
"""


def test_a_long_log_is_emptied_but_no_file_of_the_user(tmp_path: Path) -> None:
    log, own = tmp_path / "log", tmp_path / "own"
    own.touch()
    sizes = []
    with log.open("wb") as stderr:
        worker, ours = started(PRINTS, stderr=stderr)
    with ours, ours.makefile("rw") as channel:
        for into in ("", "", str(own)):
            channel.write(json.dumps({"op": "fill", "into": into}) + "\n")
            channel.flush()
            assert json.loads(channel.readline()) == {"ok": {}}
            sizes.append((log.stat().st_size, own.stat().st_size))
    worker.wait(60)
    assert sizes == [(0, 0), (0, 0), (0, MOST_LOGGED + 1)]


CLOSES = """
import sys
from workbench.worker.serve import serve

class Closes:
    def close_streams(self):
        sys.stdout.close()
        sys.stderr.close()
        raise ValueError("the reason")

    def tidy(self):
        pass

serve(Closes(), int(sys.argv[1]))
"""


def test_an_error_after_the_end_of_the_streams_is_told() -> None:
    worker, ours = started(CLOSES)
    with ours, ours.makefile("rw") as channel:
        channel.write(json.dumps({"op": "close_streams"}) + "\n")
        channel.flush()
        assert json.loads(channel.readline())["error"]["message"] == "ValueError: the reason"
    assert worker.wait(60) == 0
