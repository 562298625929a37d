"""The screens with a tab, and the keys of the application."""

from importlib import import_module
from typing import Any, NamedTuple

from textual.binding import Binding
from textual.screen import Screen

from .widgets.keybar import SPARE, TABS

PALETTE = "everything by name: screens, rows, workloads, recent runs, formats, themes"
# Labels of screens, which are also the names of their modes.
HARDWARE, RUN, ADVISOR, MODEL, RUNS = "Hardware", "Run", "Advisor", "Model", "Runs"


class Page(NamedTuple):
    """A screen with a tab.  Its module is imported when it is first shown."""

    key: str
    label: str  # also names the mode, the module and the class
    help: str  # its line on the help page

    def screen(self) -> Screen[Any]:
        module = import_module(f".pages.{self.label.lower()}", __package__)
        found: Screen[Any] = getattr(module, f"{self.label}Screen")()
        # Keep Textual from reading all style sheets again: widgets are styled as they are mounted.
        found._css_update_count = found.app._css_update_count
        return found


PAGES = (
    Page("1", HARDWARE, "what this machine has, its ceilings, and why something is missing"),
    Page("2", RUN, "the race of one row, live: a line per candidate, curves and the log"),
    Page("3", ADVISOR, "one line per scenario: the usual advice, the result here and the pick"),
    Page("4", MODEL, "your model or code: ways to run it, which one to take, the lines to paste"),
    Page("5", RUNS, "the kept runs: open, start again, compare, export, delete"),
    Page("6", "Roofline", "the candidates of one row under the measured ceilings of their devices"),
)


KEYS = (
    Binding(
        "c",
        "copy",
        "Copy",
        tooltip="copy the command that reproduces the selected row, or the model's code",
        group=SPARE,
    ),
    Binding(
        "e",
        "export",
        "Export",
        tooltip="write this run as an HTML page into a new file",
        group=TABS,
    ),
    *(  # the key bar names them in one entry
        Binding(page.key, f"switch_mode('{page.label}')", "Screens", key_display="1-6", group=TABS)
        for page in PAGES
    ),
    Binding("escape", "close_run", "Close run", tooltip="back from an opened run"),
    Binding("s", "start", "Start", tooltip="start the same run again"),
    Binding(
        "m", "next_step", "Next step", tooltip="start the run that `next` proposes", group=SPARE
    ),
    Binding("n", "new", "New", tooltip="set up another run: workload, sizes, devices, budget"),
    Binding("space", "pause", "Pause", tooltip="pause and resume; the clock stops too"),
    Binding("space", "resume", "Resume"),
    Binding("x", "stop", "Stop", tooltip="twice: stop the run; results so far are kept"),
    Binding("ctrl+p", "command_palette", "Palette", tooltip=PALETTE, group=TABS),
    Binding("question_mark", "help", "Help", key_display="?"),
    Binding("q", "leave", "Quit", tooltip="quit; twice, if it stops a run in progress"),
    Binding("ctrl+c,ctrl+q", "interrupt", "Quit", show=False, priority=True),
    Binding(
        "ctrl+z",
        "suspend_process",
        "Suspend",
        show=False,
        priority=True,
        tooltip="suspend; a run in progress pauses",
    ),
)
