"""A user's TOML file as tables, with the line of each of them.

The file is not trusted: one that is huge, not text or not a file is refused with one line.
"""

from __future__ import annotations

import math
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files.read import whole
from .sanitize import shown

MOST_BYTES = 1 << 18  # hundreds of scenarios
MOST_DOTS = 32  # in a line: the memory of tomllib grows with the square of a key's depth
Key = str | int

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
# Strings and comments, in which nothing is a header.  One that lacks its end reaches as far as it
# can, and nothing is tried twice: the time is linear.
_QUOTED = re.compile(
    r'"""(?:\\.|(?!""")[^\\])*+(?:""")?+'
    r"|'''(?:(?!''').)*+(?:''')?+"
    r'|"(?:\\.|[^"\\\n])*+"?+'
    r"|'[^'\n]*+'?+|#[^\n]*+",
    re.DOTALL,
)


class TomlError(Exception):
    """The file cannot be used; the message names the file, the line if known, and the reason."""


@dataclass(frozen=True)
class TomlFile:
    """The tables of a file, and its text to find their lines."""

    path: Path
    text: str
    tables: dict[str, Any]

    def error(self, reason: str, keys: Sequence[Key] = ()) -> TomlError:
        """`reason` with the line that `keys` lead to, such as ("scenario", 2, "size", "low")."""
        line = self.line(keys)
        where = f"{self.path}, line {line}" if line else f"{self.path}"
        return TomlError(f"{shown(where)}: {shown(reason, 600)}")

    def line(self, keys: Sequence[Key]) -> int | None:
        """The line (from 1) of what `keys` lead to, or of the nearest table around it that has a
        line of its own; None where there is none."""
        plain = _QUOTED.sub(_blanked, self.text)
        begin, end, found = 0, len(plain), None
        path: list[str] = []
        for key, index in _steps(keys):
            path.append(key)
            area = _area(plain, begin, end, path, index)
            if area is not None:
                begin, end = area
                found = begin
            elif index is not None:
                break
        if found is None:
            return None
        return bisect_right([m.start() for m in re.finditer("\n", plain)], found - 1) + 1


def _steps(keys: Sequence[Key]) -> Iterator[tuple[str, int | None]]:
    """Each name with the index that follows it, if any."""
    for place, key in enumerate(keys):
        if isinstance(key, str):
            after = keys[place + 1] if place + 1 < len(keys) else None
            yield key, after if isinstance(after, int) else None


def _area(
    plain: str, begin: int, end: int, path: Sequence[str], index: int | None
) -> tuple[int, int] | None:
    """The start and end of the last name of `path` within `begin`..`end`."""
    spelled = [rf"""["']?{re.escape(part)}["']?""" for part in path]
    dotted = r"[ \t]*\.[ \t]*".join(spelled)
    header = re.compile(rf"^[ \t]*\[\[[ \t]*{dotted}[ \t]*\]\]", re.M)
    several = list(header.finditer(plain, begin, end))
    if index is not None and several:
        if index >= len(several):
            return None
        following = several[index + 1].start() if index + 1 < len(several) else end
        return several[index].start(), following
    single = re.compile(rf"^[ \t]*\[\[?[ \t]*{dotted}[ \t]*[\].]", re.M).search(plain, begin, end)
    own = re.compile(rf"^[ \t]*{spelled[-1]}[ \t]*[.=]", re.M).search(plain, begin, end)
    for match in (single, own):
        if match is not None:
            return match.start(), end if match is single else _line_end(plain, match.end(), end)
    return None


def _line_end(plain: str, start: int, end: int) -> int:
    found = plain.find("\n", start, end)
    return end if found < 0 else found


def _blanked(match: re.Match[str]) -> str:
    """Blanks for a string or comment, with its line breaks; quoted keys stay."""
    text = match.group()
    if re.fullmatch(r"""(["'])[\w-]+\1""", text):
        return text
    return re.sub(r"[^\n]", " ", text)


def read(path: Path) -> TomlFile:
    """The tables of `path`; TomlError says why it cannot be read."""
    name = shown(str(path))
    try:
        raw = whole(path, MOST_BYTES)
    except OSError as error:
        raise TomlError(f"{name} cannot be read: {error.strerror}") from None
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise TomlError(f"{name}, line {line}: this is not UTF-8 text") from None
    for place, written in enumerate(_QUOTED.sub(_blanked, text).split("\n"), start=1):
        if written.count(".") > MOST_DOTS:
            raise TomlError(f"{name}, line {place}: keys are nested too deeply")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(_syntax(name, text, str(error))) from None
    except ValueError:
        raise TomlError(f"{name}: it contains an invalid number or date") from None
    except RecursionError:
        raise TomlError(f"{name}: tables or lists are nested too deeply") from None
    file = TomlFile(path, text, tables)
    for keys, number in _numbers(tables):
        if isinstance(number, int) and abs(number) >= 1 << 63:  # TOML 1.0: integers have 64 bits
            raise file.error(f"{_last_name(keys)}: the number has more than 64 bits", keys)
        if not math.isfinite(number):
            raise file.error(f"{_last_name(keys)} = {number} is not finite", keys)
    return file


def _syntax(name: str, text: str, message: str) -> str:
    """tomllib's message with its line first."""
    at = _AT.search(message)
    if at is None:
        return f"{name}: {shown(message)}"
    line, column = at.groups()
    if line is None:
        return f"{name}, line {text.count(chr(10)) + 1}: {shown(message[: at.start()])} at its end"
    return f"{name}, line {line}: {shown(message[: at.start()])} (column {column})"


def _numbers(tables: dict[str, Any]) -> Iterator[tuple[tuple[Key, ...], float]]:
    """Every number with the keys that lead to it."""
    waiting: list[tuple[tuple[Key, ...], Any]] = [((), tables)]
    while waiting:
        keys, value = waiting.pop()
        if len(keys) > 16:
            continue  # deeper than anything that is read
        if isinstance(value, (int, float)):
            yield keys, value
        elif isinstance(value, dict):
            waiting += [((*keys, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*keys, place), inner) for place, inner in enumerate(value)]


def _last_name(keys: Sequence[Key]) -> str:
    return next((key for key in reversed(keys) if isinstance(key, str)), "")
