"""Odd surroundings: folders, disks, locales, limits, and code that lies in the current folder."""

import resource as rs
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from . import mounts
from .case import Case, listed
from .room import SPIN, Room
from .seeds import filled
from .terminal import Terminal

POISONS = ("json", "torch", "workbench", "os", "click", "numpy", "platform", "sitecustomize")
MARKER = "executed"
POISON = f"open({{!r}}, 'a').write(__name__ + chr(10))  # {MARKER}\n"
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": (*SPIN, "--json"),
    "detect": ("detect", "--json"),
    "detect --python": ("detect", "--json", "--python", "PYTHON"),
    "doctor": ("doctor", "--json"),
    "list": ("list", "--json"),
    "open": ("open", "DOCUMENT", "--plain"),
    "ceilings": ("ceilings", "--budget", "4", "--json"),
    "model": ("advise", "--model", "MODEL", "--budget", "6", "--json"),
}
MAY_FAIL = (0, 1)


def _codes(name: str) -> tuple[int, ...]:
    """Some machines are rightly found to lack something; neighbours may leave a run no time."""
    return MAY_FAIL if name in ("run", "doctor", "ceilings", "model") else (0,)


# ------------------------------------------------------------ poisoned folders


def _poison(room: Room, modules: tuple[str, ...]) -> Path:
    marker = room.root / "streams" / MARKER
    for module in modules:
        (room.cwd / f"{module}.py").write_text(POISON.format(str(marker)))
    return marker


def _poisoned(name: str, modules: tuple[str, ...], room: Room) -> None:
    marker = _poison(room, modules)
    room.run(*filled(room, COMMANDS[name]), codes=_codes(name), within=30)
    _judge_marker(room, marker, f"{name} in a folder with {', '.join(modules)}")


def _poisoned_tui(module: str, room: Room) -> None:
    marker = _poison(room, (module,))
    shown = Terminal(room, "run", "spin", "--budget", "4")
    shown.pump(12, until=b"done")
    shown.leave(10, (0, 1, 130))
    _judge_marker(room, marker, f"the table in a folder with {module}")


def _judge_marker(room: Room, marker: Path, what: str) -> None:
    if marker.exists():
        room.violation("code executed", f"{what}: as {', '.join(set(marker.read_text().split()))}")


# -------------------------------------------------------------------- folders


def _variable(name: str, value: str | None, room: Room) -> None:
    """HOME, TMPDIR or XDG_* set to something that is no writable folder."""
    (room.home / "file").write_text("a file")
    value = value and value.replace("HOME", str(room.home))
    if value is not None and value.endswith("read-only"):
        (room.home / "read-only").mkdir()
        if not mounts.read_only(room.home / "read-only"):
            room.skip("mounts are not permitted")
            return
    environ: dict[str, Any] = {name: value}
    if name == "HOME" and value is not None:  # else it would be the home of the machine's user
        environ |= {key: None for key in room.environ if key.startswith("XDG_")}
        room.judges_files = False  # the state folder is where HOME says
    if value in (None, "", "relative") or value.endswith("/x"):
        room.judges_files = False  # the default below HOME, as XDG asks; or made where it is asked
    finished = room.run(*SPIN, "--json", environ=environ, codes=(0, 1))
    if finished.code == 0 and not finished.stdout.startswith(b"{"):
        room.violation("lost result", f"{name}={value}: exit 0 without a document")


def _deleted_folder(name: str, room: Room) -> None:
    gone = room.cwd / "gone"
    gone.mkdir()
    words = filled(room, COMMANDS[name])
    running = room.start(*words, preexec_fn=gone.rmdir, cwd=str(gone))
    room.judge(running.wait(60), (*_codes(name), 2), 30)


def _full_disk(folder: str, kib: int, room: Room) -> None:
    if not mounts.small_disk(room.root / folder, kib):
        room.skip("mounts are not permitted")
        return
    room.run(*SPIN, "--json", codes=(0, 1))
    shutil.rmtree(room.root / folder, ignore_errors=True)


# ---------------------------------------------------- limits and environment


def _limited(name: str, limits: dict[int, int], room: Room) -> None:
    room.run(*filled(room, COMMANDS[name]), limits=limits, codes=(0, 1), within=30)


def _environ(name: str, environ: dict[str, Any], room: Room) -> None:
    codes = (*_codes(name), 2) if "WORKBENCH_WORKLOADS" in environ else _codes(name)
    room.run(*filled(room, COMMANDS[name]), environ=environ, codes=codes, within=30)


ENVIRONS: tuple[dict[str, Any], ...] = (
    {"LANG": "C"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0"},
    {"LC_ALL": "xx_YY.bogus"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONWARNINGS": "error"},
    {"PYTHONPATH": ":"},
    {"PYTHONPATH": "/absent::"},
    {"TERM": None, "COLUMNS": "0"},
    {"TERM": "bogus", "NO_COLOR": "1", "LINES": "-1", "COLUMNS": "99999999999"},
    {"COLUMNS": "x", "LINES": ""},
    {"PATH": ""},
    {"PYTHONOPTIMIZE": "2"},
    {"PYTHONDEVMODE": "1"},
    {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
    {"OMP_NUM_THREADS": "x", "CUDA_VISIBLE_DEVICES": "bogus"},
    {"WORKBENCH_WORKLOADS": "/absent:/etc/passwd::"},
    {"TZ": "bogus", "SOURCE_DATE_EPOCH": "x"},
)
LIMITS: dict[str, dict[int, int]] = {
    **{f"{n} open files": {rs.RLIMIT_NOFILE: n} for n in (6, 7, 8, 9, 10, 12, 16)},
    **{f"{mib} MiB of addresses": {rs.RLIMIT_AS: mib << 20} for mib in (200, 400, 1000, 4000)},
    **{f"{b} bytes a file": {rs.RLIMIT_FSIZE: b} for b in (0, 100, 5000)},
    "no core, 8 s of processor": {rs.RLIMIT_CPU: 8, rs.RLIMIT_CORE: 0},
    "1 process": {rs.RLIMIT_NPROC: 1},
    "small stack": {rs.RLIMIT_STACK: 1 << 18},
}
PATHS = ("HOME/absent/x", "HOME/file", "/proc", "", "HOME/read-only", None, "relative", "/dev/full")
VARIABLES = ("HOME", "TMPDIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")


def _cases() -> Iterator[Case]:
    yield from _poison_cases()
    yield from _folder_cases()
    for limit, values in LIMITS.items():
        for name in ("run", "detect", "doctor", "open"):
            if name != "doctor" or rs.RLIMIT_NOFILE in values:
                yield Case(f"{name} with {limit}", partial(_limited, name, values))
    for environ in ENVIRONS:
        for name in ("run", "detect", "list", "open"):
            yield Case(f"{name} with {environ}", partial(_environ, name, environ))


def _poison_cases() -> Iterator[Case]:
    for name in COMMANDS:
        light = name in ("detect", "detect --python", "list")
        for module in POISONS if light else ("json", "torch"):
            yield Case(f"{name} with {module}.py", partial(_poisoned, name, (module,)))
        yield Case(f"{name} with all poisons", partial(_poisoned, name, POISONS))
    for module in POISONS[:4]:
        yield Case(f"TUI with {module}.py", partial(_poisoned_tui, module))


def _folder_cases() -> Iterator[Case]:
    for name in COMMANDS:
        yield Case(f"{name} in a deleted folder", partial(_deleted_folder, name))
    for variable in VARIABLES:
        for value in PATHS:
            yield Case(f"{variable}={value}", partial(_variable, variable, value))
    for folder in ("tmp", "state", "cache", "cwd"):
        for kib in (4, 16, 64):
            yield Case(f"{folder} of {kib} KiB", partial(_full_disk, folder, kib))


FIRST = (
    "doctor with json.py",
    "TUI with workbench.py",
    "detect --python with json.py",
    "doctor with torch.py",
    "TUI with json.py",
    "model in a deleted folder",
    "run with 8 open files",
    "tmp of 16 KiB",
)
case_of = listed(_cases, FIRST)
