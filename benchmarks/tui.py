"""The speed of the TUI on a pseudo-terminal, against a bare Textual app and a bare click program.

    python -m benchmarks.tui                  every part, about three minutes
    python -m benchmarks.tui start switch     these parts
    python -m benchmarks.tui --rounds 4 start

A figure without a bare counterpart is absolute: it means something on an idle machine only.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.terminal import PseudoTerminal

SIZE = (40, 120)  # rows, columns
RUN = Path(__file__).parents[1] / "tests/fixtures/journals/advise-simulated-gpu.jsonl"
WORKBENCH = [str(Path(sys.executable).with_name("workbench"))]  # as users start it
LIVE = [*WORKBENCH, "--device", "cpu", "--budget", "60"]
QUIET_S = 0.15  # without a byte for so long, a picture is complete
LONGEST_S = 20.0
BARE_APP = """
from textual.app import App
from textual.widgets import Footer, Static
class Bare(App):
    BINDINGS = [("q", "quit", "Quit")]
    def compose(self):
        yield Static("ready\\n" * 30)
        yield Footer()
Bare().run()
"""
BARE_CLICK = """
import click
@click.group()
@click.option("--quick", is_flag=True, help="Smaller sizes.")
def cli(): "A bare program."
@cli.command()
@click.argument("name")
def run(name): "One command."
cli()
"""


class Figure(NamedTuple):
    """One figure and the most that it may be."""

    name: str
    value: float
    most: float
    unit: str
    detail: str = ""

    def __str__(self) -> str:
        word = "ok" if self.value <= self.most else "ABOVE"
        numbers = f"{self.value:10,.2f}  <= {self.most:8,.2f} {self.unit:4}"
        return f"{self.name:30}{numbers} {word:6} {self.detail}"


class Terminal(PseudoTerminal):
    """A program on a terminal, and the time of each piece that it wrote."""

    def __init__(self, command: Sequence[str], state: str) -> None:
        self.written: list[tuple[float, bytes]] = []
        environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environ |= {"XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state}
        environ.pop("NO_COLOR", None)
        self.begun = time.perf_counter()
        super().__init__(command, environ, SIZE)

    def follow(self, until: Callable[[], bool], for_s: float = LONGEST_S) -> None:
        """Take what is written until `until` holds or `for_s` is over."""
        end = time.perf_counter() + for_s
        while not until() and (left := end - time.perf_counter()) > 0:
            with suppress(OSError):  # the program has ended
                if piece := self.read(min(left, 0.01)):
                    self.written.append((time.perf_counter(), piece))

    def seen(self, text: str, since: int = 0) -> bool:
        return text.encode() in b"".join(piece for _, piece in self.written[since:])

    def first(self, text: str) -> float:
        """Seconds from the start until `text` is on the screen."""
        self.follow(lambda: self.seen(text))
        if not self.seen(text):
            raise SystemExit(f"{text!r} never came: {self.written[-1:]}")
        return self.written[-1][0] - self.begun

    def rest(self) -> None:
        """Wait until nothing is written any more."""
        since = time.perf_counter()
        self.follow(lambda: time.perf_counter() - max(since, self._last) > QUIET_S)

    @property
    def _last(self) -> float:
        return self.written[-1][0] if self.written else 0.0

    def press(self, key: str) -> float:
        """Seconds from a key to the last byte that it led to."""
        pressed = time.perf_counter()
        os.write(self.fd, key.encode())
        self.rest()
        return max(0.0, self._last - pressed)

    def echo(self, key: str, text: str, for_s: float = 1.0) -> float:
        """Seconds from a key until `text` is written."""
        count, pressed = len(self.written), time.perf_counter()
        os.write(self.fd, key.encode())
        self.follow(lambda: self.seen(text, count), for_s)
        return time.perf_counter() - pressed

    def rate(self, for_s: float) -> float:
        """Bytes per second."""
        count = len(self.written)
        self.follow(lambda: False, for_s)
        return sum(len(piece) for _, piece in self.written[count:]) / for_s

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def shown(command: Sequence[str]) -> Iterator[Terminal]:
    """The program on a terminal; afterwards it is ended as by a closed window."""
    with tempfile.TemporaryDirectory() as state:
        terminal = Terminal(command, state)
        try:
            yield terminal
        finally:
            os.kill(terminal.pid, signal.SIGTERM)
            reaped = lambda: os.waitpid(terminal.pid, os.WNOHANG)[0] != 0  # noqa: E731
            terminal.follow(reaped, 15.0)
            os.close(terminal.fd)


def best(values: Sequence[float]) -> float:
    """The median of the faster half: what other programs take away is not counted."""
    kept = sorted(values)[: max(1, len(values) // 2)]
    return kept[len(kept) // 2]


def in_turns(rounds: int, *sides: Callable[[], float]) -> list[float]:
    """Measure both sides, all in turns after one round that warms the caches."""
    found: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for side, values in zip(sides, found, strict=True):
            value = side()
            if number:
                values.append(value)
    return [best(values) for values in found]


def first_picture_s(command: Sequence[str], text: str) -> float:
    with shown(command) as terminal:
        return terminal.first(text)


def start(rounds: int) -> Iterator[Figure]:
    """From the start to the first picture."""
    bare, opened, live = in_turns(
        rounds,
        partial(first_picture_s, [sys.executable, "-c", BARE_APP], "ready"),
        partial(first_picture_s, [*WORKBENCH, "open", str(RUN)], "Scenario"),
        partial(first_picture_s, LIVE, "Scenario"),
    )
    for name, value in (("first paint, open", opened), ("first paint, live", live)):
        detail = f"{value * 1e3:.0f} ms against {bare * 1e3:.0f} ms"
        yield Figure(name, value / bare, 1.3, "x", detail)


def help_s(command: Sequence[str]) -> float:
    begun = time.perf_counter()
    subprocess.run([*command, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def help_page(rounds: int) -> Iterator[Figure]:
    """`--help` against a program that has click alone."""
    commands = [sys.executable, "-c", BARE_CLICK], WORKBENCH
    bare, ours = in_turns(rounds, *(partial(help_s, command) for command in commands))
    yield Figure("--help", ours / bare, 1.5, "x", f"{ours * 1e3:.0f} ms against {bare * 1e3:.0f}")


def switch(rounds: int) -> Iterator[Figure]:
    """A recorded run: switches until the last byte, bytes while idle, and memory."""
    with shown([*WORKBENCH, "open", str(RUN)]) as terminal:
        terminal.first("Scenario")
        terminal.rest()
        yield Figure("opening", sum(len(piece) for _, piece in terminal.written), 21_000, "B")
        visits = [terminal.press(key) for key in "124563"]  # which import the screens
        detail = f"worst {max(visits) * 1e3:.0f} ms"
        yield Figure("first visit, median", median(visits) * 1e3, 100, "ms", detail)
        taken = [terminal.press(key) for _ in range(rounds) for key in "124563"]
        yield Figure("switch", best(taken) * 1e3, 25, "ms", f"worst {max(taken) * 1e3:.0f} ms")
        yield Figure("idle", terminal.rate(5.0), 100, "B/s")
        yield Figure("memory, recorded run", terminal.rss_mib(), 55, "MiB")


def live(_rounds: int) -> Iterator[Figure]:
    """A run on all cores: bytes, keys in the table of scenarios, memory."""
    with shown(LIVE) as terminal:
        terminal.first("racing")
        terminal.rate(3.0)  # the first pictures
        yield Figure("live", terminal.rate(20.0), 4000, "B/s")
        taken = []
        for number in range(100):
            taken.append(terminal.echo("jk"[number % 2], "▌"))
            terminal.follow(lambda: False, 0.1)
        taken.sort()
        detail = f"median {taken[50] * 1e3:.0f} ms, worst {taken[-1] * 1e3:.0f} ms"
        yield Figure("keys while measuring, p99", taken[98] * 1e3, 25, "ms", detail)
        yield Figure("memory, live run", terminal.rss_mib(), 55, "MiB")


def watch(_rounds: int) -> Iterator[Figure]:
    with shown([*WORKBENCH, "watch"]) as terminal:
        terminal.first("busy")
        terminal.rate(3.0)
        yield Figure("watch", terminal.rate(15.0), 1500, "B/s")


PARTS = {"start": start, "help": help_page, "switch": switch, "live": live, "watch": watch}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    wrong = 0
    for name in options.parts or PARTS:
        for figure in PARTS[name](options.rounds):
            print(figure, flush=True)
            wrong += figure.value > figure.most
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
