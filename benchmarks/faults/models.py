"""Damaged models: batches of the program's own `fuzz_models.py`, whose table is folded in."""

import re
from functools import partial

from .case import Case, batch
from .room import Room

BATCH = 500  # mutations; starting its worker costs about a second
COUNT = re.compile(r"^ *(\d+)  violations$", re.MULTILINE)
LINE = re.compile(r"^VIOLATION (.*)$", re.MULTILINE)


def _batch(number: int, seed: int, room: Room) -> None:
    first, count = batch(number, BATCH)
    script = room.subject.tree / "benchmarks" / "fuzz_models.py"
    done = room.python(script, "--seed", seed, "--first", first, "--count", count)
    for found in LINE.findall(done.stdout):
        kind = "internal error" if "internal" in found or "failed" in found else "wording"
        room.violation("leftover file" if "files changed" in found else kind, found)
    if COUNT.search(done.stdout) is None:
        room.violation("campaign error", f"fuzz_models.py: {done.stderr[-300:]}")


def case_of(number: int, seed: int) -> Case | None:
    return Case(f"{batch(number, BATCH)[1]} mutations", partial(_batch, number, seed), bound_s=300)
