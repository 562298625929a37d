"""Every process of a command is hit at a random moment: killed, crashed, stopped, hung up on."""

import signal
import time
from contextlib import suppress
from functools import partial

import psutil

from .case import Case, generator
from .modes import MODES, Mode, family
from .room import Room, Running
from .terminal import Terminal

HITS = (
    signal.SIGKILL,
    signal.SIGKILL,
    signal.SIGSEGV,
    signal.SIGSTOP,
    signal.SIGTERM,
    signal.SIGHUP,
)
ROLES = ("worker", "guardian", "front", "engine", "helper")
FIND_S = 3.0  # a process that is asked for may not have been started yet


def _hit(
    mode: Mode, role: str, number: signal.Signals, moment: float, twice: bool, room: Room
) -> None:
    started = mode.start(room)
    started.pump(moment)
    target = _found(role, started)
    if target is None:
        mode.finish(room, started, (*mode.codes, 1))
        room.skip(f"there was no {role}")
        return
    with suppress(psutil.Error):
        target.send_signal(number)
    if role == "front" and number == signal.SIGSTOP:
        started.pump(1.0)
        with suppress(psutil.Error):
            target.send_signal(signal.SIGCONT)
    # The helper may be the one that describes the workload, whose death is a refusal.
    due = (*mode.codes, 1, *{"front": (-number, 130), "helper": (2,)}.get(role, ()))
    if twice and role != "front":
        _interrupt(room, started, due)
    else:
        mode.finish(room, started, due)


def _found(role: str, started: Running | Terminal) -> psutil.Process | None:
    until = time.monotonic() + FIND_S
    while time.monotonic() < until:
        with suppress(psutil.Error):
            if found := family(role, started):
                return found[0]
        if not started.alive():
            break
        started.pump(0.02)
    return None


def _interrupt(room: Room, started: Running | Terminal, due: tuple[int, ...]) -> None:
    """Ctrl-C, and again: the second has to end the program, whatever it waits for."""
    started.pump(0.5)
    started.send(signal.SIGINT)
    started.pump(0.1)
    started.send(signal.SIGINT)
    room.judge(started.wait(25), (*due, 130, -signal.SIGINT), 600)


def case_of(number: int, seed: int) -> Case | None:
    rng = generator(number, seed)
    names = [name for name, mode in MODES.items() if mode.runs] * 3 + ["doctor", "detect", "watch"]
    name = names[number % len(names)]
    mode, role, hit = MODES[name], rng.choice(ROLES), rng.choice(HITS)
    if number < 12:  # the hits that have hurt before, in each campaign
        role, hit = (
            ("guardian", "worker")[number % 2],
            (signal.SIGSTOP, signal.SIGKILL)[number // 2 % 2],
        )
    moment = rng.uniform(0.0, mode.lasts_s)
    twice = rng.random() < 0.3 and not mode.screen
    words = f"{name}: {hit.name} to the {role} after {moment:.2f} s" + ", Ctrl-C twice" * twice
    return Case(words, partial(_hit, mode, role, hit, moment, twice))
