"""Thirty minutes of faults: kills, signals, odd surroundings, damaged files, lying interpreters.

`python -m benchmarks.faults --minutes 30 --seed 0` ends with a table and exits 1 if there was any
violation; each violation prints the command that repeats its case alone.  `--short` takes a
cross-section of about 30 seconds, `--part kills` one part, `--only kills:17` one case.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from .case import SEVERITY, Part
from .parts import FULL_MINUTES, PARTS, SHORT, SHORT_MINUTES
from .runner import Runner
from .subject import Subject
from .tally import PartTally, Tally


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="a cross-section of half a minute")
    parser.add_argument("--part", action="append", choices=[part.name for part in PARTS])
    parser.add_argument("--only", metavar="PART:NUMBER", help="one case")
    parser.add_argument("--lanes", type=int, default=2, help="most cases at once")
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter of the program tested"
    )
    parser.add_argument("--verbose", action="store_true", help="name every case")
    return parser


def campaign(asked: argparse.Namespace, scratch: Path) -> Tally:
    """Run the parts that are asked for, and print each violation as it is found."""
    subject = Subject.of(asked.python)
    runner, tally = Runner(subject, asked.seed, scratch), Tally()
    only_part, _, only_number = (asked.only or "").partition(":")
    names = [only_part] if only_part else ["short"] if asked.short else asked.part
    chosen = [part for part in (*PARTS, SHORT) if part.name in names] if names else list(PARTS)
    minutes = SHORT_MINUTES if asked.short else asked.minutes
    print(f"{subject.tree}, seed {asked.seed}, {minutes:g} minutes", flush=True)
    for part in chosen:
        seconds = 60 * minutes * part.share / sum(each.share for each in chosen)
        least = part.least if minutes >= FULL_MINUTES and not asked.part else 0
        began = time.monotonic()
        part = Part(part.name, part.share, part.case_of, min(part.lanes, asked.lanes))
        only = int(only_number) if only_part else None
        tally.parts[part.name] = PartTally()
        for ended in runner.run(part, seconds, least, only):
            fresh = tally.take(part.name, ended)
            if asked.verbose or only_part:
                print(f"{part.name}:{ended.number} {ended.name}  {ended.outcome}", flush=True)
            for kind, text in fresh:
                again = f"--seed {asked.seed} --only {part.name}:{ended.number}"
                print(f"{SEVERITY[kind]} {kind}: {ended.name}: {text}  ({again})", flush=True)
        tally.parts[part.name].seconds = time.monotonic() - began
    return tally


def main() -> None:
    asked = options().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what runs, as Ctrl-C does
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as scratch:
        tally = campaign(asked, Path(scratch))
    print(tally.text())
    sys.exit(1 if tally.violations else 0)


if __name__ == "__main__":
    main()
