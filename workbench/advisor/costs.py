"""Costs of each candidate in money and joules, and the best candidate by each of them.

Prices are the user's own and exact.  Energy comes from the device's own counter or sensor.  For a
GPU it covers the whole board; RAPL covers the processor packages without memory, fans and power
supply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..contract import kind_of
from ..records.reason import Reason
from ..records.verdict import CaseCost, ObjectivePick
from ..report.candidate import ENERGY, Candidate
from ..report.names import candidate_name
from ..stats import ratios
from ..stats.objectives import HOUR_S, SECONDS
from ..stats.samples import Ratio, median

MILLION = 1e6
COUNTER, READINGS = "energy counter", "power readings"
BY_PRICE = "cheapest"
RUNS = "time_to_result"
ENERGY_HINTS = {
    "cpu": "RAPL needs root and is missing in most virtual machines",
    "gpu": "NVML reads them on most NVIDIA cards, but not for one MIG instance",
}


def step_energy(candidate: Candidate) -> tuple[float, str] | None:
    """Joules of a steady step and their source; None where nothing was read.

    A counter over this case alone is preferred: the GPU's, then RAPL around each block.  Otherwise
    the mean of the power readings (about two a second) times the length of a step.
    """
    telemetry, step_s = candidate.telemetry, median(candidate.ordered_s)
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
    """Billed seconds by round: a step, or start-up and a whole run where the row counts that."""
    return candidate.rounds() if candidate.objective == RUNS else candidate.step_rounds()


def case_costs(eligible: Sequence[Candidate]) -> list[CaseCost]:
    """The costs of each measured candidate that may be picked; empty where none are known."""
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
    """The price of a million items; None without a price, or for work without items."""
    if candidate.price_per_hour is None or candidate.work.items <= 0:
        return None
    seconds = median(candidate.ordered_s)
    if candidate.objective == RUNS:
        seconds += candidate.fixed_s
    return candidate.price_per_hour / HOUR_S * seconds * MILLION / candidate.work.items


def by_objective(eligible: Sequence[Candidate], prices: Mapping[str, float]) -> list[ObjectivePick]:
    """The fastest, the cheapest (where prices were given) and the most frugal of a row; empty where
    nothing but time is known."""
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
        return median(candidate.ordered_s)

    unit = {RUNS: "s/run", "latency_p99": "s/step at p99"}.get(objective, "s/step")
    rounds = {c.case.id: c.rounds() if counts_time else c.step_rounds() for c in eligible}
    return _raced("fastest", eligible, rounds, value, unit)


def _cheapest(eligible: Sequence[Candidate]) -> ObjectivePick:
    item = eligible[0].work.item
    unit = f"per million {item}"
    unpriced = dict.fromkeys(c.case.device for c in eligible if c.price_per_hour is None)
    if unpriced:
        missing = list(dict.fromkeys(kind_of(d).column for d in unpriced))
        hint = "add " + " ".join(f"--price {kind}=PER_HOUR" for kind in missing)
        reason = Reason("no_price", f"no price for {' and '.join(unpriced)}", hint)
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
    read = {c.case.device_kind for c in eligible if c.case.id in known}
    silent = sorted({c.case.device_kind for c in eligible} - read)
    if silent:
        names = " and ".join(f"the {kind.upper()}" for kind in silent)
        reason = Reason(
            "no_energy",
            f"energy and power of {names} could not be read",
            ". ".join(ENERGY_HINTS[kind] for kind in silent),
        )
        return _unknown("most_frugal", unit, reason)
    if unread := [
        candidate_name(c.case.id) for c in _in_question(eligible) if c.case.id not in known
    ]:
        text = f"energy and power of {' and '.join(unread)} were not read"
        reason = Reason("no_energy", text, "raise --budget: power is read twice a second")
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
    """The candidates whose energy must be known before one is called the most frugal: those that
    raced to the end, and the fastest of each device.  The text mentions the others."""
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
