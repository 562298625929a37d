"""Text that is made for the width it has, and drawn again only when it changes."""

from collections.abc import Callable

from textual.content import Content
from textual.geometry import Region, Size
from textual.widgets import Static


class Drawn(Static):
    """`show` takes a function that makes the text for a width and a height."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__("", id=id, classes=classes)
        self._make: Callable[[int, int], Content] | None = None
        # The one that the latest layout asked for its height.
        self._laid_out: Callable[[int, int], Content] | None = None
        self._drawn: Content | None = None  # on the screen; None before the first picture

    def show(self, make: Callable[[int, int], Content]) -> None:
        """`make(width, height)` gives the text; it is called again when the size changes."""
        self._make = make
        self._draw()

    def render(self) -> Content:
        """The text for the size that the layout has just given, in the first frame already."""
        width, height = self.size
        if self._make is not None and width:
            self._drawn = self._make(width, height)
        return self._drawn or Content("")

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Height of the text for `width`; the text on the screen may be made for another one."""
        if self._make is None:
            return super().get_content_height(container, viewport, width)
        self._laid_out = self._make
        return _height(self._make(width, viewport.height))

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        if self._make is None or width == 0:
            return
        # `render` makes the text of the first picture once, however often it is shown before.
        if self._drawn is None and getattr(self.app, "is_opening", False):
            self.refresh(layout=self._laid_out is not self._make)
            return
        content, before = self._make(width, height), self._drawn or Content("")
        self._drawn = content
        if _height(content) != _height(before):
            self.refresh(layout=True)
            return
        pairs = zip(before.split(allow_blank=True), content.split(allow_blank=True), strict=True)
        changed = [y for y, (old, new) in enumerate(pairs) if not new.is_same(old)]
        if changed:  # over SSH a line is much less than the whole text
            self.refresh(*(Region(0, y, width, 1) for y in changed))


def _height(content: Content) -> int:
    return content.plain.count("\n") + 1 if content else 0
