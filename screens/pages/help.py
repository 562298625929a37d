"""The keys, and how to read what the screens say."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen

from workbench.export.view.facts import fact, facts_lines, heading
from workbench.export.view.spans import Text

from ..text.styles import joined
from ..widgets.drawn import Drawn
from ..widgets.keybar import KeyBar
from ..widgets.pane import Pane

KEYS = (
    ("1 2 3", "hardware, the live race, the advisor's table"),
    ("4", "the model of advise --model: its forms, what to ship, the code"),
    ("s", "start the run again"),
    ("n", "another run: choose a workload, its sizes, devices and budget"),
    ("space", "pause and resume: the race stands still, the budget too"),
    ("x", "stop the run; what was measured is kept"),
    ("up down", "choose a line; enter shows its details, escape leads back"),
    ("[ ]", "on the Run screen: row or size before and after; escape follows"),
    ("c", "copy the command that measures the chosen row again, the code of a model"),
    ("/", "filter; enter keeps it, escape clears it"),
    ("pgup pgdn", "scroll the text below the table"),
    ("q, ctrl+c", "quit; a run that is going is stopped first"),
    ("ctrl+z", "suspend; a run that is going pauses"),
)

TERMS = (
    ("GPU/CPU", "how many times faster the best GPU candidate is than the best CPU one"),
    ("95 %", "where that ratio lies, from candidates measured in the same rounds"),
    ("Gain", "of a model's form: time of its fastest run as given over its own"),
    ("either", "too close to call; unknown: no answer rather than a guess"),
    ("!", "a warning weakens this result; its details say which, and the remedy"),
    ("SIMULATED", "the GPU is the test device fake:0, a CPU worker that poses as one"),
    ("dropped", "clearly beaten, so its time went to the others; its samples are kept"),
    ("±", "half the 95 % interval of the median"),
    ("* o + x", "before a candidate: what draws its curve over the sizes"),
    ("n/a", "could not be read; the reason stands below"),
)


class HelpScreen(ModalScreen[None]):
    AUTO_FOCUS = "Pane"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", key_display="esc"),
        Binding("question_mark,q,enter", "dismiss", "Close", show=False),
    ]

    def compose(self) -> ComposeResult:
        with Pane(id="help"):
            yield Drawn(id="help-text")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#help-text", Drawn).show(lambda width, _: help_text(width))


def help_text(width: int) -> Content:
    lines: list[Text] = []
    for title, entries in (("Keys", KEYS), ("Words", TERMS)):
        facts = [fact(name, text, label_tone="command") for name, text in entries]
        lines += [heading(title, width), *facts_lines(facts, width, 12), Text()]
    return joined(lines[:-1])
