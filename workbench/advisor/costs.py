"""Costs of each candidate in money and joules, and the best candidate by each of them.

Prices are the user's own and exact.  Energy comes from the device's own counter or sensor.  For a
GPU it covers the whole board; RAPL covers processor packages, no memory, fans or power supply.
"""

from collections.abc import Mapping, Sequence

from ..contract import kind_of
from ..records.reason import Reason
from ..records.verdict import CaseCost, ObjectivePick
from ..report.candidate import ENERGY, Candidate, eliminations
from ..stats import ratios
from ..stats.objectives import HOUR_S
from ..stats.paired import value_and_interval
from ..stats.ratios import Rounds
from ..stats.samples import median
from .comparison import TIMED

MILLION = 1e6
COUNTER, READINGS = "energy counter", "power readings"
CHEAPEST = "cheapest"
ENERGY_HINTS = {
    "cpu": "RAPL needs root and is missing in most virtual machines",
    "gpu": "NVML reads them on most NVIDIA cards, but not for one MIG instance",
}


def step_energy(candidate: Candidate) -> tuple[float, str] | None:
    """Joules of a steady step and their source; None where nothing was read.

    A counter over this case alone is preferred: the GPU's, then RAPL around each block.  Otherwise
    the mean of the power readings (about two a second) times the length of a step.
    """
    telemetry, step_s = candidate.whole_telemetry, candidate.median_s
    if telemetry is not None and telemetry.counted_power_w:
        return telemetry.counted_power_w * step_s, COUNTER
    counted = [b.metrics[ENERGY] for b in candidate.blocks if b.metrics.get(ENERGY)]
    if counted:
        return median(counted), COUNTER
    if telemetry is not None and telemetry.power_w:
        return telemetry.power_w * step_s, READINGS
    return None


def case_costs(eligible: Sequence[Candidate]) -> list[CaseCost]:
    """The costs of each measured candidate that may be picked; empty where none are known."""
    costs = [_cost(candidate) for candidate in eligible]
    known = any(cost.price_per_hour is not None or cost.joules_from for cost in costs)
    return costs if known else []


def _cost(candidate: Candidate) -> CaseCost:
    (joules, source), items = step_energy(candidate) or (None, None), candidate.work.items
    return CaseCost(
        id=candidate.case.id,
        price_per_hour=candidate.price_per_hour,
        per_million=per_million(candidate),
        joules_per_item=joules / items if joules and items > 0 else None,
        joules_from=source,
    )


def per_million(candidate: Candidate) -> float | None:
    """The price of a million items; None without a price, or for work without items."""
    if candidate.price_per_hour is None or candidate.work.items <= 0:
        return None
    seconds = candidate.median_s
    if candidate.objective == "time_to_result":
        seconds += candidate.fixed_s
    return candidate.price_per_hour / HOUR_S * seconds * MILLION / candidate.work.items


def by_objective(eligible: Sequence[Candidate], prices: Mapping[str, float]) -> list[ObjectivePick]:
    """The fastest, cheapest and most frugal of a row; empty where nothing but time is known."""
    if not eligible:
        return []
    frugal = _most_frugal(eligible)
    if not prices and frugal.pick is None:
        return []
    priced = [_cheapest(eligible)] if prices else []
    return [_fastest(eligible), *priced, frugal]


def _fastest(eligible: Sequence[Candidate]) -> ObjectivePick:
    objective = eligible[0].objective
    unit = {"time_to_result": "s/run", "latency_p99": "s/step at p99"}.get(objective)
    rounds = {c.case.id: c.rounds() if objective in TIMED else c.step_rounds() for c in eligible}
    values = {c.case.id: c.value if unit else c.median_s for c in eligible}
    beaten = eliminations(eligible) if objective in TIMED else {}
    return _raced("fastest", rounds, values, unit or "s/step", beaten)


def _cheapest(eligible: Sequence[Candidate]) -> ObjectivePick:
    unit = f"per million {eligible[0].work.item}"
    unpriced = dict.fromkeys(c.case.device for c in eligible if c.price_per_hour is None)
    if unpriced:
        missing = dict.fromkeys(kind_of(device).column for device in unpriced)
        hint = "add " + " ".join(f"--price {kind}=PER_HOUR" for kind in missing)
        reason = Reason("no_price", f"no price for {' and '.join(unpriced)}", hint)
        return _unknown(CHEAPEST, unit, reason)
    values = {c.case.id: per_million(c) for c in eligible}
    if None in values.values():
        return _unknown(CHEAPEST, unit, Reason("no_items", "this workload counts no items"))
    rounds = {}
    for c in eligible:
        billed = c.rounds() if c.objective == "time_to_result" else Rounds(c.step_rounds())
        rounds[c.case.id] = billed.times((c.price_per_hour or 0.0) / HOUR_S)
    beaten = eliminations(eligible) if eligible[0].objective == "cost" else {}
    return _raced(CHEAPEST, rounds, values, unit, beaten)


def _most_frugal(eligible: Sequence[Candidate]) -> ObjectivePick:
    unit = f"J/{one_of(eligible[0].work.item)}"
    joules = {c.case.id: j for c in eligible if (j := _cost(c).joules_per_item) is not None}
    read = {c.case.device_kind for c in eligible if c.case.id in joules}
    silent = sorted({c.case.device_kind for c in eligible} - read)
    if silent:
        names = " and ".join(f"the {kind.upper()}" for kind in silent)
        hint = ". ".join(ENERGY_HINTS[kind] for kind in silent)
        reason = Reason("no_energy", f"energy and power of {names} could not be read", hint)
        return _unknown("most_frugal", unit, reason)
    if unread := [c.name for c in _in_question(eligible) if c.case.id not in joules]:
        text = f"energy and power of {' and '.join(unread)} were not read"
        reason = Reason("no_energy", text, "raise --budget: power is read twice a second")
        return _unknown("most_frugal", unit, reason)
    raced = {c.case.id: c.rounds() for c in eligible if c.case.id in joules}
    if eligible[0].objective == "energy" and any(raced.values()):  # as the pick was found
        return _raced("most_frugal", raced, joules, unit, eliminations(eligible))
    first, *others = sorted(joules, key=joules.__getitem__)
    second = next(iter(others), None)
    ratio = joules[second] / joules[first] if second else None
    return ObjectivePick("most_frugal", first, joules[first], unit, second, ratio, None)


def _in_question(eligible: Sequence[Candidate]) -> list[Candidate]:
    """The candidates whose energy must be known before one is called the most frugal: those that
    raced to the end, and the fastest of each device."""
    order = ratios.ranking({c.case.id: c.step_rounds() for c in eligible})
    kinds = {c.case.id: c.case.device_kind for c in eligible}
    fastest = {kinds[case]: case for case in reversed(order)}
    return [c for c in eligible if not c.eliminated or c.case.id in fastest.values()]


def one_of(items: str) -> str:
    """`samples` to `sample`, `launches` to `launch`."""
    return items.removesuffix("es" if items.endswith("ches") else "s")


def _raced(
    name: str,
    rounds: Mapping[str, Mapping[int, float]],
    values: Mapping[str, float | None],
    unit: str,
    beaten: Mapping[str, str],
) -> ObjectivePick:
    first, *others = ratios.ranking(rounds, beaten)
    second = next(iter(others), None)
    ratio = ratios.ratio_between(rounds[second], rounds[first]) if second else None
    return ObjectivePick(name, first, values[first], unit, second, *value_and_interval(ratio))


def _unknown(name: str, unit: str, reason: Reason) -> ObjectivePick:
    return ObjectivePick(name, None, None, unit, None, None, None, reason)
