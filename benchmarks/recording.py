"""The cost of recording a run: `python -m benchmarks.recording JOURNAL`.

Writes the events of a journal again, in the engine's way, and in turns only decides to write them.
The difference is the time that the journal takes from the run, whose length the journal holds.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from workbench.records import events as ev
from workbench.report import journal

ROUNDS = 25


def seconds(events: list[ev.AnyEvent], folder: Path | None) -> float:
    """The time to write all events into a new journal in the folder, or to write none."""
    target = journal.Journal(folder / "runs" / f"{time.monotonic_ns()}.jsonl") if folder else None
    began = time.perf_counter()
    for event in events:
        if target is not None:
            target.append(event)
    lasted = time.perf_counter() - began
    if target is not None:
        target.discard()
    return lasted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journal", type=Path)
    events = journal.read(parser.parse_args().journal)
    ended_s = events[-1].at_s
    with tempfile.TemporaryDirectory(dir=journal.runs_folder().parent) as name:
        pairs = [(seconds(events, Path(name)), seconds(events, None)) for _ in range(ROUNDS)]
    costs = [written - skipped for written, skipped in pairs]
    share = [f"{cost / ended_s:.3%}" for cost in (median(costs), max(costs))]
    print(f"{len(events)} events of {ended_s:.1f} s take {median(costs) * 1e3:.1f} ms to record:")
    print(f"{share[0]} of the run; at most {share[1]} in {ROUNDS} rounds")


if __name__ == "__main__":
    main()
