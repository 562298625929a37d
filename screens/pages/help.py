"""The keys of a screen, and its words."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import ModalScreen
from textual.widgets import Static

from workbench.export.view.glossary import words_on
from workbench.export.view.spans import Text, fact, facts_lines, heading, label_width

from ..terminal import TOO_SMALL
from ..widgets.drawn import Drawn
from ..widgets.keybar import KeyBar, key_name
from ..widgets.pane import Pane
from ..widgets.table import Table


class HelpScreen(ModalScreen[None]):
    """`keys` are pairs of a key and what it does."""

    AUTO_FOCUS = "Pane"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("question_mark,q,enter", "dismiss", "Close", show=False),
    ]

    def __init__(self, keys: Sequence[tuple[str, str]], page: str) -> None:
        """`page`: the label of the screen whose words are explained."""
        super().__init__()
        self._keys = keys
        self._words = words_on(page)

    def compose(self) -> ComposeResult:
        yield Static(TOO_SMALL, id="too-small")
        with Pane(id="help"):
            yield Drawn(id="help-text")
        yield KeyBar()

    def on_mount(self) -> None:
        text = self.query_one("#help-text", Drawn)
        text.show(lambda width: help_lines(self._keys, self._words, width))


def help_keys(screen: DOMNode, app: DOMNode) -> list[tuple[str, str]]:
    """Keys and tooltips of a screen, its tables and the application, except those that the screen
    never uses.  The nearest binding of a key counts; escape has all, which act in turn."""
    tables = [Table] if screen.query(Table) else []
    kinds = [*type(screen).__mro__, *tables, *type(app).__mro__]
    owners = [kind for kind in kinds if not kind.__module__.startswith("textual.")]
    unused = getattr(screen, "UNUSED", ())
    found: dict[str, list[str]] = {}
    for binding in (b for owner in owners for b in vars(owner).get("BINDINGS", ())):
        if not isinstance(binding, Binding) or binding.action in unused:
            continue
        if binding.tooltip:
            texts = found.setdefault(key_name(binding), [])
            if not texts or binding.key == "escape":
                texts.append(binding.tooltip)
    return [(key, "; ".join(texts)) for key, texts in found.items()]


def help_lines(
    keys: Sequence[tuple[str, str]], words: Sequence[tuple[str, str]], width: int
) -> list[Text]:
    lines: list[Text] = []
    for title, entries in (("Keys", keys), ("Words", words)):
        facts = [fact(name, text, label_tone="command") for name, text in entries]
        lines += [heading(title, width), *facts_lines(facts, width, label_width(facts)), Text()]
    return lines[:-1]
