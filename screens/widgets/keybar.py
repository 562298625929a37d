"""The keys that work now, in one line.  Textual's Footer scrolls sideways when it is too narrow,
and then hides just the keys that a newcomer needs: here the dispensable ones leave first."""

from __future__ import annotations

from typing import Any

from textual.content import Content
from textual.screen import Screen

from .drawn import Drawn

GAP = 2

# In the order of the line; the number says how early a key leaves a line that is too narrow.
ORDER = {
    "enter": 3,
    "tab": 4,
    "left_square_bracket": 2,
    "escape": 2,
    "slash": 4,
    "c": 4,
    "pagedown": 4,
    "1": 6,
    "4": 7,
    "s": 0,
    "n": 1,
    "space": 1,
    "x": 0,
    "question_mark": 0,
    "q": 0,
}


class KeyBar(Drawn):
    """Drawn from the screen's active bindings; a click presses the key."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def _changed(self, screen: Screen[Any]) -> None:
        self.show(lambda width, _: key_line(_active(screen), width))


def _active(screen: Screen[Any]) -> list[tuple[str, str, str]]:
    """Key, its name on the line, and what it does, in the order of the line."""
    found = {
        key: (key, active.binding.key_display or key, active.binding.description)
        for key, active in screen.active_bindings.items()
        if active.binding.show and active.enabled
    }
    return [found[key] for key in ORDER if key in found]


def key_line(keys: list[tuple[str, str, str]], width: int) -> Content:
    """`enter Details  / Filter  q Quit`, without what does not fit."""
    shown = list(keys)

    def needed() -> int:
        lengths = [len(name) + 1 + len(text) for _, name, text in shown]
        return sum(lengths) + GAP * (len(shown) - 1)

    while shown and needed() > width:
        shown.remove(max(shown, key=lambda entry: ORDER[entry[0]]))
    parts = []
    for key, name, text in shown:
        click = f"@click=app.simulate_key('{key}')"
        label = Content.from_markup(f"[{click}]$text[/]", text=text)
        parts.append(Content.assemble((name, "bold $primary"), " ", label))
    return Content(" " * GAP).join(parts)
