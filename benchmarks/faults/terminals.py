"""The table on terminals of every size, with every key, stalled, suspended, and closed."""

import random
import signal
import time
from collections.abc import Callable
from functools import partial

from .case import Case, generator
from .room import Room
from .seeds import filled
from .terminal import Terminal

SIZES = (
    (1, 1),
    (1, 80),
    (24, 1),
    (2, 2),
    (5, 20),
    (10, 40),
    (24, 80),
    (50, 132),
    (100, 300),
    (0, 0),
)
RUN = ("run", "spin", "--budget", "4")
KEYS = (
    *(b"\t", b"\r", b"\x1b", b" ", b"?", b"/", b"\x7f", b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D"),
    *(
        b"\x1b[5~",
        b"\x1b[6~",
        b"\x1b[H",
        b"\x1b[F",
        b"\x1b[Z",
        b"\x1bOP",
        b"\x1b[15~",
        b"\x10",
        b"\x05",
    ),
    *(bytes([code]) for code in b"123456789abcdefghijklmnoprtuvwxyz"),
)
PASTE = b"\x1b[200~%s\x1b[201~"
ENDS = (0, 1, 130)
TERMS = ("xterm", "vt100", "linux", "screen", "bogus", "", "dumb")
# Before the table has the keyboard, these two end or stop it by right: ^\ and ^Z.
NO_KEYS = b"\x1c\x1a"
KINDS = ("keys", "keys", "bytes", "bytes", "resizes", "closed")
BOUND_S = 30.0


def _size(size: tuple[int, int], room: Room) -> None:
    shown = Terminal(room, *RUN, size=size)
    for key in (b"1", b"2", b"3", b"4", b"5", b"?", b"\x1b", b"\r", b"\x1b"):
        shown.pump(0.5)
        shown.press(key)
    shown.leave(BOUND_S, ENDS)


def _resizes(seed: int, room: Room) -> None:
    rng = random.Random(seed)
    shown = Terminal(room, *RUN)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        shown.resize(rng.choice((0, 1, 3, 24, 60, 400)), rng.choice((0, 1, 10, 80, 200, 900)))
        shown.pump(rng.choice((0.005, 0.05)))
        if rng.random() < 0.1:
            shown.press(rng.choice(KEYS[-9:]))
    shown.leave(BOUND_S, ENDS)


def _keys(seed: int, kind: str, room: Room) -> None:
    rng = random.Random(seed)
    words = rng.choice((RUN, RUN, ("open", "DOCUMENT"), ("watch",)))
    shown = Terminal(room, *filled(room, words))
    shown.pump(rng.uniform(0.3, 2.0))
    for _ in range(120):
        if kind == "keys":
            shown.press(rng.choice(KEYS))
        else:
            data = bytes(rng.choices(range(256), k=rng.randint(1, 6)))
            shown.press(data.translate(None, NO_KEYS))
        shown.pump(0.03)
    shown.press(b"\x1b")
    shown.pump(0.3)
    shown.leave(BOUND_S, ENDS, b"\x03")
    # The key `e` exports the page into the current folder.
    room.expected |= {f"cwd/{path.name}" for path in room.cwd.glob("workbench-*.html")}


def _byte(code: bytes, room: Room) -> None:
    """One byte that is no UTF-8, as a Latin-1 keyboard sends it: it is ignored."""
    shown = Terminal(room, *RUN)
    shown.pump(1.5)
    shown.press(code)
    shown.pump(4.5, until=b"done")
    if b"Traceback" in shown.screen or b"UnicodeDecodeError" in shown.screen:
        room.violation("traceback", f"{code!r} was typed")
    finished = shown.leave(BOUND_S, (0,))
    if finished.wall_s < 3.0:
        room.violation("lost result", f"{code!r} ended the program after {finished.wall_s:.1f} s")


def _paste(kind: str, room: Room) -> None:
    text = {
        "letters": b"x" * 100_000,
        "escapes": b"\x1b[31m\x1b]0;x\x07" * 1000,
        "bytes": bytes(range(128, 256)) * 50,
        "lines": b"run\n" * 2000,
    }[kind]
    shown = Terminal(room, *RUN)
    shown.pump(1.5)
    for key in (b"s", b"/"):
        shown.press(key)
        shown.pump(0.3)
    data = PASTE % text
    for start in range(0, len(data), 1000):
        shown.press(data[start : start + 1000])
        shown.pump(0.005)
    shown.press(b"\x1b")
    shown.pump(1.0)
    shown.leave(BOUND_S, ENDS, b"\x03")


def _stalled(number: signal.Signals, room: Room) -> None:
    """A terminal that no one reads: the signal still ends the program."""
    shown = Terminal(room, *RUN)
    shown.pump(1.5)
    for _ in range(8):
        shown.resize(random.Random(0).randrange(20, 60), 300)
        time.sleep(0.25)
    began = time.monotonic()
    shown.send(number)
    while time.monotonic() - began < 10 and shown.alive():
        time.sleep(0.05)
    if shown.alive():
        room.violation("hang", f"{number.name} was ignored for 10 s by a stalled terminal")
    room.judge(shown.wait(10), (*ENDS, -number), 600)


def _suspended(room: Room) -> None:
    shown = Terminal(room, *RUN)
    for _ in range(3):
        shown.pump(1.0)
        shown.press(b"\x1a")
        shown.pump(0.5)
        shown.send(signal.SIGCONT)
    shown.leave(BOUND_S, ENDS)


def _closed(moment: float, words: tuple[str, ...], room: Room) -> None:
    shown = Terminal(room, *filled(room, words))
    shown.pump(moment)
    shown.hang_up()
    room.judge(shown.wait(15), (*ENDS, -signal.SIGHUP), 600)


def _term(name: str, room: Room) -> None:
    shown = Terminal(room, *RUN, TERM=name)
    shown.pump(6, until=b"done")
    shown.leave(BOUND_S, ENDS)


FIXED: tuple[tuple[str, Callable[[Room], None]], ...] = (
    *(
        (f"byte {code!r}", partial(_byte, code))
        for code in (b"\xe9", b"\xff", b"\xc3", b"\xed\xa0\x80")
    ),
    *((f"{rows} x {columns}", partial(_size, (rows, columns))) for rows, columns in SIZES),
    *(
        (f"paste of {kind}", partial(_paste, kind))
        for kind in ("letters", "escapes", "bytes", "lines")
    ),
    *((f"stalled, {s.name}", partial(_stalled, s)) for s in (signal.SIGTERM, signal.SIGHUP)),
    ("^Z and fg", _suspended),
    *((f"TERM={name}", partial(_term, name)) for name in TERMS),
)


def case_of(number: int, seed: int) -> Case | None:
    rng = generator(number, seed)
    if number % 2 == 0 and number // 2 < len(FIXED):
        # A step that shares no factor with their number visits all, mixed.
        name, run = FIXED[(number // 2 * 11) % len(FIXED)]
        return Case(name, run)
    kind, own_seed = rng.choice(KINDS), rng.randrange(2**31)
    if kind == "resizes":
        return Case("a storm of sizes", partial(_resizes, own_seed))
    if kind == "closed":
        words = rng.choice((RUN, RUN, ("open", "DOCUMENT"), ("open", "JOURNAL"), ("watch",)))
        moment = rng.uniform(0.0, 5.0)
        return Case(f"closed after {moment:.2f} s of {words}", partial(_closed, moment, words))
    return Case(f"random {kind}, {own_seed}", partial(_keys, own_seed, kind))
