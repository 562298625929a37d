"""The default table against fresh processes: was each pick the fastest on this machine?

`python -m benchmarks.second_opinion [SCENARIO...] [--minutes 10]` (part of `make advisor`) takes
the default table once.  Then the candidates of a row that came within TWICE take turns for ten
minutes, each turn as a run of its own in fresh processes, in an order drawn anew for each round.
Prints Markdown; keeps its results in .second_opinion.jsonl, by processor, so it can be cut short.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.shared import Kept, table, workbench
from workbench import __version__
from workbench.advisor.limits import is_admissible
from workbench.contract import Case
from workbench.planning import scenarios
from workbench.records.document import Document
from workbench.report.candidate import Candidate
from workbench.report.from_document import report_of
from workbench.report.report import Report
from workbench.stats import ratios

KEPT = Path(__file__).parent / ".second_opinion.jsonl"
TWICE = 2.0  # times the pick's: candidates beyond are not measured again
TURN_S = 10  # budget of a turn, its start included
HEADER = ("processor", "scenario", "turns", "pick", "confidence", "best", "pick / best", "95% CI")


def report_from(*arguments: str) -> Report:
    """The report of a run of the command line."""
    document, _ = workbench(*arguments)
    return report_of(msgspec.convert(document, Document))


def close(report: Report, scenario: str) -> list[Candidate]:
    """The candidates of the row that might be the best, those that the race eliminated too."""
    rows = scenarios.load()
    row = report.rows[scenario]
    verdict = row.verdict
    pick = next(each for each in row.candidates if verdict and each.case.id == verdict.pick)
    best = pick.value or 0.0
    return [
        each
        for each in row.candidates
        if each.value is not None
        and each.value <= TWICE * best
        and is_admissible(each, rows[scenario])
    ]


def options(case: Case) -> list[str]:
    """The options of `advise` that leave this case, and at most its other quantisations and
    tunings."""
    chosen = {
        "--device": case.device,
        "--backend": case.backend,
        "--precision": case.precision,
        "--mode": case.mode or "plain",
        "--threads": case.threads,
    }
    words = [word for name, value in chosen.items() if value is not None for word in (name, value)]
    return [str(word) for word in words]


def turn(case: Case, scenario: str) -> float | None:
    """The value of a case in processes of its own; None if it was not measured."""
    try:
        report = report_from("advise", scenario, *options(case), "--budget", str(TURN_S))
    except SystemExit as reason:  # it was not measured in that time
        print(reason, file=sys.stderr)
        return None
    candidate = report.candidates.get(case.id)
    return None if candidate is None or not candidate.blocks else candidate.value


def judge(report: Report, scenario: str, minutes: float) -> dict[str, Any]:
    """One row: the pick against the best of the fresh processes."""
    candidates = {each.case.id: each for each in close(report, scenario)}
    verdict = report.rows[scenario].verdict
    assert verdict is not None and verdict.pick is not None
    found: dict[str, dict[int, float]] = {name: {} for name in candidates}
    until, turns = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < until and len(candidates) > 1:
        for name in random.sample(list(candidates), len(candidates)):
            value = turn(candidates[name].case, scenario)
            if value is not None:
                found[name][turns] = value
        turns += 1
    best = next(iter(ratios.ranking(found)), verdict.pick) if len(found) > 1 else verdict.pick
    ratio = ratios.ratio_between(found.get(verdict.pick, {}), found.get(best, {}))
    return {
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
        "version": __version__,
        "minutes": minutes,
        "processor": report.machine.cpu.model if report.machine else None,
        "scenario": scenario,
        "turns": turns,
        "pick": verdict.pick,
        "confidence": verdict.confidence,
        "best": best,
        "regret": 1.0 if best == verdict.pick else ratio and ratio.value,  # None: too few turns
        "ci95": [ratio.low, ratio.high] if ratio and best != verdict.pick else None,
    }


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        same, alone = row["best"] == row["pick"], not row["turns"]
        interval = "-" if row["ci95"] is None else "{:.3f}-{:.3f}".format(*row["ci95"])
        lines.append(
            (
                str(row["processor"]),
                row["scenario"],
                str(row["turns"]),
                row["pick"].partition("/")[2],
                row["confidence"],
                f"no other within {TWICE:g}x"
                if alone
                else "the same"
                if same
                else row["best"].partition("/")[2],
                "-" if alone or row["regret"] is None else f"{row['regret']:.3f}",
                interval,
            )
        )
    return table(HEADER, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="default: the rows of the default table")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each row")
    asked = parser.parse_args()
    kept, report = Kept(KEPT), report_from("advise", *asked.scenarios)
    for row in report.asked_rows:
        scenario = row.plan.scenario
        if row.verdict is None or row.verdict.pick is None:
            print(f"{scenario}: nothing was picked", file=sys.stderr)
            continue
        kept.add(judge(report, scenario, asked.minutes))
    print(markdown(kept))


if __name__ == "__main__":
    main()
