"""Interpreters for --python that lie, hang, or leave something behind."""

import os
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from .case import Case, listed
from .room import Room

SH = "#!/bin/sh\n"
STAYS = "sleep 600 >/dev/null 2>&1 </dev/null &\n"
SCRIPTS: dict[str, str] = {
    "is silent": SH + "sleep 600\n",
    "is silent and ignores TERM": SH + "trap '' TERM INT HUP\nwhile :; do sleep 1; done\n",
    "prints garbage": SH + "head -c 3000 /dev/urandom\n",
    "prints a JSON list": SH + "echo '[]'\n",
    "prints numbers": SH + "echo 1e999\necho NaN\n",
    "prints deep JSON": SH + "head -c 200000 /dev/zero | tr '\\0' '['\necho\n",
    "prints escapes": SH + "printf '\\033]0;owned\\007\\033[2J\\n'\nexit 1\n",
    "prints without end": SH + "exec yes\n",
    "prints without a line's end": SH + "exec cat /dev/zero\n",
    "says errors without end": SH + "exec yes >&2\n",
    "exits 0 with nothing": SH + "exit 0\n",
    "exits 77": SH + "echo broken >&2\nexit 77\n",
    "kills itself": SH + "kill -KILL $$\n",
    "stops itself": SH + "kill -STOP $$\n",
    "closes stdout and sleeps": SH + "exec >&- 2>&-\nsleep 600\n",
    "leaves a child": SH + STAYS + 'exec PYTHON "$@"\n',
    "leaves a child, silent": SH + STAYS + "sleep 600\n",
    "leaves a child, exits": SH + STAYS + "exit 0\n",
    "leaves a child of another session": SH + "setsid sleep 600 &\n" + 'exec PYTHON "$@"\n',
    "forks twice without environment": (
        SH + "(setsid env -i sleep 600 </dev/null >/dev/null 2>&1 &)\n" + 'exec PYTHON "$@"\n'
    ),
    "is slow": SH + 'sleep 2\nexec PYTHON "$@"\n',
    "answers twice": SH + 'PYTHON "$@"\nPYTHON "$@"\n',
    "forgets its arguments": SH + "exec PYTHON\n",
    "has a broken site": SH + 'PYTHONPATH=BROKEN exec PYTHON "$@"\n',
    "has no packages": SH + 'exec PYTHON -I -S "$@"\n',
    "floods before it answers": SH + 'head -c 100000 /dev/zero\nexec PYTHON "$@"\n',
}
MEMORY = {resource.RLIMIT_AS: 8 << 30}  # one that prints without end must not take the machine's
COMMANDS = {
    "run": ("run", "spin", "--budget", "5", "--json"),
    "detect": ("detect", "--json"),
    "doctor": ("doctor", "--json"),
}
# Detection may wait for an interpreter before it gives up on it; a run, never past its budget.
WITHIN = {"run": 12.0, "detect": 40.0, "doctor": 60.0}


def _try(script: str, command: str, room: Room) -> None:
    path = room.root / "streams" / "python"
    broken = room.root / "streams" / "site"
    broken.mkdir()
    for name in ("json", "sitecustomize", "importlib"):
        (broken / f"{name}.py").write_text("raise SystemExit('broken site')\n")
    text = script.replace("exec PYTHON", f"exec {room.subject.python}").replace(
        "BROKEN", str(broken)
    )
    path.write_text(text.replace('\nPYTHON "', f'\n{room.subject.python} "'))
    path.chmod(0o755)
    _judged(room, command, str(path))


def _judged(room: Room, command: str, python: str) -> None:
    words = (*COMMANDS[command], "--python", python)
    room.run(*words, codes=(0, 1, 2), within=WITHIN[command], limits=MEMORY)


def _kind(kind: str, command: str, room: Room) -> None:
    """Something that is no interpreter at all."""
    path = room.root / "streams" / "python"
    KINDS[kind](path)
    _judged(room, command, {"an empty name": "", "a word": "absent"}.get(kind, str(path)))


def _file(content: bytes, mode: int, path: Path) -> None:
    path.write_bytes(content)
    path.chmod(mode)


KINDS: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a FIFO": partial(os.mkfifo, mode=0o755),
    "a script without a shebang": partial(_file, b"exit 3\n", 0o755),
    "a file that may not run": partial(_file, SH.encode(), 0o644),
    "a binary of no known format": partial(_file, b"\x7fELF" + bytes(100), 0o755),
    "a shebang without a program": partial(_file, b"#!/absent/python\n", 0o755),
    "a link to itself": lambda path: path.symlink_to(path),
    "an empty name": lambda _: None,
    "a word": lambda _: None,
}


def _cases() -> Iterator[Case]:
    for command in COMMANDS:
        for what, script in SCRIPTS.items():
            yield Case(
                f"{command}, an interpreter that {what}", partial(_try, script, command), 240
            )
        for kind in KINDS:
            yield Case(f"{command}, --python {kind}", partial(_kind, kind, command), 240)


FIRST = (
    "run, an interpreter that is silent",
    "run, an interpreter that leaves a child, silent",
    "detect, an interpreter that prints without end",
)
case_of = listed(_cases, FIRST)
