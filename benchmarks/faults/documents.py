"""Damaged documents and journals: tens of thousands in process, a few of them by command."""

import json
import random
from functools import partial
from pathlib import Path

from .case import Case, batch
from .document_mutations import damaged
from .room import Room

BATCH = 500  # files; starting a process for them costs a second
BY_COMMAND = 4  # files of a batch that the command line opens too
WORKER = Path(__file__).with_name("document_worker.py")


def _batch(number: int, seed: int, room: Room) -> None:
    first, count = batch(number, BATCH)
    done = room.python("-P", WORKER, room.subject.fixtures, seed, first, count)
    try:
        for kind, text in json.loads(done.stdout)["violations"]:
            room.violation(kind, text)
    except ValueError:
        room.violation("campaign error", f"document_worker.py: {done.stderr[-300:]}")
    rng = random.Random(f"{seed}:{number}:command")
    for _ in range(BY_COMMAND):
        _by_command(rng, room)


def _by_command(rng: random.Random, room: Room) -> None:
    _, path = damaged(room.subject.fixtures, rng, room.root / "streams")
    option = rng.choice(("--json", "--plain"))
    room.run("open", str(path), option, codes=(0, 2), within=10)


def case_of(number: int, seed: int) -> Case | None:
    return Case(f"{batch(number, BATCH)[1]} files", partial(_batch, number, seed), bound_s=300)
