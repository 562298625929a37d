"""The keys that work now, in one line.

Textual's Footer scrolls sideways when it is too narrow, and hides the keys that a newcomer needs
most.  Here the least important keys are left out first.
"""

from typing import Any

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.style import Style

from .drawn import Drawn

GAP = 2

# Groups of keys that leave a line that is too narrow: TABS first, then SPARE and OPTIONAL, then the
# others, in each group from the left.
TABS, SPARE = Binding.Group("tabs"), Binding.Group("spare")
OPTIONAL = Binding.Group("optional")
LEAVE_FIRST = (TABS, SPARE, OPTIONAL, None)


class KeyBar(Drawn):
    """Drawn from the screen's active bindings; a click presses the key."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[Any]) -> None:
        if not screen.is_current:
            return  # it is about to be left, and its keys are drawn when it comes back
        self.show(lambda width: key_line(_active(screen), width))

    def on_click(self, event: events.Click) -> None:
        if key := event.style.meta.get("key"):
            self.app.simulate_key(key)


def _active(screen: Screen[Any]) -> list[Binding]:
    """The bindings that work now: of the focused widget, the screen, the app, each named once."""
    found: dict[str, Binding] = {}
    for active in screen.active_bindings.values():
        if active.binding.show and active.enabled:
            found.setdefault(key_name(active.binding), active.binding)
    return list(found.values())


def key_line(bindings: list[Binding], width: int) -> Content:
    """`enter Details  / Filter  q Quit`, without what does not fit."""
    shown = list(bindings)
    lengths = {b: len(key_name(b)) + 1 + len(b.description) + GAP for b in bindings}
    while shown and sum(lengths[binding] for binding in shown) - GAP > width:
        shown.remove(min(shown, key=lambda binding: LEAVE_FIRST.index(binding.group)))
    parts = []
    for binding in shown:
        pressed = Style.from_meta({"key": binding.key})
        key = Content.styled(key_name(binding), "bold $primary").stylize(pressed)
        parts.append(Content.assemble(key, " ", (binding.description, pressed)))
    return Content(" " * GAP).join(parts)


def key_name(binding: Binding) -> str:
    return binding.key_display or binding.key.replace("escape", "esc")
