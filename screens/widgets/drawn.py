"""Text that is made for the width it has, and drawn again only when it changes."""

from collections.abc import Callable, Sequence

from textual.content import Content
from textual.geometry import Region, Size
from textual.widgets import Static

from workbench.export.view.spans import Text

from .styles import joined

Made = Content | Text | Sequence[Content | Text]  # a text, or its lines


class Drawn(Static):
    """Shows the text that a function makes; it is called once for each size."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__("", id=id, classes=classes)
        self._make: Callable[[int, int], Made] = lambda _width, _height: ()
        self._fills = False  # whether the text depends on the height
        self._made: dict[tuple[int, int], Content] = {}  # by width and height, for `_make`
        # The function that the latest layout asked for its height.
        self._laid_out: Callable[[int, int], Made] | None = None
        self._drawn: Content | None = None  # on the screen; None before the first picture

    def show(self, make: Callable[[int], Made]) -> None:
        """`make(width)` gives the text; it is called again when the width changes."""
        self.fill(lambda width, _: make(width), fills=False)

    def fill(self, make: Callable[[int, int], Made], *, fills: bool = True) -> None:
        """`make(width, height)` gives the text, which depends on the height if it `fills` it."""
        self._make, self._fills, self._made = make, fills, {}
        self._draw()

    def _text(self, width: int, height: int) -> Content:
        size = width, height if self._fills else 0
        if size not in self._made:
            made = self._make(width, height)
            lines = [made] if isinstance(made, (Content, Text)) else made
            # Broken here, so that the height counts every line.
            breaks = self.styles.text_wrap == "wrap"
            self._made[size] = joined(lines, width if breaks else None)
        return self._made[size]

    def render(self) -> Content:
        """The text for the size that the layout has just given, in the first frame already."""
        if self.size.width:
            self._drawn = self._text(*self.size)
        return self._drawn or Content("")

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Height of the text for `width`; the text on the screen may be made for another one."""
        self._laid_out = self._make
        return _height(self._text(width, viewport.height))

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """Without another layout of the whole screen, since a text has no scrollbars."""
        return super()._size_updated(size, virtual_size, container_size, layout=False)

    def _draw(self) -> None:
        width = self.size.width
        if width == 0:
            return
        # Before the first picture only `render` makes the text, however often this is called.
        if self._drawn is None and getattr(self.app, "is_opening", False):
            self.refresh(layout=self._laid_out is not self._make)
            return
        content, before = self._text(*self.size), self._drawn or Content("")
        self._drawn = content
        if _height(content) != _height(before):
            self.refresh(layout=True)
            return
        pairs = zip(before.split(allow_blank=True), content.split(allow_blank=True), strict=True)
        changed = [y for y, (old, new) in enumerate(pairs) if not new.is_same(old)]
        if changed:  # over SSH a line is much less than the whole text
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    on_resize = _draw


def _height(content: Content) -> int:
    return content.plain.count("\n") + 1 if content else 0
