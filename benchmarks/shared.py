"""Parts of several campaigns: runs of the command line, timed blocks, kept rows, and tables."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from workbench.worker.quiet import wait_until_quiet

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]


def workbench(*arguments: str, codes: Collection[int] = (0,)) -> tuple[Row, float]:
    """The JSON document of a run, and the seconds that it took; `codes` are those with a result."""
    command = [sys.executable, "-m", "workbench", *arguments, "--json"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, cwd=ROOT)
    seconds = time.perf_counter() - began
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()[-500:]}")
    return json.loads(done.stdout), seconds


class Kept(list[Row]):
    """The rows of a campaign in a file of JSON lines, so that it can be cut short."""

    def __init__(self, file: Path, *, again: bool = False) -> None:
        """The rows that are in the file; `again` forgets them."""
        self._file = file
        if again:
            file.unlink(missing_ok=True)
        if file.exists():
            self += map(json.loads, file.read_text().splitlines())

    def add(self, row: Row) -> None:
        self.append(row)
        with self._file.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(json.dumps(row), file=sys.stderr, flush=True)


def block_s(step: Callable[[], Any], seconds: float, least: int = 3) -> float:
    """Median seconds of a step in a block of that length, after steps that do not count."""
    wait_until_quiet()  # threads of the session before may still spin
    for _ in range(min(least, 2)):
        step()
    found, until = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < until or len(found) < least:
        began = time.perf_counter()
        step()
        found.append(time.perf_counter() - began)
    return median(found)


def table(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""
    rows = [header, ("---",) * len(header), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def write_block(page: Path, begin: str, end: str, text: str) -> None:
    """Put the text between the two marks of a page."""
    before, _, rest = page.read_text().partition(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")
