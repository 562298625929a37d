"""Workloads of a user that misbehave: each may cost its own row, and nothing else."""

import json
import resource
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from .case import Case, listed
from .room import Finished, Room
from .seeds import TESTS

ZOO = TESTS / "fixtures" / "zoo"
# A whole workload; the zoo changes one piece of it at a time.
WHOLE = """\
import os, sys, time
{top}
from workbench.contract import Accuracy, Task, Variant, Work, Workload, WorkloadError
class Bad(Workload):
    name = {name!r}
    title = {title}
    teaches = "Nothing."
    parameters = ()
    variants = (Variant("cpu", "numpy", "fp32"), Variant("cpu", "numpy", "bf16"))
    def work(self, case):
        {work}
        return Work(flops=1e5, bytes_moved=None, items=1, item="steps", memory_bytes=1e6)
    def prepare(self, case, setup):
        {prepare}
        return BadTask()
class BadTask(Task):
    def step(self):
        {step}
        time.sleep(0.001)
    def check(self):
        {check}
        return Accuracy.within(1e-6, 1e-3, "known")
WORKLOAD = Bad()
{bottom}
"""
MEMORY = {resource.RLIMIT_AS: 8 << 30}  # an endless line must not take the machine's
SOUND = {"top": "", "title": '"A bad one"', "bottom": ""}
SOUND |= dict.fromkeys(("work", "prepare", "step", "check"), "pass")
CHANNEL = "[int(a) for a in sys.argv if a.isdigit()][0]"
ANYWHERE = {
    "prints": 'print("NOISE"); os.write(1, b"NOISE\\n")',
    "exits": "sys.exit(0)",
    "exits hard": "os._exit(0)",
    "interrupts": "raise KeyboardInterrupt",
    "raises": 'raise RuntimeError("broken")',
    "raises 5 MB": 'raise RuntimeError("x" * 5_000_000)',
    "raises escapes": 'raise RuntimeError("\\x1b]0;owned\\x07\\x1b[2J\\n\\r\\u202e")',
    "raises a surrogate": 'raise RuntimeError("\\udcff")',
    "raises deep": "f = lambda: f(); f()",
    "raises no Exception": 'raise type("Odd", (BaseException,), {})("odd")',
    "raises without text": 'raise type("Odd", (Exception,), {"__str__": lambda s: 1 / 0})()',
    "loops": "\n        while True: pass",
    "sleeps": "time.sleep(3600)",
    "kills itself": "os.kill(os.getpid(), 11)",
    "kills its group": "os.killpg(0, 9)",
    "stops itself": "os.kill(os.getpid(), 19)",
    "forks": "os.fork() or time.sleep(3600)",
    "forks twice": "os.fork() or (os.setsid(), os.fork(), time.sleep(3600))",
    "closes everything": "os.closerange(0, 100)",
    "moves away": 'os.chdir("/")',
    "hides stdout": "sys.stdout = sys.stderr = None",
    "ignores signals": "[__import__('signal').signal(n, 1) for n in (2, 15, 1)]",
}
GARBLED = {
    "garbage": 'os.write(CHANNEL, b"no json\\n")',
    "a list": 'os.write(CHANNEL, b"[1, 2]\\n")',
    "a number": 'os.write(CHANNEL, b"1\\n")',
    "an empty object": 'os.write(CHANNEL, b"{}\\n")',
    "ok of another kind": "os.write(CHANNEL, b'{\"ok\": 1}\\n')",
    "an error of another kind": 'os.write(CHANNEL, b\'{"error": "no"}\\n\')',
    "an error with a number": (
        'os.write(CHANNEL, b\'{"error": {"code": 1, "message": 2, "fatal": 3}}\\n\')'
    ),
    "no UTF-8": 'os.write(CHANNEL, b"\\xff\\xfe\\n")',
    "a deep list": 'os.write(CHANNEL, b"[" * 100000 + b"\\n")',
    "an endless line": "\n        while True: os.write(CHANNEL, b'x' * 65536)",
}
RETURNS = {
    "None": "return None",
    "NaN": 'return Work(float("nan"), None, 1, "x", 1e6)',
    "strings": 'return Work("a", "b", "c", "d", "e")',
    "negative": 'return Work(-1e308, -1, -1, "x", -1)',
    "huge": 'return Work(10 ** 400, 1e308, 1, "x", 1e300)',
    "infinite memory": 'return Work(1e5, None, 1, "x", float("inf"))',
}


def zoo() -> Iterator[tuple[str, str]]:
    """Each bad workload: what is bad about it, and its text without its name."""

    def text(**pieces: str) -> str:
        return WHOLE.format(**{**SOUND, "name": "NAME", **pieces})

    for what, code in ANYWHERE.items():
        top = code.replace("\n        ", "\n")
        yield f"{what} at import", text(top=top)
        for place in ("work", "prepare", "step", "check"):
            yield f"{what} in {place}", text(**{place: code})
    for what, code in GARBLED.items():
        for place in ("prepare", "step"):
            yield f"answers {what} in {place}", text(**{place: code.replace("CHANNEL", CHANNEL)})
    for what, code in RETURNS.items():
        yield f"work() returns {what}", text(work=code)
    yield "a title of escapes", text(title='"\\x1b]0;owned\\x07\\x1b[2J"')
    yield "a title that is none", text(title="7")
    yield "no workload", "x = 1"
    yield "no Python", "def ("
    yield "no UTF-8", "\udcff"
    yield "an empty file", ""
    yield "a workload of another kind", "WORKLOAD = 7"
    yield "names that raise", text(bottom="del Bad.variants")


def _written(text: str, room: Room) -> None:
    folder = _folder(room)
    (folder / "bad.py").write_text(text.replace("'NAME'", "'bad'"), errors="surrogateescape")
    _try("bad", folder, room)


def _of_the_zoo(name: str, room: Room) -> None:
    """A file of the tests' zoo, which reads its neighbour `_base.py`."""
    folder = _folder(room)
    for needed in (f"{name}.py", "_base.py"):
        shutil.copy(ZOO / needed, folder / needed)
    if (ZOO / "_backends").is_dir():
        shutil.copytree(ZOO / "_backends", folder / "_backends")
    _try(name, folder, room)


def _folder(room: Room) -> Path:
    """A folder for workloads with a sound one in it."""
    folder = room.root / "streams" / "workloads"
    folder.mkdir()
    shutil.copy(room.subject.fixtures / "workloads" / "spin.py", folder)
    return folder


def _try(name: str, folder: Path, room: Room) -> None:
    environ = {"WORKBENCH_WORKLOADS": str(folder)}
    shown = room.run("list", "--json", environ=environ, limits=MEMORY, within=20)
    _judge_json(room, shown, required=True)
    # The neighbour loses nothing.
    both = ("run", "spin", name, "--budget", "5", "--json")
    ran = room.run(*both, environ=environ, limits=MEMORY, codes=(0, 1, 2), within=16)
    _judge_json(room, ran, required=ran.code == 0)
    if ran.code in (0, 1) and not _measured(ran.stdout):
        room.violation("lost result", f"{ran.words}: the neighbour was not measured")


def _measured(document: bytes) -> bool:
    """Whether the sound workload has samples."""
    try:
        found = json.loads(document)["measurements"]
    except (ValueError, LookupError, TypeError):
        return False
    return any(each["n"] for each in found if each["case"]["workload"] == "spin")


def _judge_json(room: Room, finished: Finished, *, required: bool) -> None:
    """Standard output is one document, or empty where there is a reason for it."""
    if not finished.stdout and not required:
        return
    try:
        json.loads(finished.stdout)
    except ValueError as error:
        said = finished.stdout[:100]
        room.violation("spoilt output", f"{finished.words}: no JSON: {error}: {said!r}")


def _cases() -> Iterator[Case]:
    for what, text in zoo():
        yield Case(what, partial(_written, text), bound_s=200)
    for path in sorted(ZOO.glob("[!_]*.py")):
        yield Case(f"zoo: {path.stem}", partial(_of_the_zoo, path.stem), bound_s=200)


FIRST = (
    "prints at import",
    "exits at import",
    "answers garbage in step",
    "work() returns None",
    "loops in work",
    "raises 5 MB in step",
    "raises escapes at import",
)
case_of = listed(_cases, FIRST)
