"""Turns the texts of `workbench.export.view` into Textual's, and their tones into styles."""

from collections.abc import Sequence
from itertools import chain

from textual.content import Content
from textual.style import Style

from workbench.export.view.spans import Text

# Words of a tone that are not the name of a style or of a colour of the theme.
STYLES = {
    "strong": "bold",
    "good": "$success",
    "warning": "$warning",
    "error": "$error",
    "command": "$primary",
    "dim": "dim",
}


def style_of(tone: str) -> str:
    """`strong cpu` to `bold $cpu`: any other word names a colour of the theme."""
    return " ".join(STYLES.get(word, f"${word}") for word in tone.split())


def content(text: Text) -> Content:
    return Content.assemble(*((part, style_of(tone)) for part, tone in text.spans))


def joined(lines: Sequence[Text | Content], width: int | None = None) -> Content:
    """The lines one below the other; with a `width`, those that are longer are broken."""
    found = [content(each) if isinstance(each, Text) else each for each in lines]
    if width is not None:
        parts = (each.wrap(width) if each.cell_length > width else [each] for each in found)
        found = [*chain.from_iterable(parts)]
    return Content("\n").join(found)


def link(label: str, action: str) -> Content:
    """Text that carries out an action when it is clicked."""
    return Content.styled(label, Style.from_meta({"@click": action}))
