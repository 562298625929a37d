"""What each candidate costs, in money and in joules, and who is best by which baseline.

Prices are the user's own and exact.  Energy is what the device's own counter or sensor tells: a
GPU's of the whole board, RAPL of the processor packages without memory, fans and power supply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..contract import kind_of
from ..records.reason import Reason
from ..records.verdict import CaseCost, Elimination, ObjectivePick, Verdict
from ..report.candidate import ENERGY, Candidate
from ..report.names import name_of
from ..stats import ratios
from ..stats.objectives import HOUR_S, SECONDS
from ..stats.samples import Ratio, median
from ..text import units
from .race_summary import eliminated_by_first_block

MILLION = 1e6
COUNTER, READINGS = "energy counter", "power readings"
BY_PRICE = "cheapest"
RUNS = "time_to_result"


def step_energy(candidate: Candidate) -> tuple[float, str] | None:
    """Joules of a steady step and where they come from; None where nothing was read.

    A counter over this case alone goes first: the GPU's, then RAPL around each block.  Otherwise
    it is the mean of the power readings, about two a second, for as long as a step took.
    """
    telemetry, step_s = candidate.telemetry, median(candidate.samples_s)
    if candidate.case.device_kind == "gpu" and candidate.work.ranks > 1:
        return None  # only the first of its GPUs is read
    if telemetry is not None and telemetry.counted_power_w:
        return telemetry.counted_power_w * step_s, COUNTER
    counted = [b.metrics[ENERGY] for b in candidate.blocks if b.metrics.get(ENERGY)]
    if counted:
        return median(counted), COUNTER
    if telemetry is not None and telemetry.power_w:
        return telemetry.power_w * step_s, READINGS
    return None


def occupied_s(candidate: Candidate) -> dict[int, float]:
    """Seconds that are paid for, per round: a step, or start-up and a run where that counts."""
    return candidate.rounds() if candidate.objective == RUNS else candidate.step_rounds()


def case_costs(eligible: Sequence[Candidate]) -> list[CaseCost]:
    """The costs of each measured candidate that may be picked; empty where none has any."""
    if not any(c.price_per_hour is not None or step_energy(c) for c in eligible):
        return []
    found = []
    for candidate in eligible:
        energy, items = step_energy(candidate), candidate.work.items
        found.append(
            CaseCost(
                id=candidate.case.id,
                price_per_hour=candidate.price_per_hour,
                per_million=per_million(candidate),
                joules_per_item=energy[0] / items if energy and items > 0 else None,
                joules_from=energy[1] if energy else None,
            )
        )
    return found


def per_million(candidate: Candidate) -> float | None:
    """The price of a million items; None without a price, or where nothing is counted."""
    if candidate.price_per_hour is None or candidate.work.items <= 0:
        return None
    seconds = median(candidate.samples_s)
    if candidate.objective == RUNS:
        seconds += candidate.fixed_s
    return candidate.price_per_hour / HOUR_S * seconds * MILLION / candidate.work.items


def by_objective(eligible: Sequence[Candidate], prices: Mapping[str, float]) -> list[ObjectivePick]:
    """The fastest, the cheapest (where prices were given) and the most frugal of a row; empty where
    time is all there is to tell them by."""
    if not eligible:
        return []
    frugal = _most_frugal(eligible)
    if not prices and frugal.pick is None:
        return []
    priced = [_cheapest(eligible)] if prices else []
    return [_fastest(eligible), *priced, frugal]


def _fastest(eligible: Sequence[Candidate]) -> ObjectivePick:
    objective = eligible[0].objective
    counts_time = objective in SECONDS

    def value(candidate: Candidate) -> float | None:
        if objective in ("latency_p99", RUNS):
            return candidate.value
        return median(candidate.samples_s)

    unit = {RUNS: "s/run", "latency_p99": "s/step at p99"}.get(objective, "s/step")
    rounds = {c.case.id: c.rounds() if counts_time else c.step_rounds() for c in eligible}
    return _raced("fastest", eligible, rounds, value, unit)


def _cheapest(eligible: Sequence[Candidate]) -> ObjectivePick:
    item = eligible[0].work.item
    unit = f"per million {item}"
    unpriced = dict.fromkeys(c.case.device for c in eligible if c.price_per_hour is None)
    if unpriced:
        missing = list(dict.fromkeys(kind_of(d) for d in unpriced))
        hint = "add " + " ".join(f"--price {kind}=..." for kind in missing)
        reason = Reason("no_price", f"no price was given for {' and '.join(unpriced)}", hint)
        return _unknown(BY_PRICE, unit, reason)
    if any(per_million(c) is None for c in eligible):
        return _unknown(BY_PRICE, unit, Reason("no_items", "this workload counts no items"))
    rounds = {
        c.case.id: {
            number: seconds * (c.price_per_hour or 0.0) / HOUR_S
            for number, seconds in occupied_s(c).items()
        }
        for c in eligible
    }
    return _raced(BY_PRICE, eligible, rounds, per_million, unit)


def _most_frugal(eligible: Sequence[Candidate]) -> ObjectivePick:
    item = eligible[0].work.item
    unit = f"J/{one_of(item)}"
    known = {
        cost.id: cost.joules_per_item
        for cost in case_costs(eligible)
        if cost.joules_per_item is not None
    }
    heard = {c.case.device_kind for c in eligible if c.case.id in known}
    silent = sorted({c.case.device_kind for c in eligible} - heard)
    if silent:
        names = " and ".join({"cpu": "the CPU", "gpu": "the GPU"}[kind] for kind in silent)
        hints = {
            "cpu": "RAPL is for root, and not in most virtual machines",
            "gpu": "NVML tells them of most NVIDIA cards",
        }
        reason = Reason(
            "no_energy",
            f"energy and power of {names} could not be read here",
            "; ".join(hints[kind] for kind in silent),
        )
        return _unknown("most_frugal", unit, reason)
    if unread := [name_of(c.case.id) for c in _in_question(eligible) if c.case.id not in known]:
        text = f"energy and power of {' and '.join(unread)} were not read"
        reason = Reason(
            "no_energy", text, "give it a larger --budget: power is read about twice a second"
        )
        return _unknown("most_frugal", unit, reason)
    first, *others = sorted(known, key=known.__getitem__)
    second = others[0] if others else None
    return ObjectivePick(
        objective="most_frugal",
        pick=first,
        value=known[first],
        unit=unit,
        runner_up=second,
        ratio=known[second] / known[first] if second else None,
        ratio_ci95=None,
    )


def _in_question(eligible: Sequence[Candidate]) -> list[Candidate]:
    """Whose energy has to be known to call one the most frugal: those that raced to the end, and
    the fastest of each device.  Those that left as slower are told, see `notes`."""
    order = ratios.ranking({c.case.id: c.step_rounds() for c in eligible})
    fastest: dict[str, str] = {}
    for case, kind in ((c.case.id, c.case.device_kind) for c in eligible):
        if kind not in fastest or order.index(case) < order.index(fastest[kind]):
            fastest[kind] = case
    return [c for c in eligible if not c.eliminated or c.case.id in fastest.values()]


def one_of(items: str) -> str:
    """`samples` to `sample`, `launches` to `launch`."""
    return items.removesuffix("es" if items.endswith("ches") else "s")


def _raced(
    name: str,
    eligible: Sequence[Candidate],
    rounds: Mapping[str, Mapping[int, float]],
    value: Callable[[Candidate], float | None],
    unit: str,
) -> ObjectivePick:
    order = ratios.ranking(rounds)
    by_id = {c.case.id: c for c in eligible}
    first, second = order[0], order[1] if len(order) > 1 else None
    ratio: Ratio | None = ratios.ratio_between(rounds[second], rounds[first]) if second else None
    return ObjectivePick(
        objective=name,
        pick=first,
        value=value(by_id[first]),
        unit=unit,
        runner_up=second,
        ratio=ratio.value if ratio else None,
        ratio_ci95=ratio.interval if ratio else None,
    )


def _unknown(name: str, unit: str, reason: Reason) -> ObjectivePick:
    return ObjectivePick(name, None, None, unit, None, None, None, reason)


# ------------------------------------------------------------------- words

HEADER = ("", "candidate", "value", "ahead of", "by (95 %)")


def rows(verdict: Verdict) -> list[tuple[str, ...]]:
    """The best by each baseline side by side, as cells under HEADER; of what has no best
    `unknowns` tells.  Empty where only time was known."""
    return [_cells(found, verdict) for found in verdict.by_objective if found.pick is not None]


def unknowns(verdict: Verdict) -> list[str]:
    """Why there is no pick by a baseline, in sentences."""
    return [
        f"{_name(found)}: unknown, {_unknown_text(found.unknown)}."
        for found in verdict.by_objective
        if found.unknown is not None
    ]


def notes(verdict: Verdict) -> list[str]:
    """What the most frugal was not set beside, or only by another kind of reading; in sentences."""
    pick = next((f.pick for f in verdict.by_objective if f.objective == "most_frugal"), None)
    if pick is None:
        return []
    source = next(cost.joules_from for cost in verdict.costs if cost.id == pick)
    told = []
    others = [c for c in verdict.costs if c.joules_from not in (None, source)]
    if others:
        one, other = f"an {COUNTER}", READINGS
        if source == READINGS:
            one, other = other, one
        told.append(
            f"most frugal: {_short(pick)} is told by {one}, {_listed(others)} by {other}; these do "
            "not err alike."
        )
    if unread := [cost for cost in verdict.costs if cost.joules_from is None]:
        told.append(f"most frugal of those read: of {_listed(unread)} no power was.")
    return told


def _listed(costs: Sequence[CaseCost]) -> str:
    first, *others = costs
    return _short(first.id) + (f" and {len(others)} more" if others else "")


def lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Each baseline with its best, or why there is none, in words."""
    for found in verdict.by_objective:
        if found.unknown is not None:
            yield _name(found), f"unknown: {_unknown_text(found.unknown)}"
        else:
            lead = _lead(found, eliminated_by_first_block(verdict.race, found.runner_up))
            yield _name(found), f"{_short(found.pick)}, {_value(found)}{lead}"


def _unknown_text(reason: Reason) -> str:
    return reason.message + (f" ({reason.hint})" if reason.hint else "")


def _lead(found: ObjectivePick, left: Elimination | None) -> str:
    """How far it is ahead of the next, as the end of a sentence."""
    next_ = _short(found.runner_up)
    if found.runner_up is None:
        return ", with no other to compare it with"
    if found.ratio is None:
        if left is not None:
            return f"; {next_} was far behind in its first block"
        return f"; too few rounds to tell it from {next_}"
    value, interval = units.ratio_parts(found.ratio, found.ratio_ci95)
    if found.ratio_ci95 is None:
        return f", about {value} ahead of {next_}"
    if found.ratio_ci95[0] <= 1:
        return f", not told apart from {next_}: {value} (95 %: {interval})"
    return f", {value} (95 %: {interval}) ahead of {next_}"


def _cells(found: ObjectivePick, verdict: Verdict) -> tuple[str, ...]:
    ahead = units.ratio(found.ratio, found.ratio_ci95)
    if found.runner_up is None:
        ahead = "-"
    elif found.ratio is None:
        left = eliminated_by_first_block(verdict.race, found.runner_up)
        ahead = "far behind in its first block" if left else "too few rounds to tell"
    elif found.ratio_ci95 is None:
        ahead = f"about {ahead}"
    elif found.ratio_ci95[0] <= 1:
        ahead = f"not told apart ({ahead})"
    return _name(found), _short(found.pick), _value(found), _short(found.runner_up), ahead


def _name(found: ObjectivePick) -> str:
    return found.objective.replace("_", " ")


def _short(case: str | None) -> str:
    return name_of(case) if case else "-"


def _value(found: ObjectivePick) -> str:
    kind, slash, per = found.unit.partition("/")
    if found.value is None:
        return "too few samples for a 99th percentile"
    if slash:
        shown = units.duration(found.value) if kind == "s" else units.joules(found.value)
        return f"{shown}/{per}"
    return f"{_money(found.value)} {found.unit}"


def _money(value: float) -> str:
    """Three digits: `1,240`, `12.3`, `0.0123`, and below a thousandth `1.2e-6`."""
    if value >= 999.5:
        return f"{value:,.0f}"
    return units.significant(value) if value >= 1e-3 else units.figure(value)
