"""The ways to use the program in which signals and kills are tried."""

from dataclasses import dataclass

import psutil

from .room import Room, Running
from .seeds import filled
from .terminal import Terminal

OVER_S = 12.0  # past the usual end


@dataclass(frozen=True)
class Mode:
    """A command, and how long it lasts if it is left alone."""

    words: tuple[str, ...]
    lasts_s: float
    codes: tuple[int, ...] = (0,)
    screen: bool = False  # on a terminal
    runs: bool = True  # it has an engine, workers and a guardian

    def start(self, room: Room) -> Running | Terminal:
        words = filled(room, self.words)
        return Terminal(room, *words) if self.screen else room.start(*words)

    def finish(self, room: Room, started: Running | Terminal, codes: tuple[int, ...]) -> None:
        """Wait for its usual end, which has one of these exit codes."""
        within = self.lasts_s + OVER_S
        if isinstance(started, Terminal):
            started.pump(self.lasts_s + 2, until=b"done")
            started.leave(within, (*codes, 130))
        else:
            room.judge(started.wait(within + 25), codes, within)


BUDGET = ("--budget", "4")
MODES = {
    "--json": Mode(("run", "spin", *BUDGET, "--json"), 4.0),
    "--jsonl": Mode(("run", "spin", *BUDGET, "--jsonl"), 4.0),
    "plain": Mode(("run", "spin", *BUDGET), 4.0),
    "with children": Mode(("run", "spin", *BUDGET, "--json", "--set", "trouble=forks"), 4.0),
    "hanging": Mode(("run", "spin", *BUDGET, "--json", "--set", "trouble=hang"), 5.0, (0, 1)),
    "silent --python": Mode(("run", "spin", *BUDGET, "--python", "SILENT"), 5.0, (0, 1, 2)),
    "the table": Mode(("run", "spin", *BUDGET), 5.0, (0, 1, 130), screen=True),
    "--model": Mode(("advise", "--model", "MODEL", "--budget", "8", "--json"), 8.0, (0, 1)),
    "ceilings": Mode(("ceilings", "--budget", "5", "--json"), 6.0, (0, 1)),
    "doctor": Mode(("doctor", "--json"), 4.0, (0, 1), runs=False),
    "detect": Mode(("detect", "--json"), 0.6, runs=False),
    "watch": Mode(("watch", "--json", "--count", "3"), 3.0, runs=False),
    "list": Mode(("list", "--json"), 0.5, runs=False),
    "open": Mode(("open", "DOCUMENT", "--json"), 0.5, runs=False),
    "open, the table": Mode(("open", "DOCUMENT"), 3.0, (0, 130), screen=True, runs=False),
}


def family(role: str, started: Running | Terminal) -> list[psutil.Process]:
    """The processes that play a role for the command that was started."""
    if role == "front":
        return [psutil.Process(started.pid)]
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            words = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if process.pid != started.pid and words and role == _role(words):
            found.append(process)
    return found


def _role(words: str) -> str:
    if "guardian" in words:
        return "guardian"
    if "--control" in words:
        return "engine"
    return "worker" if "worker.worker" in words else "helper"
