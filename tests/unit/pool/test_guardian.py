"""The end of a run where its guardian is stopped or killed, and of processes that hide from it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import lives, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals, prctl(2)")

# In a process of its own, since it adopts orphans.  It prints the guardian and the daemon's id.
ENGINE = """
import os, sys
from workbench.pool.guardian_client import Guardian
guardian = Guardian("test")
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # a daemon without any mark of the run
        os.write(write, str(os.getpid()).encode())
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os._exit(0)
os.wait()
print(guardian._process.pid, os.read(read, 100).decode(), flush=True)
sys.stdin.readline()
guardian.close(0.5)
guardian.kill()
print("closed", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("number", [None, signal.SIGSTOP, signal.SIGKILL])
def test_closing_ends_guardian_and_daemons(number: signal.Signals | None) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pids = [int(pid) for pid in engine.stdout.readline().split()]
    if number is not None:
        os.kill(pids[0], number)
    engine.stdin.write("close\n")
    engine.stdin.flush()
    assert engine.stdout.readline() == "closed\n"
    assert not lives(pids[0])
    engine.communicate(timeout=30)  # so the processes that it guarded end too
    assert until(lambda: not any(map(lives, pids)))


FOLDER = """
import os, sys
from pathlib import Path
from workbench.pool.guardian_client import Guardian
guardian = Guardian("test")
guardian.own_folder(Path(sys.argv[1]))
guardian.close(30)
"""


def test_a_scratch_folder_whose_name_is_no_text_is_removed(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)  # noqa: PTH102
    subprocess.run([sys.executable, "-c", FOLDER, folder], check=True, timeout=60)
    assert not os.path.exists(folder)  # noqa: PTH110
