"""Neutral texts as Textual's: the one place where a tone becomes a style."""

from collections.abc import Sequence

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


def joined(lines: Sequence[Text | Content]) -> Content:
    return Content("\n").join(content(e) if isinstance(e, Text) else e for e in lines)


def link(label: str, action: str) -> Content:
    """Text that carries out an action when it is clicked."""
    return Content.styled(label, Style.from_meta({"@click": action}))
