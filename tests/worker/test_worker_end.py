"""The end of a worker's process."""

from __future__ import annotations

import socket
import subprocess
import sys

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


def test_a_worker_ends_with_its_exit_functions_but_takes_no_module_apart() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-c", SCRIPT, str(theirs.fileno())]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()])
    ours.close()
    said, _ = worker.communicate(timeout=60)
    assert said.decode().splitlines() == ["closed", "exit function"]
    assert worker.returncode == 0
