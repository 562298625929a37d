"""Signals at random moments, and standard streams whose other end is closed, gone or slow."""

import json
import os
import random
import signal
import subprocess
import time
from functools import partial

from .case import Case, generator
from .modes import MODES, Mode
from .room import SPIN, Finished, Room, Running
from .terminal import Terminal

INT, TERM = signal.SIGINT, signal.SIGTERM
SOON_S = 8.0  # due after the first signal
FORCED_S = 2.0  # due after the second Ctrl-C, on a machine with neighbours
STARTING_S = 0.5  # until then Python itself may answer, by the signal's own death
GAPS_S = (0.0, 0.005, 0.05, 0.3)  # from the first Ctrl-C to the second
HARMLESS = (signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT, signal.SIGURG)
KINDS = ("once", "twice", "twice", "TERM", "HUP", "storm", "harmless", "stopped", "TERM, INT")


def _signalled(mode: Mode, kind: str, moment: float, gap: float, seed: int, room: Room) -> None:
    started = mode.start(room)
    started.pump(moment)
    began = time.monotonic()
    send = partial(_send, started)
    due = {*mode.codes, 130}
    if kind in ("once", "twice"):
        send(INT)
        due |= {-INT} if moment < STARTING_S else set()
    if kind == "twice":
        started.pump(gap)
        began = time.monotonic()
        send(INT)
        due.add(-INT)
    elif kind in ("TERM", "HUP"):
        number = signal.Signals[f"SIG{kind}"]
        send(number)
        due |= {-number} if moment < STARTING_S or not mode.runs or mode.screen else set()
    elif kind == "TERM, INT":
        send(TERM)
        send(INT)
        due |= {-TERM, -INT}
    elif kind == "storm":
        for _ in range(30):
            send(INT)
            time.sleep(0.01)
        due.add(-INT)
    if kind in ("harmless", "stopped"):
        _harmless(started, kind, random.Random(seed))
        # Neighbours may leave a run no time.
        mode.finish(room, started, (*mode.codes, 1) if mode.runs else mode.codes)
        return
    finished = started.wait(25)
    lasted = time.monotonic() - began
    room.judge(finished, due if moment > STARTING_S else due | {1}, 600)
    most = FORCED_S if kind == "twice" else SOON_S
    if finished.code is not None and lasted > most:
        room.violation("late", f"{kind} after {moment:.2f} s: ended {lasted:.1f} s later")
    if kind == "once" and moment > 1.0:
        _judge_document(room, mode, finished)


def _send(started: Running | Terminal, number: signal.Signals) -> None:
    """To the program, or from its keyboard."""
    if isinstance(started, Terminal) and number == INT:
        started.press(b"\x03")
    elif isinstance(started, Terminal):
        started.send(number)
    else:
        started.send(number, group=number == INT)  # a terminal's Ctrl-C reaches the whole group


def _harmless(started: Running | Terminal, kind: str, rng: random.Random) -> None:
    for _ in range(100 if kind == "harmless" else 3):
        if kind == "harmless":
            started.send(rng.choice(HARMLESS))
            time.sleep(0.005)
        else:
            started.send(signal.SIGTSTP)
            started.pump(rng.uniform(0.0, 0.4))
            started.send(signal.SIGCONT)


def _judge_document(room: Room, mode: Mode, finished: Finished) -> None:
    """A run that was cut short still prints what it has."""
    if "--json" not in mode.words or not mode.runs or finished.code != 130:
        return
    try:
        json.loads(finished.stdout)
    except ValueError:
        said = finished.stdout[-60:]
        if mode.words[0] != "ceilings":
            room.violation("lost result", f"{finished.words}: no document after Ctrl-C: {said!r}")


# --------------------------------------------------------------------- pipes


def _head(words: tuple[str, ...], lines: int, room: Room) -> None:
    """`| head -LINES`."""
    ours, theirs = os.pipe()
    running = room.start(*words, stdout=theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb") as stdout:
        for _ in range(lines):
            stdout.readline()
    finished = running.wait(30)
    room.judge(finished, (0, 130), 15)
    if words[0] != "run" and finished.stderr:
        room.violation("wording", f"{finished.words} | head: {finished.stderr[:200]!r}")


def _closed(words: tuple[str, ...], streams: tuple[int, ...], room: Room) -> None:
    def close() -> None:
        for number in streams:
            os.close(number)

    room.run(*words, preexec_fn=close, codes=(0, 1), within=15)


def _full(words: tuple[str, ...], room: Room) -> None:
    """A stream that takes nothing; the device is the machine's, but only written to."""
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        room.run(*words, stdout=full, codes=(1,), within=15)


def _control(kind: str, room: Room) -> None:
    """--control with everything that its standard input can be."""
    words = (*SPIN, "--jsonl", "--control")
    lines = {
        "garbage": b"x\n\xff\n{}\n[]\n1\n" + b"[" * 100_000 + b"\n",
        "a word of another kind": b'{"control": 7}\n{"control": null}\n{"control": ["cancel"]}\n',
        "an endless line": b"x" * 5_000_000,
        "nothing": b"",
    }
    if kind in lines:
        running = room.start(*words, stdin=subprocess.PIPE)
        assert running.process.stdin is not None
        try:
            running.process.stdin.write(lines[kind])
            running.process.stdin.flush()
            time.sleep(0.5)
            running.process.stdin.close()
        except BrokenPipeError:
            pass
        room.judge(running.wait(30), (1, 2, 130), 15)
        return
    path = room.root / "streams" / "given"
    path.write_bytes(b'{"control": "pause"}\n')
    with open("/dev/null" if kind == "/dev/null" else path, "rb") as given:  # noqa: PTH123
        room.run(*words, stdin=given, codes=(0, 1, 2, 130), within=15)


JSONL = (*SPIN, "--jsonl")
LIGHT = (
    ("list",),
    ("detect",),
    ("list", "--json"),
    ("watch", "--json", "--count", "3"),
    ("--help",),
)
PIPES = (
    *((f"| head -{n}", partial(_head, JSONL, n)) for n in (0, 1, 2, 20)),
    *((f"--json | head -{n}", partial(_head, (*SPIN, "--json"), n)) for n in (0, 1)),
    *((f"{' '.join(w)} | head -{n}", partial(_head, w, n)) for w in LIGHT for n in (0, 1)),
    *(
        (f"{' '.join(w)} without streams {s}", partial(_closed, w, s))
        for w in (JSONL, (*SPIN, "--json"), SPIN, ("detect",), ("list",))
        for s in ((0,), (1,), (2,), (0, 1, 2))
    ),
    *((f"{' '.join(w)} > /dev/full", partial(_full, w)) for w in (JSONL, SPIN, ("list",))),
    *(
        (f"--control with {k}", partial(_control, k))
        for k in (
            "garbage",
            "a word of another kind",
            "an endless line",
            "nothing",
            "/dev/null",
            "a file",
        )
    ),
)


def case_of(number: int, seed: int) -> Case | None:
    rng = generator(number, seed)
    if number % 2 == 1 and number // 2 < len(PIPES):
        name, run = PIPES[(number // 2 * 7) % len(PIPES)]
        return Case(name, run, alone=True)
    name = list(MODES)[number // 2 % len(MODES)]
    kind, mode = rng.choice(KINDS), MODES[name]
    moment = rng.choice((rng.uniform(0, 0.5), rng.uniform(0.3, mode.lasts_s), mode.lasts_s))
    gap, own_seed = rng.choice(GAPS_S), rng.randrange(2**31)
    words = f"{name}: {kind} after {moment:.2f} s"
    run = partial(_signalled, mode, kind, moment, gap, own_seed)
    return Case(words, run, alone=True)
