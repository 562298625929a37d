"""Makes text of others safe for a terminal: a single line, or JSON before it is parsed.

Standard library only, since workers may run under a foreign interpreter.
"""

import re
from unicodedata import category

KEPT = "\n\t"  # which code to paste needs
SHORT = {"b": "\b", "f": "\f", "r": "\r"}

# JSON escapes (also of a backslash) and unescaped characters that control a terminal.
_SUSPECT = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^u])"
    r"|[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)


def shown(text: str, most: int = 300) -> str:
    """`text` on one line of at most `most` characters, with an escape for each unprintable one."""
    line = _printable(text[: most + 1])
    return line if len(line) <= most else f"{line[:most]}..."


def clean(text: str) -> str:
    """The text with an escape for each character that controls a terminal or its direction."""
    return "\n".join(map(_printable, text.split("\n")))


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def printable_json(raw: bytes) -> bytes | str:
    """`raw` with an escape for each character in its strings that would control a terminal: C0, C1,
    bidi overrides, line separators.  UnicodeDecodeError unless it is UTF-8."""
    if raw.isascii() and b"\\" not in raw and b"\x7f" not in raw:
        return raw
    return _SUSPECT.sub(_escaped, raw.decode())


def _escaped(match: re.Match[str]) -> str:
    text = match.group()
    if text[0] != "\\":
        character = text
    elif text[1] == "u":
        units = bytes.fromhex(text.replace("\\u", ""))
        character = units.decode("utf-16-be", "replace")
    else:
        character = SHORT.get(text[1], "")
    if not character or character in KEPT or category(character) not in ("Cc", "Cf", "Zl", "Zp"):
        return text
    return ascii(character)[1:-1].replace("\\", "\\\\")
