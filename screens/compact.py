"""The same picture in fewer bytes, for slow connections.

Textual resets the style after every piece of a line, and moves the cursor to the end of a line
before it moves to the next.
"""

import re
from functools import lru_cache
from typing import NamedTuple

SGR = re.compile(r"\x1b\[([0-9;]*)m")
# Cursor moves that another move follows at once.
IDLE_MOVES = re.compile(r"(?:\x1b\[\d+;\d+H|\r\n)+(?=\x1b\[\d+;\d+H)")
CONTROLS = re.compile(r"(?:\x1b\[[0-9;?]*[A-Za-ln-z]|[\r\n])*")  # they draw nothing
ON_BLANKS = frozenset(["4", "7", "9", "21", "53"])  # visible on blanks, such as underline


class Style(NamedTuple):
    """The codes of the SGR sequences in force (ECMA-48, 8.3.117)."""

    attributes: tuple[str, ...] = ()
    foreground: str = ""
    background: str = ""


PLAIN = Style()


def compact(frame: str) -> str:
    """`frame` with fewer codes; it begins and ends without style, and looks the same."""
    shown = wanted = PLAIN
    made = []
    for index, piece in enumerate(SGR.split(IDLE_MOVES.sub("", frame))):
        if index % 2:
            wanted = _after(wanted, piece)
        elif CONTROLS.fullmatch(piece):
            made.append(piece)
        else:
            style = wanted
            if piece.isspace() and ON_BLANKS.isdisjoint(shown.attributes + wanted.attributes):
                style = shown._replace(background=wanted.background)
            made += _change(shown, style), piece
            shown = style
    return "".join([*made, _change(shown, PLAIN)])


@lru_cache(1024)
def _after(style: Style, parameters: str) -> Style:
    """`style` after one more SGR sequence."""
    codes = iter(parameters.split(";"))
    for code in codes:
        if code in ("", "0"):
            style = PLAIN
        elif code in ("38", "48"):
            kind = next(codes, "")
            numbers = [next(codes, "") for _ in range(3 if kind == "2" else 1)]
            colour = ";".join([code, kind, *numbers])
            style = _coloured(style, colour, is_background=code == "48")
        elif code in ("39", "49"):
            style = _coloured(style, "", is_background=code == "49")
        elif len(code) > 1 and code[:-1] in ("3", "9", "4", "10"):
            style = _coloured(style, code, is_background=code[:-1] in ("4", "10"))
        else:
            style = style._replace(attributes=(*style.attributes, code))
    return style


def _coloured(style: Style, colour: str, *, is_background: bool) -> Style:
    return style._replace(background=colour) if is_background else style._replace(foreground=colour)


@lru_cache(1024)
def _change(before: Style, after: Style) -> str:
    """The sequence that turns one style into the other."""
    kept = len(before.attributes)
    if before == after:
        return ""
    if after == PLAIN:
        return "\x1b[0m"
    if before.attributes != after.attributes[:kept]:
        return f"\x1b[{';'.join(filter(None, ['0', *after.attributes, *after[1:]]))}m"
    codes = list(after.attributes[kept:])
    for old, new, default in zip(before[1:], after[1:], ("39", "49"), strict=True):
        if old != new:
            codes.append(new or default)
    return f"\x1b[{';'.join(codes)}m"
