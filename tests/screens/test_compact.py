"""Frames with fewer codes: what a terminal shows stays the same."""

import pytest
from hypothesis import given, strategies as st
from rich.ansi import AnsiDecoder
from rich.console import Console

from screens.compact import compact

RED, BLUE, GREY = "38;2;255;0;0", "38;2;0;0;255", "48;2;18;18;18"
CONSOLE = Console()
SEEN_ON_BLANKS = ("underline", "reverse", "strike", "underline2", "overline")
ATTRIBUTES = ("bold", "dim", "italic", *SEEN_ON_BLANKS)


def cells(frame: str) -> list[tuple[str, object]]:
    """Each cell with its style, read by Rich; a blank cell shows only its background."""
    shown: list[tuple[str, object]] = []
    for line in AnsiDecoder().decode(frame):
        for index, letter in enumerate(line.plain):
            style = line.get_style_at_offset(CONSOLE, index)
            found = [name for name in ATTRIBUTES if getattr(style, name)]
            front, back = (
                None if each is None or each.is_default else each
                for each in (style.color, style.bgcolor)
            )
            if letter == " " and not set(found) & set(SEEN_ON_BLANKS):
                found, front = [], None
            shown.append((letter, (found, front, back)))
        shown.append(("\n", None))
    return shown


colours = st.one_of(
    st.integers(0, 7).map(str),
    st.integers(0, 255).map("8;5;{}".format),
    st.tuples(*[st.integers(0, 255)] * 3).map(lambda rgb: "8;2;{};{};{}".format(*rgb)),
)
codes = st.one_of(
    st.lists(st.sampled_from(["1", "2", "3", "4", "7", "9", "53"]), max_size=3),
    colours.map(lambda each: [f"3{each}"]),
    colours.map(lambda each: [f"4{each}"]),
    st.sampled_from([["39"], ["49"], ["94"], ["103"], ["22", "24"]]),
)
texts = st.sampled_from(["a", " ", "   ", "x y", "\n", "é│"])
pieces = st.tuples(st.lists(codes, max_size=3), texts, st.booleans())


@given(st.lists(pieces, max_size=12))
def test_every_cell_looks_as_before(drawn: list[tuple[list[list[str]], str, bool]]) -> None:
    frame = ""
    for styles, text, resets in drawn:
        joined = ";".join(code for style in styles for code in style)
        frame += f"\x1b[{joined}m{text}" + ("\x1b[0m" if resets else "")
    frame += "\x1b[0m"
    made = compact(frame)
    assert cells(made) == cells(frame)
    assert made.count("\x1b") <= frame.count("\x1b")
    assert cells(made + "end")[-2][1] == cells("end")[-2][1]  # nothing is left set


@pytest.mark.parametrize(
    ("frame", "made"),
    [
        (f"\x1b[{RED};{GREY}ma\x1b[0m\x1b[{RED};{GREY}mb\x1b[0m", f"\x1b[{RED};{GREY}mab\x1b[0m"),
        (
            f"\x1b[{RED};{GREY}ma\x1b[0m\x1b[{BLUE};{GREY}mb\x1b[0m",
            f"\x1b[{RED};{GREY}ma\x1b[{BLUE}mb\x1b[0m",
        ),
        (
            f"\x1b[{RED};{GREY}ma\x1b[0m\x1b[1;{BLUE};{GREY}m  \x1b[0m\x1b[{RED};{GREY}mb\x1b[0m",
            f"\x1b[{RED};{GREY}ma  b\x1b[0m",
        ),
        ("\x1b[1ma\x1b[0mb", "\x1b[1ma\x1b[0mb"),
        ("\x1b[1;31ma\x1b[0m\x1b[31mb\x1b[0m", "\x1b[1;31ma\x1b[0;31mb\x1b[0m"),
        ("\x1b[2;3Ha\x1b[2;120H\r\n\x1b[9;1Hb", "\x1b[2;3Ha\x1b[9;1Hb"),
        (f"\x1b[{RED}ma\x1b[0m\x1b[9;1H\x1b[{RED}mb\x1b[0m", f"\x1b[{RED}ma\x1b[9;1Hb\x1b[0m"),
        ("\x1b]2;workbench 22%\x07\x1b[?2026h", "\x1b]2;workbench 22%\x07\x1b[?2026h"),
        ("plain\r\n", "plain\r\n"),
        ("", ""),
    ],
)
def test_only_what_differs_is_sent(frame: str, made: str) -> None:
    assert compact(frame) == made
