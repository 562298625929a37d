"""Command lines by grammar, from the definitions of the program's own parameters."""

import json
import random
import subprocess
from functools import partial
from itertools import pairwise
from typing import Any

from .case import Case, generator
from .room import Room
from .subject import Subject

# Prints every command with its options: [name, takes a value].
DESCRIBE = """
import json
from workbench.cli.main import cli
def options(command):
    return [[p.opts[-1], not p.is_flag] for p in command.params
            if p.param_type_name == 'option' and p.opts[-1] != '--help']
print(json.dumps({'': options(cli), **{n: options(c) for n, c in cli.commands.items()}}))
"""
NUMBERS = ("0", "-1", "1", "0.5", "nan", "inf", "-inf", "1e308", "1e-308", "9" * 400, "2**3", "٣")
TEXTS = (
    "",
    " ",
    ",",
    "x",
    "x" * 5000,
    "\x1b]0;x\x07",
    "\n",
    "a\nb",
    "--",
    "-",
    "=",
    "🙂",
    "%s{}",
    "\u202e",
)
# What is written to must lie in the case's folder: the machine's own nodes and files are not ours.
WRITERS = ("--output", "--trace", "--save-best")
TARGETS = ("out.json", "absent/x", ".", "x\x1b[2J", "", "x" * 300, "--json", b"\xff.json")
FILES = ("absent", "/absent/x", ".", "/", "/dev/zero", "/etc/passwd", "/proc/self/mem", "x\x1b[2J")
RAW = (b"\xff", b"\xff.onnx", b"a\xc3=1", b"\xed\xa0\x80")
GOOD: dict[str, tuple[str, ...]] = {
    "--device": ("cpu", "gpu", "cuda:0", "fake:0@2", "cpu,gpu", "cuda:99999999999", "fake:0@nan"),
    "--backend": ("numpy", "torch", "numpy,numpy"),
    "--precision": ("fp32", "bf16,fp32", "int8"),
    "--mode": ("plain", "compile"),
    "--threads": ("1", "1,2", "1..1000000000", "2..1", "0"),
    "--batch": ("1", "1..8", "1..99999999999999999999", "8..1", "1,,2", ".."),
    "--set": ("ms=1", "ms=", "=1", "ms", "ms=nan", "ms=1e400", "ms=1..8", "trouble=die", "ms=1=2"),
    "--shape": ("x=1,3", "x=", "x=-1", "x=1e9,1e9", "x=9999999999999999999999"),
    "--price": ("gpu=2.99", "gpu=nan", "gpu=", "cpu=-1", "x=1", "cpu=1e308"),
    "--every": ("0.5", "nan", "inf", "0"),
    "--count": ("1", "0", "2"),
    "--objective": ("latency", "speed"),
    "--what-if": ("t4", "cpu", "absent"),
    "--python": ("python3", "absent", "/"),
}
BUDGETS = ("3", "2", "0", "-1", "nan", "1e-9", "x", "")  # none of them lasts
# The bounds of a run are added to each line.
LONG = ("--budget", "--all", "--all-gpus", "--thorough", "--crossover", "--control")
# These values of options mean nothing, and never everything.
EMPTY = ("--device", "--precision", "--backend", "--mode")
ARGUMENTS = {
    "run": ("spin", "absent", "", "spin", "../x", "\x1b[2J"),
    "advise": ("absent", "", "realtime\n", "x" * 3000),
    "open": ("absent", "last", "", "/", "/dev/null", "\x00"[:0], "2026", "..", "x" * 5000),
}


def options_of(subject: Subject) -> dict[str, list[tuple[str, bool]]]:
    """The options of each command: name, and whether it takes a value."""
    words = [subject.python, "-P", "-c", DESCRIBE]
    found: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True).stdout)
    return {command: [tuple(option) for option in of] for command, of in found.items()}


def line(rng: random.Random, commands: dict[str, list[tuple[str, bool]]]) -> list[str | bytes]:
    """A command line that cannot run long: each run has a small budget, or a bad one."""
    command = rng.choice([*commands, "run", "run", "advise", "absent"])
    options = commands.get(command, [])
    words: list[str | bytes] = [command] if command else []
    if command in ARGUMENTS:
        words += rng.sample(ARGUMENTS[command], rng.choice((0, 1, 1, 2)))
    count = min(len(options), rng.choice((0, 1, 1, 2, 3)))
    for name, takes_value in rng.sample(options, count):
        if name not in LONG:
            words += [name, value_of(name, rng)] if takes_value else [name]
    if rng.random() < 0.05:
        words.append(rng.choice(("--no-such-option", "--jso", "-x", "--budget")))
    if command == "watch":
        words += ["--count", "1"] if rng.random() < 0.5 else ["--plain", "--count", "1"]
    elif ("--budget", True) in options:
        words += ["--budget", rng.choice(BUDGETS)]
    return words


def value_of(name: str, rng: random.Random) -> str | bytes:
    if name in WRITERS:
        return rng.choice(TARGETS)
    kind = rng.random()
    if kind < 0.45 and name in GOOD:
        return rng.choice(GOOD[name])
    if kind < 0.6 and name in EMPTY:
        return rng.choice(("", ",", " "))
    if kind < 0.7:
        return rng.choice(NUMBERS)
    if kind < 0.8:
        return rng.choice(FILES)
    return rng.choice(RAW) if kind < 0.9 else rng.choice(TEXTS)


def _try(rng: random.Random, room: Room) -> None:
    words = line(rng, options_of(room.subject))
    finished = room.run(*words, codes=(0, 1, 2, 3, 130), within=25, stdin=None)
    for name, value in pairwise(words):
        nothing = isinstance(value, str) and not value.strip(", ")
        if name in EMPTY and nothing and finished.code != 2:
            room.violation("wrong exit code", f"{finished.words}: {name} of nothing is accepted")


FIXED: tuple[tuple[str | bytes, ...], ...] = (
    ("watch", "--every", "nan", "--count", "1"),
    ("watch", "--every", "inf", "--count", "1"),
    ("run", "spin", "--budget", "3", "--device", ""),
    ("run", "spin", "--budget", "3", "--precision", ","),
    ("run", "spin", "--budget", "3", "--backend", ""),
    ("run", "spin", "--budget", "3", "--mode", " "),
    ("advise", "--budget", "3", "--model", b"\xff.onnx"),
    ("run", "spin", "--budget", "3", "--output", b"\xff.json", "--json"),
    ("run", "spin", "--budget", "3", "--set", b"ms=\xff"),
    ("run", "spin", "--budget", "3", "--jsonl", "--control"),
)


def _fixed(words: tuple[str | bytes, ...], room: Room) -> None:
    room.expected |= {"cwd/\udcff.json"}
    due = (2,) if any(w in EMPTY or w == "--every" for w in words) else (0, 1, 2, 130)
    for stdin in ("/dev/null", "/etc/hostname") if "--control" in words else ("/dev/null",):
        with open(stdin, "rb") as given:  # noqa: PTH123
            room.run(*words, codes=due, within=15, stdin=given)


def case_of(number: int, seed: int) -> Case | None:
    rng = generator(number, seed)
    if number < len(FIXED):
        return Case("fixed", partial(_fixed, FIXED[number]))
    return Case("by grammar", partial(_try, rng))
