"""A user's TOML file as tables, with their lines.

The file is not trusted: huge files, binary files and devices are refused.
"""

import math
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files.read import whole
from .sanitize import shown

MOST_BYTES = 1 << 18  # hundreds of scenarios
MOST_SEARCHED = 1 << 15  # bytes; in a larger file, finding a line would take seconds
LONGEST_VALUE = 10  # lines; of a longer value, some line is found, not the first
Key = str | int

# A key of more than 32 parts, since tomllib's memory grows with the square of a key's depth.  No
# escaped quote follows the characters at the start, so matching takes linear time.
_DEEP_KEY = re.compile(
    r"""(?:^|[\[{,])[ \t]*+(?:(?:[\w-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""",
    re.MULTILINE,
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
        """The line (from 1) where the value at `keys` begins, or a table around it, if any."""
        while keys and not _holds(self.tables, keys):
            keys = keys[:-1]
        if not keys or len(self.text) > MOST_SEARCHED:
            return None
        lines = self.text.split("\n")
        counts = range(len(lines) + 1)
        return bisect_left(counts, True, key=lambda count: _holds(_beginning(lines, count), keys))


def _holds(value: Any, keys: Sequence[Key]) -> bool:
    try:
        for key in keys:
            value = value[key]
    except (LookupError, TypeError):
        return False
    return True


def _beginning(lines: Sequence[str], count: int) -> dict[str, Any]:
    """The tables of the first `count` lines, and of more if a value goes on there."""
    for end in range(count, min(count + LONGEST_VALUE, len(lines)) + 1):
        with suppress(tomllib.TOMLDecodeError):
            return tomllib.loads("\n".join(lines[:end]))
    return {}


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
    if deep := _DEEP_KEY.search(text):
        line = text.count("\n", 0, deep.start()) + 1
        raise TomlError(f"{name}, line {line}: keys are nested too deeply")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"{name}: {shown(str(error))}") from None
    except ValueError:
        raise TomlError(f"{name}: it contains an invalid number or date") from None
    except RecursionError:
        raise TomlError(f"{name}: tables or lists are nested too deeply") from None
    file = TomlFile(path, text, tables)
    for keys, number in _numbers(tables):
        name = next(key for key in reversed(keys) if isinstance(key, str))
        if isinstance(number, int) and abs(number) >= 1 << 63:  # TOML 1.0: integers have 64 bits
            raise file.error(f"{name}: the number has more than 64 bits", keys)
        if not math.isfinite(number):
            raise file.error(f"{name} = {number} is not finite", keys)
    return file


def _numbers(value: Any, keys: tuple[Key, ...] = ()) -> Iterator[tuple[tuple[Key, ...], float]]:
    """Every number with the keys that lead to it."""
    if isinstance(value, (int, float)):
        yield keys, value
    elif isinstance(value, (dict, list)) and len(keys) <= 16:  # no scenario is nested deeper
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(inner, (*keys, key))
