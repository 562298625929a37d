"""Scenario and price files: by grammar, mutated, and such that a careless reader never ends."""

import random
from functools import partial

from .case import Case, generator
from .room import Room

SCENARIO = """\
[[scenario]]
id = "mine"
title = "Mine"
question = "Which?"
workload = "spin"
textbook = "cpu"
objective = "latency"
[scenario.params]
ms = 2.0
"""
PRICES = '[per_hour]\ncpu = 0.10\ngpu = 2.5\n"cuda:1" = 3.0\n'
KEYS = (
    "id",
    "title",
    "workload",
    "params",
    "per_hour",
    "cpu",
    "scenario",
    '"a b"',
    "a.b",
    "''",
    "\u0130",
)
VALUES = (
    *('"x"', "''", "1", "-1", "0", "1e308", "-1e308", "inf", "nan", "true", "[]", "{}", "[[1]]"),
    *("9" * 400, "1" * 5000, "0x" + "f" * 999, "1979-05-27T07:32:00Z", "07:32:00", '"\\u0000"'),
    *('"\\u001b]0;x\\u0007"', '"' + "x" * 70_000 + '"', '"""\nx\n"""', "{a = 1, b = [1, {c = 2}]}"),
    *('"\u202e"', "[1, 'a', {}]", '"spin"', '"matmul"', '"cpu"', '"latency"'),
)
# Each is short, and asks for work that grows with the square of its length or worse.
TRAPS = {
    "escaped quotes without an end": 'x = "' + 'a\\"' * 50_000,
    "quotes": "x = " + '"' * 150_000,
    "single quotes": "x = " + "'" * 150_001,
    "an open array": "x = " + "[" * 50_000,
    "nested arrays": "x = " + "[" * 5_000 + "]" * 5_000,
    "nested tables": "x = " + "{a=" * 5_000 + "1" + "}" * 5_000,
    "a long dotted key": "a" + ".a" * 50_000 + " = 1",
    "a long dotted table": "[a" + ".a" * 50_000 + "]",
    "many tables": "\n".join(f"[t{n}]" for n in range(20_000)),
    "many dotted tables": "\n".join(f"[a.b{n}.c]\nx = 1" for n in range(5_000)),
    "many scenarios": SCENARIO * 1_000,
    "many keys": "\n".join(f"k{n} = {n}" for n in range(20_000)),
    "comments": "#" * 200_000,
    "blanks": " " * 200_000 + "x",
    "line breaks": "\n" * 200_000 + "x",
    "backslashes": 'x = "' + "\\" * 150_000,
    "a huge integer": "x = " + "9" * 150_000,
    "a huge float": "x = 1e" + "9" * 150_000,
    "underscores": "x = 1" + "_1" * 70_000,
    "an open multi-line string": 'x = """' + 'a"' * 70_000,
    "megabytes": "#" + "x" * 3_000_000,
    "NUL bytes": "\0" * 1000,
}


def _text(rng: random.Random) -> str:
    """A file by grammar, seldom a good one."""
    lines = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.25:
            lines.append(rng.choice(("[{}]", "[[{}]]", "[{}.{}]")).format(*rng.choices(KEYS, k=2)))
        elif kind < 0.9:
            lines.append(f"{rng.choice(KEYS)} = {rng.choice(VALUES)}")
        else:
            lines.append(rng.choice(("=", "]", "x", '"', "\t#", "[", "a = ", "\\", "\r")))
    return "\n".join(lines)


def _damaged(rng: random.Random, text: str) -> bytes:
    """A good file with a few pieces changed."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines = text.splitlines()
        at = rng.randrange(len(lines))
        key, equals, _value = lines[at].partition(" = ")
        change = rng.randrange(5)
        if change == 0 and equals:
            lines[at] = f"{key} = {rng.choice(VALUES)}"
        elif change == 1:
            lines.insert(at, rng.choice(lines))
        elif change == 2 and len(lines) > 1:
            del lines[at]
        elif change == 3:
            lines[at] = lines[at].replace(key, rng.choice(KEYS), 1)
        else:
            cut = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + rng.choice(('"', "\x1b", "\x00", "[", "\udcff", ""))
        text = "\n".join(lines)
    return text.encode(errors="surrogateescape")


def _try(option: str, data: bytes, room: Room) -> None:
    path = room.root / "streams" / "given.toml"
    path.write_bytes(data)
    # Neither runs anything: a good scenario is only listed, prices meet a workload that is unknown.
    words = ("list", "--json") if option == "--scenarios" else ("advise", "no-such-scenario")
    room.run(*words, option, str(path), codes=(0, 2), within=4)


def case_of(number: int, seed: int) -> Case | None:
    rng = generator(number, seed)
    option = ("--scenarios", "--prices")[number % 2]
    if number < 2 * len(TRAPS):
        name = list(TRAPS)[number // 2]
        return Case(f"{option}: {name}", partial(_try, option, TRAPS[name].encode()))
    good = SCENARIO if option == "--scenarios" else PRICES
    data = _damaged(rng, good) if rng.random() < 0.6 else _text(rng).encode()
    return Case(f"{option} with {data[:60]!r}", partial(_try, option, data))
