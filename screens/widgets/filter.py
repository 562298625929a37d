"""The input that filters a table: shown by `/`, hidden again by escape."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Label

from workbench.export.view.table import holds

from .table import Table


class FilterInput(Input):
    # Textual's own binding has no name in the key bar.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Keep")]


class FilterBar(Horizontal):
    """Accepts texts that contain all its words, in any order and case.  The input is mounted when
    it is first opened, since mounting takes time."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Clear filter")]

    _input: FilterInput | None = None

    @property
    def value(self) -> str:
        return self._input.value if self._input is not None else ""

    def open(self) -> None:
        self.display = True
        if self._input is None:
            self._input = FilterInput(placeholder="words that must all occur", compact=True)
            self.mount(Label("/ "), self._input)
        self._input.focus()

    def action_dismiss(self) -> None:
        if self._input is not None:
            self._input.value = ""
        self.on_input_submitted()

    def on_input_submitted(self) -> None:
        """Enter keeps the filter and returns the focus to the table."""
        self.display = bool(self.value)
        self.screen.query_one(Table).focus()
        self.screen.refresh_bindings()

    def accepts(self, *texts: str) -> bool:
        return holds(self.value, *texts)
