"""Text that is made for the width it has, and drawn again only when it changes."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static


class Drawn(Static):
    """`show` takes a function that makes the text for a width and a height."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__("", id=id, classes=classes)
        self._make: Callable[[int, int], Content] | None = None
        self._drawn = Content("")

    def show(self, make: Callable[[int, int], Content]) -> None:
        """`make(width, height)` gives the text; it is called again when the size changes."""
        self._make = make
        self._draw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Height of the text for `width`; the text on the screen may be made for another one."""
        if self._make is None:
            return super().get_content_height(container, viewport, width)
        return _height(self._make(width, viewport.height))

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        if self._make is None or width == 0:
            return
        content = self._make(width, height)
        if not content.is_same(self._drawn):
            taller = _height(content) != _height(self._drawn)
            self._drawn = content
            self.update(content, layout=taller)


def _height(content: Content) -> int:
    return content.plain.count("\n") + 1 if content else 0
