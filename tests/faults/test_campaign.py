"""The campaign of `make faults` finds what is wrong: one that cannot fail would prove nothing."""

import json
import random
from pathlib import Path

import pytest

from benchmarks.faults import judge
from benchmarks.faults.case import Case, batch
from benchmarks.faults.document_mutations import mutate, numbered
from benchmarks.faults.room import Room
from benchmarks.faults.runner import tried
from benchmarks.faults.subject import Subject

DOCUMENTS = Path(__file__).parents[1] / "fixtures"
# A program that does everything wrong at once.
BROKEN = """#!/bin/sh
case "$*" in *" open "*) exit 0;; esac
echo 'Traceback (most recent call last):' >&2
echo 'workbench: internal error: x' >&2
printf '\\033[2J' >&2
touch "$TMPDIR/left"
sleep 100 >/dev/null 2>&1 &
exit 7
"""


def broken(folder: Path) -> Subject:
    python = folder / "python"
    python.write_text(BROKEN)
    python.chmod(0o755)
    return Subject(str(python), folder)


def found(case: Case, folder: Path) -> list[str]:
    """The kinds of the violations of a program that does everything wrong."""
    return [kind for kind, _ in tried(case, broken(folder), folder).violations]


def test_everything_that_a_broken_program_does_is_found(tmp_path: Path) -> None:
    def lists(room: Room) -> None:
        room.run("list")

    assert sorted(found(Case("lists", lists), tmp_path)) == [
        "internal error",
        "leftover file",
        "leftover process",
        "spoilt output",
        "traceback",
        "wrong exit code",
    ]


def test_a_case_that_breaks_or_never_ends_is_a_violation(tmp_path: Path) -> None:
    def raises(_: Room) -> None:
        raise RuntimeError("the case is wrong")

    def loops(_: Room) -> None:
        while True:
            pass

    assert found(Case("raises", raises), tmp_path) == ["campaign error"]
    assert found(Case("loops", loops, bound_s=0.3), tmp_path) == ["hang"]


def test_the_words_of_a_command_are_judged() -> None:
    def kinds(stderr: bytes, code: int) -> list[str]:
        return [kind for kind, _ in judge.wrong_words(stderr, code, Path("/tree"))]

    assert kinds(b"   0.1 s  run  x\nworkbench: --budget takes seconds\n", judge.USAGE) == []
    assert kinds(b"one\ntwo\n", judge.USAGE) == ["wording"]
    assert kinds(b"", judge.USAGE) == ["wording"]
    assert kinds(b"x" * 5000, judge.FAILED) == ["wording"]
    assert judge.wrong_code(1, (0, 2)) == "exit 1, not 0 or 2"
    assert judge.wrong_code(None, (0,)) is None


@pytest.mark.parametrize("name", ["documents/run-trace.json", "journals/run-trace.jsonl"])
def test_a_damaged_file_follows_from_seed_and_number_alone(name: str) -> None:
    text = (DOCUMENTS / name).read_bytes()
    journal = name.endswith("l")

    def files(first: int, count: int) -> dict[int, bytes]:
        found = numbered(3, first, count)
        return {number: mutate(rng, text, journal=journal)[1] for number, rng in found}

    whole, part = files(0, 30), files(20, 5)
    assert part.items() <= whole.items()
    assert sum(data != text for data in whole.values()) > 25


def test_mutations_reach_every_kind_of_change() -> None:
    text = json.dumps({"a": [1, {"b": "c", "d": 2.5}], "e": None}).encode()
    changes = [mutate(random.Random(n), text, journal=False)[0].split() for n in range(600)]
    assert len({word for words in changes for word in words}) > 18


def test_batches_follow_each_other() -> None:
    spans = [batch(number, 500) for number in range(5)]
    assert spans == [(0, 50), (50, 50), (100, 500), (600, 500), (1100, 500)]
