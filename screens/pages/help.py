"""The keys, and what the words and symbols on the screens mean."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import ModalScreen
from textual.widgets import Static

from workbench.export.view.facts import fact, facts_lines, heading
from workbench.export.view.spans import Text

from ..terminal import TOO_SMALL
from ..text.styles import joined
from ..widgets.drawn import Drawn
from ..widgets.keybar import KeyBar, key_name
from ..widgets.pane import Pane
from ..widgets.table import Table

WORDS = (
    ("candidate", "one way to do the job: device, backend, precision and threads"),
    ("either", "too close to call; unknown: the measurements do not answer the question"),
    ("Lead", "how many times faster the better device is; with one device, the pick than the next"),
    ("95%", "95% confidence interval of the lead, from rounds that both took part in"),
    ("sure", "confidence: the lead is above 5% after all looks at the race"),
    ("likely", "the interval of the lead excludes 1"),
    ("tie", "the interval of the lead lies within 5%; open: anything else"),
    ("eliminated", "clearly slower, so it stopped early; its samples are kept"),
    ("p99", "99th percentile of the times of one step; n/a: too few samples for it"),
    ("n", "number of samples"),
    ("!", "the time of this candidate is less certain; its details name the remedy"),
    ("sim", "simulated: the GPU is the test device fake:0, a CPU worker"),
    ("±", "half the width of the 95% interval of the median"),
    ("t2", "2 CPU threads"),
    ("ort", "onnxruntime, where a table is narrow"),
    ("Gain", "time of the model as given, divided by the time of this variant"),
    ("* o + x", "curve symbols, in front of each candidate"),
    ("n/a", "could not be read; the reason is given below"),
)


class HelpScreen(ModalScreen[None]):
    """`keys` are pairs of a key and what it does."""

    AUTO_FOCUS = "Pane"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", key_display="esc"),
        Binding("question_mark,q,enter", "dismiss", "Close", show=False),
    ]

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        yield Static(TOO_SMALL, id="too-small")
        with Pane(id="help"):
            yield Drawn(id="help-text")
        yield KeyBar()

    def on_mount(self) -> None:
        text = self.query_one("#help-text", Drawn)
        text.show(lambda width, _: help_text(self._keys, width))


def help_keys(screen: DOMNode, app: DOMNode) -> list[tuple[str, str]]:
    """The bindings with a tooltip of a screen, of its tables, and of the application: for each key
    the nearest, but all of escape, which do one after the other."""
    tables = [Table] if screen.query(Table) else []
    kinds = [*type(screen).__mro__, *tables, *type(app).__mro__]
    owners = [kind for kind in kinds if not kind.__module__.startswith("textual.")]
    found: dict[str, list[str]] = {}
    for binding in (b for owner in owners for b in vars(owner).get("BINDINGS", ())):
        if isinstance(binding, Binding) and binding.tooltip:
            texts = found.setdefault(key_name(binding), [])
            if not texts or binding.key == "escape":
                texts.append(binding.tooltip)
    return [(key, "; ".join(texts)) for key, texts in found.items()]


def help_text(keys: Sequence[tuple[str, str]], width: int) -> Content:
    lines: list[Text] = []
    for title, entries in (("Keys", keys), ("Words", WORDS)):
        facts = [fact(name, text, label_tone="command") for name, text in entries]
        lines += [heading(title, width), *facts_lines(facts, width, 12), Text()]
    return joined(lines[:-1])
