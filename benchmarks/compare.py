"""False alarms of `workbench compare` between runs of this machine.

`python benchmarks/compare.py FOLDER [--runs N]` adds N runs (`--quick`, CPU) to the folder, then
compares every pair of the documents in it.  Nothing changes between them, so each FASTER, SLOWER
and CHANGED is a false alarm.
"""

import argparse
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

from workbench.advisor.compare import PROVEN, RunSide, compared
from workbench.report.run_files import open_run

COMMAND = ("--quick", "--device", "cpu", "--json")


def measure(folder: Path, count: int) -> None:
    start = len(list(folder.glob("*.json")))
    for number in range(start, start + count):
        command = [sys.executable, "-m", "workbench", *COMMAND]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        (folder / f"{number:03}.json").write_bytes(found)


def alone(side: RunSide, case: str) -> tuple[float, float] | None:
    """The interval of the median within this run, which knows of no other run."""
    return next(iter(side.cases[case].values()))[0].interval


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=0)
    options = parser.parse_args()
    measure(options.folder, options.runs)
    files = sorted(options.folder.glob("*.json*"))
    sides = [RunSide(file.stem, open_run(str(file)).report) for file in files]
    words: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    naive = compared_alone = 0
    for one, two in combinations(sides, 2):
        found = compared(one, two, None)
        words.update(f"verdict {verdict.word}" for verdict in found.verdicts)
        for case in found.cases:
            words[case.word] += 1
            reasons[case.reason.code if case.reason else "with an interval"] += 1
            if case.word in PROVEN:
                print(f"{one.name} {two.name} {case.word} {case.id} {case.ratio:.2f} {case.ci99}")
            here, there = alone(one, case.id), alone(two, case.id)
            if here is not None and there is not None:
                compared_alone += 1
                naive += here[1] < there[0] or there[1] < here[0]
    cases, alarms = sum(reasons.values()), sum(words[word] for word in PROVEN)
    for side in sides:
        print(f"{side.name}: rounds differ by {side.run.round_spread or 0:.1%}")
    print(f"{len(sides)} runs, {cases} cases in all pairs: {dict(words)}, {dict(reasons)}")
    print(f"false alarms: {alarms} of {cases} ({alarms / max(cases, 1):.1%})")
    print(f"intervals of the medians alone: {naive} of {compared_alone} disjoint")


if __name__ == "__main__":
    main()
