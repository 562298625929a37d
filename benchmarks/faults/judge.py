"""The rules that hold for every command, whatever was done to it."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

OK, FAILED, USAGE, UNTRUSTED, CUT_SHORT = 0, 1, 2, 3, 130
# Before our first line runs, signals and broken interpreters are answered by Python itself.
TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|Exception ignored")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LOG = re.compile(r" *\d+\.\d s  ")  # a line of progress
RAISED = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit|Warning|NoMatches)\b")
LONGEST_LINE = 4000


def wrong_words(stderr: bytes, code: int | None, tree: Path) -> Iterator[tuple[str, str]]:
    """The faults in the standard error of a command."""
    text = stderr.decode(errors="backslashreplace")
    if TRACEBACK.search(text) and (str(tree) in text or "workbench" in text):
        raised = [line for line in text.splitlines() if RAISED.match(line)]
        yield "traceback", (raised or [tail(text)])[-1][:300]
    if "internal error" in text:
        line = next(line for line in text.splitlines() if "internal error" in line)
        yield "internal error", line[:300]
    lines = text.splitlines()
    own = [line for line in lines if not LOG.match(line)]
    if code == USAGE and len(own) != 1:
        yield "wording", f"exit 2 with {len(own)} lines: {tail(text)}"
    if steering := CONTROL.search(text):
        yield "spoilt output", f"{steering.group()!r} on stderr"
    if long := [len(line) for line in lines if len(line) > LONGEST_LINE]:
        yield "wording", f"a line of {max(long)} characters on stderr"


def wrong_code(code: int | None, due: Collection[int]) -> str | None:
    if code is None or code in due:
        return None
    return f"exit {code}, not {' or '.join(map(str, sorted(due)))}"


def tail(text: str, most: int = 300) -> str:
    return " | ".join(text.strip().splitlines()[-4:])[-most:]
