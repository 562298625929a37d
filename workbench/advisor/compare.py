"""Earlier runs compared by unpaired ratios; disturbed rows prove nothing."""

import math
from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from ..planning.usage import UsageError
from ..records import comparison as doc
from ..records.document import SCHEMA_VERSION, Tool
from ..records.machine import Machine
from ..records.reason import Reason, Warning
from ..report.candidate import Candidate
from ..report.report import Report
from ..stats import ratios, unpaired
from ..stats.objectives import BY_DEVICE
from ..stats.paired import AMBIGUOUS, FASTER, SLOWER
from ..stats.samples import MIN_PAIRS, median
from ..text import units

CHANGED, UNDECIDED = "CHANGED", AMBIGUOUS.upper()
PROVEN = (FASTER.upper(), SLOWER.upper())
Timing = tuple[bool, frozenset[str | None]]
Pair = tuple[list[Candidate], list[Candidate]]
ANOTHER_RUN = math.sqrt(2) * unpaired.BETWEEN_RUNS  # least spread of a ratio from run to run


class RunSide:
    """One of the runs: its measured cases, and what disturbed its rows."""

    def __init__(self, name: str, report: Report) -> None:
        self.name, self.report = name, report
        rows = report.rows.values()
        valid = [candidate for row in rows for candidate in row.candidates if candidate.is_valid]
        self.simulated = any(candidate.simulated for candidate in valid)
        # By case id and how their samples were timed, from all rows that have the case.
        self.cases: dict[str, dict[Timing, list[Candidate]]] = {}
        for candidate in valid:
            timed = self.cases.setdefault(candidate.case.id, {})
            timed.setdefault(_timing(candidate), []).append(candidate)
        # Scenario to code of a warning.
        self.disturbed = {r.plan.scenario: w.code for r in rows for w in report.disturbances(r)}
        groups = (group for timed in self.cases.values() for group in timed.values())
        self.spread = unpaired.round_spread(map(_rounds, groups))
        head, spread = report.document([]), self.spread and math.sqrt(self.spread[0])
        machine, software, version = head.machine, head.software, head.tool.version
        self.run = doc.ComparedRun(name, head.run, version, machine, software, spread)

    def origin(self, candidate: Candidate) -> str:
        """The id of the run that measured it."""
        run = self.run.run
        return run.carried.get(candidate.scenario, run.id)


def run_comparison(
    tool: Tool, reports: Sequence[Report], fail_on: float | None
) -> doc.RunComparison:
    """The first run against each of the others; UsageError where there is nothing to compare."""
    first, *others = (RunSide(ascii_uppercase[n], report) for n, report in enumerate(reports))
    for other in others:
        if first.run.run.id == other.run.run.id:
            raise UsageError(f"A and {other.name} are the same run, {first.run.run.id}: name two")
        if first.cases.keys().isdisjoint(other.cases):
            hint = "compare runs of the same workloads and sizes"
            raise UsageError(f"A and {other.name} have no measured case in common: {hint}")
    against = [compared(first, other, fail_on) for other in others]
    sides = [side.run for side in (first, *others)]
    return doc.RunComparison(SCHEMA_VERSION, tool, fail_on, sides, against)


def compared(first: RunSide, other: RunSide, fail_on: float | None) -> doc.Versus:
    machines = [_hardware(side.run.machine) for side in (first, other)]
    cases = [_case(first, other, case, fail_on) for case in first.cases if case in other.cases]
    only_in_a = [case for case in first.cases if case not in other.cases]
    tried = [c for row in other.report.rows.values() for c in row.candidates]
    failed = {c.case.id: c.reason for c in tried if c.state == "failed" and c.reason}
    return doc.Versus(
        name=other.name,
        same_machine=machines[0] is not None and machines[0] == machines[1],
        warnings=list(_warnings(first, other)),
        verdicts=sorted(_verdicts(first, other), key=lambda verdict: verdict.word != CHANGED),
        cases=sorted(cases, key=lambda c: (c.word not in PROVEN, -abs(math.log(c.ratio or 1)))),
        only_in_a=only_in_a,
        only_here=[case for case in other.cases if case not in first.cases],
        failed_here={case: failed[case] for case in only_in_a if case in failed},
    )


def _hardware(machine: Machine | None) -> tuple[object, ...] | None:
    """The identity of a machine, even if two runs could use different parts of it.

    GPUs name it better than its host name, which containers and Slurm jobs change.
    """
    if machine is None:
        return None
    gpus = [(gpu.uuid, gpu.name) for gpu in machine.gpus if not gpu.simulated]
    cpu = machine.cpu
    name = None if any(uuid for uuid, _ in gpus) else machine.hostname
    return name, cpu.model, cpu.isa, cpu.logical_cores, gpus  # clouds hide the model


def _case(first: RunSide, other: RunSide, case: str, fail_on: float | None) -> doc.ComparedCase:
    one, two = pair = _pair(first, other, case)
    before, after = map(_rounds, pair)
    medians, counts = (median(before), median(after)), (len(before), len(after))
    if unlike := _unlike(first, other, pair):
        return doc.ComparedCase(case, UNDECIDED, medians, counts, None, unlike)
    ratio, doubt = medians[1] / medians[0], _doubt(first, one) or _doubt(other, two)
    if doubt is not None or first.spread is None or other.spread is None:
        return doc.ComparedCase(case, UNDECIDED, medians, counts, ratio, doubt)
    sides = (after, other.spread), (before, first.spread)
    shown = unpaired.unpaired_ratio(*sides).interval
    found = unpaired.unpaired_ratio(*sides, unpaired.CONFIDENCE)
    word = found.word(unpaired.SAME_WITHIN).upper()
    beyond = fail_on is not None and found.low > 1 + fail_on
    return doc.ComparedCase(case, word, medians, counts, ratio, None, shown, found.interval, beyond)


def _pair(first: RunSide, other: RunSide, case: str) -> Pair:
    """The candidates of a case in both runs, timed in the same way if any were."""
    one, two = first.cases[case], other.cases[case]
    alike = next((timing for timing in one if timing in two), None)
    if alike is None:
        return next(iter(one.values())), next(iter(two.values()))
    return one[alike], two[alike]


def _rounds(candidates: Sequence[Candidate]) -> list[float]:
    """The median step of every round, in seconds."""
    return [value for candidate in candidates for value in candidate.medians_s]


def _unlike(first: RunSide, other: RunSide, pair: Pair) -> Reason | None:
    """Why the times of a case in the two runs are not compared."""
    (before, *_), (after, *_) = pair
    one, two = before.work, after.work
    if (one.flops, one.items, one.item, one.ranks) != (two.flops, two.items, two.item, two.ranks):
        return Reason("other_work", "a step does other work", "measure both with one version")
    if _subject(first) != _subject(other):
        text = "the model, the code or its inputs differ"
        return Reason("other_code", text, "`workbench ab` compares versions of code")
    if _timing(before) != _timing(after):
        return Reason("other_clock", "one is a rate, one a latency", "ask both the same question")
    resumed = any(side.run.run.carried for side in (first, other))
    origins = [{side.origin(c) for c in cs} for side, cs in zip((first, other), pair, strict=True)]
    if resumed and (shared := set.intersection(*origins)):
        text = f"both hold what run {min(shared)} measured"
        return Reason("same_run", text, "name two runs that measured it")
    return None


def _timing(candidate: Candidate) -> Timing:
    """Whether its samples measure a rate, and which clocks timed them."""
    found = frozenset(None if b.clocks is None else b.clocks.counted for b in candidate.blocks)
    return candidate.objective in BY_DEVICE, found


def _subject(side: RunSide) -> list[str]:
    """The hashes of the user's model, or of the code and its inputs; [] in other runs."""
    model, code = side.report.model, side.report.code
    hashes = [code.facts.code_sha256, code.facts.inputs_sha256] if code else []
    return [model.facts.sha256] if model else hashes


def _doubt(side: RunSide, candidates: Sequence[Candidate]) -> Reason | None:
    """Why these candidates of one case cannot show whether it has changed."""
    for candidate in candidates:
        if code := side.disturbed.get(candidate.scenario):
            text = f"{code.replace('_', ' ')} in {side.name}"
            return Reason("disturbed", text, "measure at a quieter hour")
    if (count := len(_rounds(candidates))) < MIN_PAIRS:
        text = f"only {units.counted(count, 'round')} in {side.name}"
        return Reason("few_rounds", text, "measure longer")
    return None


def _warnings(first: RunSide, other: RunSide) -> Iterator[Warning]:
    if posed := [side.name for side in (first, other) if side.simulated]:
        have = " and ".join(posed) + (" have" if posed[1:] else " has")
        text = f"{have} simulated devices, whose times say nothing about hardware"
        yield Warning("simulated", text, "compare runs of real devices")
    if first.run.version != other.run.version:
        text = f"A was run by workbench {first.run.version}, {other.name} by {other.run.version}"
        yield Warning("other_version", text, "measure both with one version")


def _verdicts(first: RunSide, other: RunSide) -> Iterator[doc.ComparedVerdict]:
    after = {verdict.scenario: verdict for verdict in other.report.verdicts}
    for one in first.report.verdicts:
        two = after.get(one.scenario, one)
        if (one.choice, one.pick) != (two.choice, two.pick):
            choices, picks = (one.choice, two.choice), (one.pick, two.pick)
            here, there = (_within(side, one.scenario, *picks) for side in (first, other))
            disjoint = here and there and (here[1] < there[0] or there[1] < here[0])
            is_same = one.objective == two.objective and not any(
                _unlike(first, other, _pair(first, other, pick))
                for pick in picks
                if pick in first.cases and pick in other.cases
            )
            calm = all(one.scenario not in side.disturbed for side in (first, other))
            word = CHANGED if disjoint and is_same and calm else UNDECIDED
            yield doc.ComparedVerdict(one.scenario, word, choices, picks, (here, there))


def _within(side: RunSide, scenario: str, one: str | None, two: str | None) -> doc.Interval | None:
    """The interval of the paired ratio of two different picks in one run."""
    if one == two:
        return None
    row = {each.case.id: each.rounds() for each in side.report.rows[scenario].candidates}
    ratio = ratios.ratio_between(row[one], row[two]) if one in row and two in row else None
    return None if ratio is None else ratio.widened(ANOTHER_RUN).interval
