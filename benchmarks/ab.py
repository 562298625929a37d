"""Counts the false alarms of `workbench ab`, and the real slowdowns that it finds.

`python -m benchmarks.ab` runs `ab` on two equal sides and on sides of which B really does more work
(benchmarks/ab_work.py), N times each.  Keeps what it has in ab.jsonl, so it can be cut short and
goes on where it was, on another machine too.  The same processes say what two runs one after the
other would have said: A in the first half of the time, and B in the second.  The smallest slowdown
that is found in 95% of runs comes from the same intervals, moved as if B did more or less work.
With `--busy` the rows are kept apart, as those of a machine that had other work at the time.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from statistics import median

from benchmarks.shared import ROOT, Kept, Row, table

KEPT = ROOT / "benchmarks" / "ab.jsonl"
OFTEN = 0.95  # share of the runs that find the smallest slowdown


def run(slower: float, budget_s: float, fail_on: float) -> Row:
    """One run of `ab`, with B slower by this percentage."""
    command = [sys.executable, "-m", "workbench", "ab", "--function", "benchmarks.ab_work:work"]
    command += ["--threads", "1", "--budget", f"{budget_s:g}", "--fail-on", f"{fail_on:g}%"]
    command += ["--env", "AB_SLOWER=0", "--env", f"AB_SLOWER={10 * slower:.0f}", "--json"]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env={**os.environ}, text=True)
    row = {"slower": slower, "budget_s": budget_s, "fail_on": fail_on, "code": done.returncode}
    try:
        (result,) = json.loads(done.stdout)["results"]
    except ValueError:
        return row | {"failed": done.stderr.strip()[-300:]}
    row |= {name: result[name] for name in ("word", "ratio", "ci95")}
    row["ratios"] = [round(ratio, 5) for ratio in result["ratios"]]
    return row | {"in_sequence": in_sequence(result["a_s"], result["b_s"])}


def in_sequence(a_s: list[float], b_s: list[float]) -> float | None:
    """The ratio of medians of B in the second half of the run to A in the first half."""
    half = len(a_s) // 2
    return round(median(b_s[half:]) / median(a_s[:half]), 5) if half else None


def smallest(rows: list[Row]) -> float | None:
    """The slowdown, in percent, at which OFTEN of these runs would have failed.

    A slowdown moves the whole interval by its factor, as the ratio is a mean of logarithms.
    """
    needed = sorted(
        (1 + row["fail_on"] / 100) * (1 + row["slower"] / 100) / row["ci95"][0] for row in rows
    )
    return 100 * (needed[math.ceil(OFTEN * len(needed)) - 1] - 1) if needed else None


def _kind(row: Row) -> tuple[float, float, float, bool]:
    return row["slower"], row["budget_s"], row["fail_on"], row.get("busy", False)


def report(rows: list[Row]) -> str:
    """A table: a line for each slowdown and budget."""
    head = ("slower", "budget, s", "busy", "runs", "exit 4", "SLOWER", "pairs", "half-width")
    head += ("failed", "one after the other", f"found in {OFTEN:.0%}")
    lines = []
    for key in sorted(set(map(_kind, rows))):
        same = [row for row in rows if _kind(row) == key]
        good = [row for row in same if row.get("ci95")]
        ratios = [ratio for row in good if (ratio := row["in_sequence"]) is not None]
        alarms = sum(ratio > 1 + key[2] / 100 for ratio in ratios)
        widths = [(row["ci95"][1] - row["ci95"][0]) / 2 for row in good]
        cells = (
            f"{key[0]:g} %",
            f"{key[1]:g}",
            "yes" if key[3] else "no",
            len(same),
            sum(row["code"] == 4 for row in same),
            sum(row["word"].upper() == "SLOWER" for row in good),
            f"{median(len(row['ratios']) for row in good):g}" if good else "-",
            f"{median(widths):.2%}" if widths else "-",
            len(same) - len(good),
            f"{alarms} of {len(ratios)} beyond {key[2]:g} %",
            f"{least:.1f} %" if (least := smallest(good)) is not None else "-",
        )
        lines.append(cells)
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="of each slowdown")
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--fail-on", type=float, default=2.0, help="percent")
    parser.add_argument("--slower", type=float, nargs="+", default=[0.0, 5.0], help="percent")
    parser.add_argument("--most", type=int, default=10**6, help="runs of this call")
    parser.add_argument("--busy", action="store_true", help="the machine has other work")
    parser.add_argument("--report", action="store_true", help="print what is known")
    given = parser.parse_args()
    rows = Kept(KEPT)
    left = 0 if given.report else given.most
    for _ in range(given.runs):  # the slowdowns take turns: no hour of the day counts for one alone
        for slower in given.slower:
            kind = slower, given.budget, given.fail_on, given.busy
            known = sum(_kind(row) == kind for row in rows)
            if left and known < given.runs:
                found = run(slower, given.budget, given.fail_on)
                rows.add(found | {"busy": True} if given.busy else found)
                left -= 1
    print(report(rows))


if __name__ == "__main__":
    main()
