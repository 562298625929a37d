"""One line to narrow a table down: hidden until `/`, gone again with escape."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class FilterBar(Input):
    """All words must occur, in any order, upper and lower case alike."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Clear filter", key_display="esc")
    ]

    class Closed(Message):
        """The table should have the keys again."""

    def __init__(self) -> None:
        super().__init__(placeholder="filter: words that must all occur", compact=True)
        self.display = False

    def open(self) -> None:
        self.display = True
        self.focus()

    def clear_and_hide(self) -> None:
        self.value = ""
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
