"""Choices in one field: boxes that space or a click ticks; of single ones the cursor chooses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive

from .drawn import Drawn
from .styles import link


class Chips(Drawn, can_focus=True):
    """Options of which several, or one if `single`, are ticked; the first is the empty value."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,right", "at", "Option", key_display="← →"),  # both are handled by `on_key`
        Binding("space", "tick", "Tick"),
    ]

    at: reactive[int] = reactive(0, init=False)  # the option under the cursor

    @dataclass
    class Changed(Message):
        """Another option is ticked."""

        chips: "Chips"
        value: str

    def __init__(self) -> None:
        super().__init__()
        self._options: Sequence[str] = ("",)
        self._chosen: list[str] = []
        self._is_single = False

    @property
    def value(self) -> str:
        """The ticked options, separated by commas; empty if the first one is ticked."""
        return ",".join(self._chosen)

    def offer(self, options: Sequence[str], value: str, *, single: bool) -> None:
        """Show these options, and at the end those of `value` that are not among them."""
        chosen = [each.strip() for each in value.split(",") if each.strip() not in ("", options[0])]
        options = list(dict.fromkeys([*options, *chosen]))
        if options != self._options:
            self.set_reactive(Chips.at, options.index(chosen[0]) if single and chosen else 0)
        self._options, self._chosen, self._is_single = options, chosen, single
        self.show(self._lines)

    def _lines(self, width: int) -> list[Content]:
        lines, used = [Content("")], 0
        for number, option in enumerate(self._options):
            chip = self._chip(number, option)
            if used and used + 2 + chip.cell_length > width:
                lines, used = [*lines, Content("")], 0
            lines[-1] = Content.assemble(lines[-1], "  " if used else "", chip)
            used = lines[-1].cell_length
        return lines

    def _chip(self, number: int, option: str) -> Content:
        is_on = option in self._chosen or (number == 0 and not self._chosen)
        mark = ("( )", "(x)")[is_on] if self._is_single else ("[ ]", "[x]")[is_on]
        # Textual sets `has_focus` only after `on_focus` and `on_blur`.
        has_cursor = self.screen.focused is self and number == self.at
        style = "bold $text on $cursor" if has_cursor else ""
        if style and self.app.native_ansi_color:
            style = "reverse"
        box = link(f"{mark} {option}", f"tick({number})")
        return box.stylize(style) if style else box if is_on else box.stylize("dim")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "tick" or bool(parameters) or not self._is_single  # a click has a number

    def action_tick(self, number: int | None = None) -> None:
        """Tick or clear an option.  The first clears the others, and is ticked if none is."""
        if number is not None:
            self.focus()
            self.at = number
        option = self._options[self.at]
        rest = [] if self._is_single or self.at == 0 else list(self._chosen)
        if option in rest:
            rest.remove(option)
        elif self.at:
            rest.append(option)
        self._chosen = [each for each in self._options if each in rest]
        self.show(self._lines)
        self.post_message(self.Changed(self, self.value))

    def _redraw(self) -> None:
        self.show(self._lines)

    watch_at = on_focus = on_blur = _redraw

    def on_key(self, event: events.Key) -> None:
        """Handled here, since a binding would act on the field that has the focus by then."""
        if event.key in ("left", "right"):
            step = 1 if event.key == "right" else -1
            self.at = min(max(0, self.at + step), len(self._options) - 1)
        elif event.key != "space":
            return
        # Of single choices the one under the cursor counts, since enter starts the run.
        if self._is_single or event.key == "space":
            self.action_tick()
        event.stop()
