"""The accuracy of verdicts: compares each pick with an exhaustive measurement of all candidates.

`python -m benchmarks.advisor [SCENARIO...]` (make advisor) asks twice for advice on each scenario
at each size of its grid, every other time with a simulated GPU.  Then it measures every candidate
of the row to the end, except those many times slower, and runs the table of six, quick and whole,
twice each.  Prints Markdown; keeps its results in .advisor.jsonl, so it can be cut short.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from benchmarks.shared import ROOT, Kept, table, workbench
from workbench.advisor.limits import eligible
from workbench.contract import kind_of
from workbench.engine.engine import Engine
from workbench.planning import scenarios
from workbench.planning.request import DEFAULT_BUDGET_S, TABLE_BUDGET_S, Request
from workbench.planning.rows import resolve
from workbench.planning.scenario import Scenario
from workbench.planning.usage import UsageError
from workbench.pool import control
from workbench.pool.control import Control
from workbench.records.verdict import Verdict
from workbench.report.report import Report
from workbench.stats import ratios

KEPT = ROOT / "benchmarks" / ".advisor.jsonl"
ROWS = 6  # in the default table
START_S = 4.0  # added to start the workers, which the rows of a table share; twice with a GPU
EXHAUSTIVE_S = 90.0
POINTS = 3  # sizes of a grid, evenly spaced in logarithms
MOST = 4.0  # largest size, in times the scenario's own size, if that is small in its range
SPEEDS = (0.5, 1.5, 4.0)  # speeds of the simulated GPU, in times this CPU


class RowOfTable(Request):
    """A row alone that may be lengthened by its equal share of what the default table has."""

    @property
    def extension_s(self) -> float:
        return DEFAULT_BUDGET_S / ROWS


@dataclass(frozen=True)
class Place:
    """One point of the grid; `speed` is the simulated GPU's, None without one."""

    scenario: str
    size: str  # "batch=8", "n=512"
    speed: float | None

    def request(self, budget_s: float, kind: type[Request]) -> Request:
        name, _, value = self.size.partition("=")
        return kind(
            scenarios=(self.scenario,),
            batch=(int(value),) if name == "batch" else (),
            settings=() if name == "batch" else (self.size,),
            devices=() if self.speed is None else ("cpu", f"fake:0@{self.speed:g}"),
            budget_s=budget_s,
        )


def grid(rows: Sequence[Scenario]) -> Iterator[Place]:
    """Every scenario at sizes from the least to some times its own; speeds in turn."""
    number = 0
    for row in rows:
        if row.size is None:
            continue
        own = float(row.batch or 1 if row.size.name == "batch" else row.params[row.size.name])
        low, high = row.size.low, own
        if own <= math.sqrt(low * row.size.high):
            high = min(row.size.high, MOST * own)
        for point in range(POINTS):
            value = low * (high / low) ** (point / (POINTS - 1))
            speed = SPEEDS[number // 2 % len(SPEEDS)] if number % 2 else None
            yield Place(row.id, f"{row.size.name}={max(1, round(value))}", speed)
            number += 1


def run(
    place: Place,
    rows: dict[str, Scenario],
    budget_s: float,
    kind: type[Request] = Request,
    **changes: Any,
) -> Report:
    """The row of one place alone, without its crossover."""
    request = place.request(budget_s, kind)
    (plan,) = resolve(request, rows)
    scenario = msgspec.structs.replace(plan.scenario, size=None, **changes)
    report = Report()
    Engine(request, [replace(plan, scenario=scenario)], Control(), report, lambda _: None).run()
    return report


def advice(place: Place, rows: dict[str, Scenario]) -> Verdict:
    """The verdict of the row within its share of the default table's time."""
    weights = sum(row.weight for row in rows.values() if not row.on_request)
    share_s = TABLE_BUDGET_S * rows[place.scenario].weight / weights
    start_s = START_S if place.speed is None else 2 * START_S
    (verdict,) = run(place, rows, share_s + start_s, RowOfTable).verdicts
    return verdict


def exhaustive(place: Place, rows: dict[str, Scenario]) -> dict[str, dict[int, float]]:
    """The rounds of every candidate that may be picked, by case id."""
    report = run(place, rows, EXHAUSTIVE_S, textbook=None)
    scenario = rows[place.scenario]
    valid = eligible(report.candidates.values(), scenario)
    return {candidate.case.id: candidate.rounds() for candidate in valid}


def device(case: str) -> str:
    return kind_of(case.split("/")[1]).column


def judge(place: Place, rows: dict[str, Scenario]) -> dict[str, Any]:
    """One row of the result: the first advice against the truth, and the second advice."""
    first, second = advice(place, rows), advice(place, rows)
    truth = exhaustive(place, rows)
    best = ratios.ranking(truth)[0]
    found: dict[str, Any] = {
        "scenario": place.scenario,
        "size": place.size,
        "speed": place.speed,
        "candidates": len(truth),
        "pick": first.pick,
        "best": best,
        "regret": _over(truth, first.pick, best),
        "is_behind": _is_behind(truth, first.pick, best),
        "tie": first.tie or second.tie,
        "clear": leads(first) and leads(second),
        "same": first.pick == second.pick,
        "choice": first.choice,
        "either": "either" in (first.choice, second.choice),
        "same_choice": first.choice == second.choice,
    }
    if leads(first):
        found["lead"] = _over(truth, first.runner_up, first.pick)
    if place.speed is not None:
        bests = {kind: [c for c in ratios.ranking(truth) if device(c) == kind] for kind in DEVICES}
        found["device_ratio"] = _over(truth, bests["cpu"][0], bests["gpu"][0])
    return found


DEVICES = ("cpu", "gpu")


def leads(verdict: Verdict) -> bool:
    """Whether it says with 95 % that the pick is ahead."""
    return verdict.pick_ratio_ci95 is not None and verdict.pick_ratio_ci95[0] > 1


def _over(truth: dict[str, dict[int, float]], one: str | None, other: str | None) -> float | None:
    """Time of the one over that of the other; None where either is not among the valid ones."""
    if one not in truth or other not in truth:
        return None
    return ratios.relative(truth[one], truth[other])


def _is_behind(truth: dict[str, dict[int, float]], pick: str | None, best: str) -> bool:
    """Whether the exhaustive measurement shows with 95 % that the pick is slower than the best."""
    ratio = ratios.ratio_between(truth[pick], truth[best]) if pick in truth else None
    return ratio is not None and ratio.low > 1


def table_of_six() -> dict[str, Any]:
    """Quick and whole, twice each: how long they take and whether they agree."""
    found: dict[str, Any] = {}
    for name, options in (("quick", ("--quick",)), ("whole", ())):
        runs = [workbench("advise", *options) for _ in range(2)]
        picks = [
            {v["scenario"]: None if v["tie"] else v["pick"] for v in document["verdicts"]}
            for document, _ in runs
        ]
        clear = [row for row in picks[0] if picks[0][row] and picks[1][row]]
        found[name] = {
            "seconds": max(seconds for _, seconds in runs),
            "clear": len(clear),
            "same": sum(picks[0][row] == picks[1][row] for row in clear),
        }
    return found


# ------------------------------------------------------------------ report

TIE = 1 + ratios.TOLERANCE


def right_device(row: dict[str, Any]) -> bool:
    """Whether the choice is the faster device, or either where they are a tie."""
    ratio = row["device_ratio"]
    allowed = {"cpu": ratio <= TIE, "gpu": ratio >= 1 / TIE, "either": 1 / TIE <= ratio <= TIE}
    return bool(allowed.get(row["choice"], False))


def share(hits: Sequence[bool]) -> str:
    return f"{sum(hits)} of {len(hits)}" + (f" ({sum(hits) / len(hits):.1%})" if hits else "")


def summary(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Claims with their results and goals."""
    regrets = [row["regret"] for row in rows if row["regret"] is not None]
    leads = [row["lead"] > 1 for row in rows if row.get("lead") is not None]
    devices = [row for row in rows if row.get("device_ratio") is not None]
    stated = [row for row in devices if row["choice"] in DEVICES]
    clear = [row for row in rows if row["clear"] and not row["tie"]]
    mean = math.exp(sum(map(math.log, regrets)) / len(regrets)) if regrets else math.nan
    return [
        ("pick within 5 % of the best", share([r <= TIE for r in regrets]), ">= 99 %"),
        (
            "within 5 %, or level with the best as far as the exhaustive measurement can tell",
            share([r["regret"] <= TIE or not r["is_behind"] for r in rows if r["regret"]]),
            "-",
        ),
        (
            "first and second run settled it: a lead, or a tie",
            share([r["clear"] or r["tie"] for r in rows]),
            "-",
        ),
        ("pick that could not be measured", share([r["regret"] is None for r in rows]), "0"),
        ("pick over the best, geometric mean", f"{mean:.4f}", "<= 1.005"),
        ("the worst", f"{max(regrets, default=math.nan):.3f}", "<= 1.06"),
        ("a lead stated at 95 % that is one", share(leads), ">= 97 %"),
        ("device right, or a tie", share([right_device(row) for row in devices]), ">= 98 %"),
        ("not settled", share([row["choice"] == "unknown" for row in devices]), "<= 10 %"),
        (
            "a device stated that is the faster one",
            share([(row["choice"] == "gpu") == (row["device_ratio"] > 1) for row in stated]),
            "100 %",
        ),
        (
            "second run: the same pick, where both say that it leads by more than a tie",
            share([row["same"] for row in clear]),
            ">= 98 %",
        ),
        (
            "second run: the same device, ties aside",
            share([row["same_choice"] for row in devices if not row["either"]]),
            ">= 98 %",
        ),
    ]


HEADER = ("scenario", "size", "simulated GPU", "candidates", "pick", "pick / best", "best")


def markdown(rows: Sequence[dict[str, Any]], six: dict[str, Any] | None) -> str:
    lines = []
    for row in rows:
        same = row["pick"] == row["best"]
        lines.append(
            (
                row["scenario"],
                row["size"],
                f"{row['speed']:g}x" if row["speed"] else "-",
                str(row["candidates"]),
                str(row["pick"]).partition("/")[2] + (" (tie)" if row["tie"] else ""),
                "-" if row["regret"] is None else f"{row['regret']:.3f}",
                "the same" if same else row["best"].partition("/")[2],
            )
        )
    figures = summary(rows)
    for name, known in (six or {}).items():
        goal = "<= 15 s" if name == "quick" else "<= 45 s"
        agree = f"{known['seconds']:.1f} s; {known['same']} of {known['clear']} clear picks agree"
        figures.append((f"the six rows, {name}, the longer of two runs", agree, goal))
    return "\n\n".join([table(("what", "found", "goal"), figures), table(HEADER, lines)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="default all, those on request too")
    parser.add_argument("--again", action="store_true", help="forget what was kept")
    arguments = parser.parse_args()
    control.process_age_s = lambda: 0.0  # each run here begins with its own budget
    rows, kept = scenarios.load(), Kept(KEPT, again=arguments.again)
    chosen = [rows[name] for name in arguments.scenarios] or list(rows.values())
    known = {(row.get("scenario"), row.get("size")) for row in kept}
    for place in grid(chosen):
        if (place.scenario, place.size) not in known:
            try:
                kept.add(judge(place, rows))
            except UsageError as error:  # a library is missing
                print(f"{place.scenario} at {place.size}: {error}", file=sys.stderr)
    if not arguments.scenarios and not any("six" in row for row in kept):
        kept.add({"six": table_of_six()})
    six = next((row["six"] for row in kept if "six" in row), None)
    print(markdown([row for row in kept if "scenario" in row], six))


if __name__ == "__main__":
    main()
