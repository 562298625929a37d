"""The ways to use the program in which signals and kills are tried."""

from dataclasses import dataclass

import psutil

from .room import Room, Running
from .seeds import a_document, silent_python, small_model
from .terminal import Terminal


@dataclass(frozen=True)
class Mode:
    """A command, and how long it lasts if it is left alone."""

    words: tuple[str, ...]
    lasts_s: float
    codes: tuple[int, ...] = (0,)
    screen: bool = False  # on a terminal
    runs: bool = True  # it has an engine, workers and a guardian

    def start(self, room: Room) -> Running | Terminal:
        known = {"MODEL": small_model, "DOCUMENT": a_document, "SILENT": silent_python}
        words = [str(known[word](room)) if word in known else word for word in self.words]
        return Terminal(room, *words) if self.screen else room.start(*words)


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


def process_of(started: Running | Terminal) -> int:
    return started.pid if isinstance(started, Terminal) else started.process.pid


def family(role: str, started: Running | Terminal) -> list[psutil.Process]:
    """The processes that play a role for the command that was started."""
    front = process_of(started)
    if role == "front":
        return [psutil.Process(front)]
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            words = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if process.pid != front and words and role == _role(words):
            found.append(process)
    return found


def _role(words: str) -> str:
    if "guardian" in words:
        return "guardian"
    if "--control" in words:
        return "engine"
    return "worker" if "worker.worker" in words else "helper"
