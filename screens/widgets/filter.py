"""The input that filters a table: shown by `/`, hidden again by escape."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Label


class FilterBar(Horizontal):
    """Accepts texts that contain all its words, in any order and case."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Clear filter", key_display="esc")
    ]

    class Closed(Message):
        """The table should take the focus."""

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
        """Enter keeps the filter and returns the focus to the table."""
        self.display = bool(self.value)
        self.post_message(self.Closed())

    def accepts(self, *texts: str) -> bool:
        together = " ".join(texts).lower()
        return all(word in together for word in self.value.lower().split())
