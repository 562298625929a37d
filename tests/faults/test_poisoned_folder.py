"""Files in the current directory that are named like modules are never executed."""

import os
import pty
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support import budget, until

# Modules that our processes, or what they import, load early or late.
NAMES = ("workbench", "screens", "json", "torch", "numpy", "click", "msgspec", "ctypes", "socket")
# -P as a console script has it: what is tested is what this process starts.
OURS = [sys.executable, "-P", "-m", "workbench"]


@pytest.fixture
def poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory; whatever of it is executed leaves a `ran-...` there."""
    folder = tmp_path / "poisoned"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(folder / f'ran-{name}')!r}, 'w')\n")
    monkeypatch.chdir(folder)
    return folder


def executed(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("ran-*")]


@pytest.mark.parametrize(
    "command",
    [
        ("detect", "--python", sys.executable),
        ("doctor",),
        ("run", "spin", "--python", sys.executable, "--json"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_no_command_executes_it(environment, poisoned: Path, command: tuple[str, ...]) -> None:
    if command[0] == "run":
        command += budget(3)
    subprocess.run([*OURS, *command], env=environment, capture_output=True, timeout=100)
    assert executed(poisoned) == []


def test_a_library_module_is_not_taken_for_ours_under_python_m(environment, tmp_path) -> None:
    for name in ("statistics", "random", "platform"):
        (tmp_path / f"{name}.py").write_text(f"open('ran-{name}', 'w')\n")
    command = [sys.executable, "-m", "workbench", "list", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, cwd=tmp_path, timeout=100)
    assert (done.returncode, executed(tmp_path)) == (0, [])


def test_the_engine_of_the_tui_does_not_execute_it(environment, poisoned: Path) -> None:
    ours, theirs = pty.openpty()
    tui = subprocess.Popen(
        [*OURS, "run", "spin", "--budget", "60"],
        env={**environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    threading.Thread(target=drain, args=(ours,), daemon=True).start()
    runs = Path(environment["XDG_STATE_HOME"]) / "workbench" / "runs"
    until(lambda: executed(poisoned) or measured(runs), 60)
    tui.kill()
    tui.wait(10)
    assert executed(poisoned) == []
    assert measured(runs)


def drain(fd: int) -> None:
    with suppress(OSError):  # the terminal is closed
        while os.read(fd, 1 << 16):
            pass


def measured(runs: Path) -> bool:
    return any(b"BlockMeasured" in journal.read_bytes() for journal in runs.glob("*.jsonl"))
