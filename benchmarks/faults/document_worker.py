"""A batch of damaged documents: `PYTHON document_worker.py FIXTURES SEED FIRST COUNT`.

Runs under the interpreter of the program under test.  Prints one JSON object: what became of the
files, and the violations, each with the number that repeats it.
"""

import json
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType

# At the end of the path: the program under test comes first.
sys.path.append(str(Path(__file__).resolve().parent))
from document_mutations import damaged, numbered
from every_view import flaw, shown

from workbench.records.errors import JournalError

MOST_S = 10  # for one file, neighbours on the machine included
LONGEST = 1000  # characters of a refusal


class Hang(BaseException):
    """One file took longer than `MOST_S`."""


def _alarm(_: int, __: FrameType | None) -> None:
    raise Hang


def one(path: Path, rng: random.Random) -> tuple[str, str]:
    """A class and a text: "ok" or "refused", or a violation."""
    signal.alarm(MOST_S)
    try:
        for name, text in shown(path, rng):
            if (found := flaw(name, text)) is not None:
                return "spoilt output", f"{name}: {found}"
    except JournalError as error:
        line = " ".join(str(error).split())  # as the command line prints it
        if not line.isprintable():
            return "spoilt output", f"a refusal: {line[:200]!r}"
        if len(line) > LONGEST:
            return "wording", f"a refusal of more than {LONGEST} characters: {line[-60:]!r}"
        return "refused", ""
    except Hang:
        return "hang", _where(sys.exc_info()[1])
    except BaseException as error:
        return "internal error", f"{type(error).__name__}: {str(error)[:100]}: {_where(error)}"
    finally:
        signal.alarm(0)
    return "ok", ""


def _where(error: BaseException | None) -> str:
    frames = list(traceback.extract_tb(error.__traceback__ if error else None))
    own = [f for f in frames if "/workbench/" in f.filename or "/screens/" in f.filename]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}" if own else "outside"


def main(fixtures: str, seed: int, first: int, count: int) -> None:
    signal.signal(signal.SIGALRM, _alarm)
    counts = Counter[str]()
    found: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, rng in numbered(seed, first, count):
            words, path = damaged(Path(fixtures), rng, Path(folder))
            kind, text = one(path, rng)
            counts[kind] += 1
            if kind not in ("ok", "refused"):
                found.setdefault((kind, text), f"seed {seed}, number {number}, {words[:200]}")
    violations = [(kind, f"{text} ({words})") for (kind, text), words in found.items()]
    print(json.dumps({"counts": counts, "violations": violations}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
