"""Every option that writes a file, aimed at everything that a path can be.

Device nodes are copies in the case's own folder, never the machine's.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import mounts
from .case import Case, listed
from .room import Finished, Room, Running
from .seeds import filled

NAME = "out.onnx"
OLD = b"what was here before"
# Not every backend has a profiler.
MATMUL = ("run", "matmul", "--set", "n=64", "--backend", "torch", "--precision", "fp32")
WRITERS: dict[str, tuple[str, ...]] = {
    "--output": ("run", "spin", "--budget", "3", "--json", "--output"),
    "--jsonl --output": ("run", "spin", "--budget", "3", "--jsonl", "--output"),
    "--trace": (*MATMUL, "--budget", "7", "--json", "--trace"),
    "--save-best": ("advise", "--model", "MODEL", "--budget", "8", "--json", "--save-best"),
}


@dataclass(frozen=True)
class Target:
    """A path to write to: which exit codes are due, and how it is made."""

    codes: tuple[int, ...]
    make: Callable[[Room, Path], str | None] | None = None  # a word: it cannot be had here
    name: str = NAME


def _regular(_: Room, path: Path) -> None:
    path.write_bytes(OLD)


def _link(_: Room, path: Path) -> None:
    (path.parent / "behind").write_bytes(OLD)
    path.symlink_to("behind")


def _dangling(room: Room, path: Path) -> None:
    path.symlink_to("absent")
    room.expected.add("cwd/absent")


def _fifo(_: Room, path: Path) -> None:
    os.mkfifo(path)


def _node(minor: int, _: Room, path: Path) -> str | None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    except PermissionError:
        return "mknod is not permitted"
    return None


def _read_only(_: Room, path: Path) -> str | None:
    return None if mounts.read_only(path.parent) else "mounts are not permitted"


def _full(_: Room, path: Path) -> str | None:
    if not mounts.small_disk(path.parent, 8):
        return "mounts are not permitted"
    path.write_bytes(OLD)
    with suppress(OSError), (path.parent / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(1024)):
            pass
    return None


MEASURED = (0, 1)  # 1: neighbours left the run no time
TARGETS = {
    "a missing file": Target(MEASURED),
    "a regular file": Target(MEASURED, _regular),
    "a link": Target((*MEASURED, 2), _link),
    "a dangling link": Target((*MEASURED, 2), _dangling),
    "a link to itself": Target((2,), lambda _, path: path.symlink_to(path.name)),
    "a FIFO with a reader": Target((*MEASURED, 2), _fifo),
    "a FIFO without a reader": Target((1, 2), _fifo),
    "a copy of /dev/null": Target((*MEASURED, 2), partial(_node, 3)),
    "a copy of /dev/full": Target((1, 2), partial(_node, 7)),
    "a folder": Target((2,), lambda _, path: path.mkdir()),
    "a read-only folder": Target((2,), _read_only),
    "a full disk": Target((1, 2), _full),
    "a missing folder": Target((2,), name="absent/out.onnx"),
    "below a file": Target((2,), name="plain/out.onnx"),
    "/proc": Target((2,), name="/proc/out.onnx"),
    # /dev/stdout is one too, and not ours to try.
    "a link to its own stdout": Target(
        (*MEASURED, 2), lambda _, path: path.symlink_to("/proc/self/fd/1")
    ),
    "an empty name": Target((2,), name=""),
    "a long name": Target((2,), name="x" * 300),
    "a name that is no UTF-8": Target((*MEASURED, 2), name=os.fsdecode(b"\xff.onnx")),
}


def _command(room: Room, writer: str, name: str) -> list[str]:
    return [*filled(room, WRITERS[writer]), name]


def _try(writer: str, kind: str, room: Room) -> None:
    target = TARGETS[kind]
    path = room.cwd / target.name
    (room.cwd / "plain").write_bytes(OLD)
    if target.make and (why := target.make(room, path)):
        room.skip(why)
        return
    room.expected |= {f"cwd/{target.name}", "cwd/" + ascii(target.name)}
    before = path.lstat() if os.path.lexists(path) else None
    command = _command(room, writer, target.name)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if kind.endswith("a reader") else None
    if kind.endswith("without a reader") and reader is not None:
        os.close(reader)
    running = room.start(*command)
    finished = _drained(running, reader) if kind == "a FIFO with a reader" else running.wait(45)
    room.judge(finished, target.codes, 20)
    if before is not None:
        _judge_target(room, path, before, f"{writer} to {kind}")
    grows = writer.startswith("--jsonl")  # events take the old file's place from the first one on
    if kind == "a full disk" and not grows and path.read_bytes() != OLD and finished.code:
        room.violation("lost result", f"{writer} to {kind}: the old file is gone or cut off")
    if (
        finished.code == 0
        and kind in ("a missing file", "a regular file")
        and not (path.is_file() and path.stat().st_size > 100)
    ):
        room.violation("lost result", f"{writer} to {kind}: exit 0 without a file")


def _drained(running: Running, reader: int | None) -> Finished:
    """Wait, and read the FIFO meanwhile."""
    until = time.monotonic() + 45
    while running.process.poll() is None and time.monotonic() < until:
        with suppress(BlockingIOError):
            os.read(reader or 0, 65536)
        time.sleep(0.01)
    return running.wait(0.1)


def _judge_target(room: Room, path: Path, before: os.stat_result, what: str) -> None:
    """A node or FIFO is still there, and a link is still that link."""
    if not os.path.lexists(path):
        room.violation("target destroyed", f"{what}: it is gone")
        return
    kind, now = stat.S_IFMT(before.st_mode), stat.S_IFMT(path.lstat().st_mode)
    if kind != now and stat.S_ISLNK(kind):
        room.violation("link replaced", f"{what}: the file behind it stayed as it was")
    elif kind != now:
        room.violation("target destroyed", f"{what}: it is an ordinary file now")


def _planted(writer: str, room: Room) -> None:
    """Links under every name that the result has had on its way, planted while the run lasts."""
    victim = room.home / "victim"
    victim.write_bytes(OLD)
    room.expected.add(f"cwd/{NAME}")
    running = room.start(*_command(room, writer, NAME))
    seen = {f".{NAME}.{running.process.pid}.tmp"}
    while running.process.poll() is None and time.monotonic() - running.began < 40:
        seen |= {entry.name for entry in room.cwd.iterdir()} - {NAME}
        for name in seen:
            with suppress(OSError):
                (room.cwd / name).symlink_to(victim)
        time.sleep(0.005)
    room.judge(running.wait(0.1), (0, 1, 2), 20)
    room.expected |= {f"cwd/{name}" for name in seen}
    if victim.read_bytes() != OLD:
        room.violation("target destroyed", f"{writer}: a planted link was followed")
    if (room.cwd / NAME).is_symlink():
        room.violation("target destroyed", f"{writer}: the result is a planted link")


def _cases() -> Iterator[Case]:
    for writer in WRITERS:
        yield Case(f"{writer} with links planted", partial(_planted, writer))
        for kind in TARGETS:
            yield Case(f"{writer} to {kind}", partial(_try, writer, kind))


FIRST = (
    "--save-best to a copy of /dev/null",
    "--output with links planted",
    "--output to a FIFO without a reader",
    "--jsonl --output to a FIFO without a reader",
    "--output to a link",
)
case_of = listed(_cases, FIRST)
