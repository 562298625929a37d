"""Ways to damage a JSON document or a journal: in its structure, its text and its bytes."""

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

TOKEN = "@@TEXT@@"  # a string of the structure that stands for text which no encoder would write
NUMBERS = (
    0,
    -1,
    1,
    0.5,
    -0.0,
    1e308,
    -1e308,
    5e-324,
    1e-9,
    1e18,
    2**31,
    2**63,
    -(2**63),
    2**64,
    10**30,
)
RAW_NUMBERS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    "00",
    "1.",
    "9" * 5000,
    "1e-999",
    "0x1",
)
STRINGS = (
    *("", " ", "x", "cpu", "gpu", "ok", "failed", "absent", "nan", "-1", "a" * 300, "x" * 100_000),
    *(
        "\x1b]0;owned\x07\x1b[2J",
        "\r\n\t",
        "\x00",
        "\x7f\x9b31m",
        "\u202e\u2066",
        "\ud800",
        "\u2028",
    ),
    *(
        "e\u0301" * 50,
        "\U0001f469\u200d\U0001f4bb",
        "\uff28",
        "[bold]x[/",
        "%s{}",
        "<b>&amp;",
        "../../x",
    ),
    *(
        "20261121-153012-4f3a",
        "2026-13-99T99:99:99Z",
        "spin[n=1]",
        "cpu/numpy/fp32",
        "fake:0@1e308",
    ),
)
DEPTHS = (3, 100, 2_000, 100_000)
DEEP = re.compile(r"(list|object):(\d+)")
FAR = 1000  # a list that is repeated so often is long


def damaged(fixtures: Path, rng: random.Random, folder: Path) -> tuple[str, Path]:
    """A damaged copy of a document or journal in `folder`, and in words how it was damaged."""
    files = [*fixtures.glob("documents/*.json"), *fixtures.glob("journals/*.jsonl")]
    source = rng.choice(sorted(files))
    words, data = mutate(rng, source.read_bytes(), journal=source.suffix == ".jsonl")
    path = folder / f"damaged{source.suffix}"
    path.write_bytes(data)
    return f"{source.name}: {words}", path


def mutate(rng: random.Random, text: bytes, *, journal: bool) -> tuple[str, bytes]:
    """The changes in words, and the changed file."""
    words: list[str] = []
    if rng.random() < 0.9:
        text = _journal(rng, text, words) if journal else _document(rng, text, words)
    if not words or rng.random() < 0.05:
        change = rng.choice(BYTE_CHANGES)
        words.append(change.__name__)
        text = change(rng, text)
    return " ".join(words), text


def _document(rng: random.Random, text: bytes, words: list[str]) -> bytes:
    root = [json.loads(text)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(CHANGES)
        words.append(change.__name__)
        change(rng, *_place(rng, root))
    return _dumped(rng, root[0])


def _journal(rng: random.Random, text: bytes, words: list[str]) -> bytes:
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        if rng.random() < 0.25:
            change = rng.choice(LINE_CHANGES)
            words.append(change.__name__)
            change(rng, lines, at)
        else:
            with suppress(ValueError, RecursionError):  # a line that was damaged before
                lines[at] = _document(rng, lines[at], words)
        if not lines:
            return b""
    return b"\n".join(lines) + b"\n"


def _place(rng: random.Random, root: list[Any]) -> tuple[Any, Any]:
    """A container and a key or index in it; every level is as likely as its neighbours."""
    holder: Any = root
    key: Any = 0
    while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.93:
        holder = holder[key]
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    return holder, key


def _dumped(rng: random.Random, value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    while f'"{TOKEN}' in text:
        start = text.index(f'"{TOKEN}')
        end = text.index('"', start + 1)
        text = text[:start] + _raw(text[start + 1 + len(TOKEN) : end]) + text[end + 1 :]
    return text.encode(errors="surrogatepass")


def _raw(word: str) -> str:
    """The text that a token stands for: a number as it is written, or something deep."""
    found = DEEP.match(word)
    if found is None:
        return word
    depth = min(int(found[2][:6]), DEPTHS[-1])  # a later change may have put digits behind it
    return "[" * depth + "]" * depth if found[1] == "list" else '{"a":' * depth + "1" + "}" * depth


# ------------------------------------------------------------------ structure


def number(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = rng.choice(NUMBERS)


def raw_number(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = TOKEN + rng.choice(RAW_NUMBERS)


def string(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = rng.choice(STRINGS)


def extend_string(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder[key], str):
        holder[key] += rng.choice(STRINGS)


def scale(rng: random.Random, holder: Any, key: Any) -> None:
    """Another number of the same type: what a check of types alone lets pass."""
    if isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
        with suppress(OverflowError):  # a whole number cannot be infinite
            holder[key] = type(holder[key])(holder[key] * rng.choice((0, -1, 1e-12, 1e12, 1e200)))


def swap_type(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = rng.choice((None, True, False, [], {}, [None], {"": None}, [holder[key]], "x", 1))


def null(_: random.Random, holder: Any, key: Any) -> None:
    holder[key] = None


def delete(_: random.Random, holder: Any, key: Any) -> None:
    if not isinstance(holder, list) or len(holder) > 1:
        del holder[key]
    else:
        holder[key] = None


def empty(_: random.Random, holder: Any, key: Any) -> None:
    holder[key] = type(holder[key])() if holder[key] is not None else {}


def rename(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[rng.choice(STRINGS[:-5])] = holder.pop(key)


def duplicate(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, list) and len(holder) < FAR:
        holder[key:key] = [holder[key]] * rng.choice((1, 1, 2, 50))


def shuffle(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder[key], list):
        rng.shuffle(holder[key])


def sibling(rng: random.Random, holder: Any, key: Any) -> None:
    """The value of another field: of the same type, and at the wrong place."""
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    holder[key] = holder[rng.choice(list(keys))]


def deep(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = f"{TOKEN}{rng.choice(('list', 'object'))}:{rng.choice(DEPTHS)}"


def unknown_field(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder["unknown"] = f"{TOKEN}object:{rng.choice(DEPTHS)}"


CHANGES: tuple[Callable[[random.Random, Any, Any], None], ...] = (
    *(number, number, scale, scale, scale, raw_number, string, string, extend_string, swap_type),
    *(
        null,
        delete,
        delete,
        empty,
        rename,
        duplicate,
        shuffle,
        sibling,
        sibling,
        deep,
        unknown_field,
    ),
)

# -------------------------------------------------------------------- events


def drop_line(_: random.Random, lines: list[bytes], at: int) -> None:
    del lines[at]


def repeat_line(rng: random.Random, lines: list[bytes], at: int) -> None:
    lines[at:at] = [lines[at]] * rng.choice((1, 2, 100))


def move_line(rng: random.Random, lines: list[bytes], at: int) -> None:
    line = lines.pop(at)
    lines.insert(rng.randrange(len(lines) + 1), line)


def reverse_lines(_: random.Random, lines: list[bytes], __: int) -> None:
    lines.reverse()


def foreign_line(rng: random.Random, lines: list[bytes], at: int) -> None:
    other = (b"", b"{}", b"[]", b"null", b"\xff", b"\0" * 100, b'{"type":"Absent"}', b"[" * 100_000)
    lines.insert(at, rng.choice(other))


LINE_CHANGES = (
    drop_line,
    drop_line,
    repeat_line,
    move_line,
    move_line,
    reverse_lines,
    foreign_line,
)

# --------------------------------------------------------------------- bytes


def truncate(rng: random.Random, text: bytes) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def flip(rng: random.Random, text: bytes) -> bytes:
    spoilt = bytearray(text or b"\0")
    for _ in range(rng.choice((1, 1, 4))):
        spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
    return bytes(spoilt)


def double(_: random.Random, text: bytes) -> bytes:
    return text + text


def mark(_: random.Random, text: bytes) -> bytes:
    """The byte order mark of some editors."""
    return b"\xef\xbb\xbf" + text


BYTE_CHANGES = (truncate, truncate, flip, flip, double, mark)


def numbered(seed: int, first: int, count: int) -> Iterator[tuple[int, random.Random]]:
    """The generators of a batch: the one of a number does not depend on the batch."""
    for at in range(first, first + count):
        yield at, random.Random(f"{seed}:{at}")
