"""One line to narrow a table down: hidden until `/`, gone again with escape."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Label


class FilterBar(Horizontal):
    """All words must occur, in any order, upper and lower case alike."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Clear filter", key_display="esc")
    ]

    class Closed(Message):
        """The table should have the keys again."""

    def compose(self) -> ComposeResult:
        yield Label("/ ")
        yield Input(placeholder="words that must all occur", compact=True)

    def on_mount(self) -> None:
        self.display = False

    @property
    def value(self) -> str:
        return self.query_one(Input).value

    def open(self) -> None:
        self.display = True
        self.query_one(Input).focus()

    def clear_and_hide(self) -> None:
        self.query_one(Input).value = ""
        self.display = False

    def action_dismiss(self) -> None:
        self.clear_and_hide()
        self.post_message(self.Closed())

    def on_input_submitted(self) -> None:
        """Enter keeps the words and gives the keys back to the table."""
        self.display = bool(self.value)
        self.post_message(self.Closed())

    def accepts(self, *texts: str) -> bool:
        together = " ".join(texts).lower()
        return all(word in together for word in self.value.lower().split())
