"""Which nodes to leave in FP32 so that a static INT8 form keeps its error within a limit.

A unit is a product, or what is quantised between it and the next.  Each is quantised on its own to
see what error it makes; errors of independent units add up like lengths at right angles.  The units
that make most error for the time they take are left out, as many as the limit demands (by
bisection, each time measured), and the dear ones among them are then tried again one by one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.recipe import Recipe

from . import agreement, nodes, quantise, samples, sessions
from .prepare import PREPARED
from .ranges import ranges

MARGIN = 0.9  # of the limit: other inputs make another error
FEW_S = 0.3  # of running samples in one trial, where that is possible
SENSITIVITY_SHARE = 0.4  # of the time, to learn the units one by one
LEAST_SHARE = 0.1  # of the cost in INT8, below which a mix gains nothing
FUSED = 3  # nodes, a product with its addition and activation, that become one
SMALL_SHARE = 0.005  # of the cost, which is not worth a trial of its own


@dataclass(frozen=True)
class Unit:
    names: tuple[str, ...]
    cost: float  # its share of the model's time or arithmetic


def mixed(
    folder: Path,
    recipe: Recipe,
    metric: str,
    limit: float,
    seconds: float,
    costs: Mapping[str, float] | None,
) -> dict[str, Any]:
    """Write the mixed form of `recipe`; see `workloads.lab.child.Lab.mixed`."""
    with sessions.quiet(), quantise.refusing(recipe):
        search = _Search(folder, recipe, metric, limit, seconds)
        chosen = search.run(units(search.model, nodes.kept(folder), recipe, costs))
        made = quantise.static(search.model, ranges(folder, recipe.calibration), chosen.recipe)
        told = quantise.keep(folder, chosen.recipe, made)
    return {
        "recipe": chosen.recipe.as_fields(),
        **told,
        "error": chosen.error,
        "tried": search.tried,
    }


def units(
    model: Any, found: Sequence[nodes.Product], recipe: Recipe, costs: Mapping[str, float] | None
) -> list[Unit]:
    """The nodes that a static form quantises: each product with what it absorbs is a unit, and
    what follows until the next product another."""
    products = {p.name for p in found if p.type in quantise.PRODUCTS and p.weights}
    types = set(quantise.static_types(recipe)) - set(quantise.PRODUCTS)
    members: dict[tuple[str, bool], list[str]] = {}  # by the product, and whether they follow it
    place: dict[str, int] = {}
    owner: dict[str, str] = {}  # product that a tensor comes from, the last one
    for node in model.graph.node:
        before = [owner[name] for name in node.input if name in owner]
        mine = max(before, key=place.__getitem__, default="")
        if node.name in products:
            mine = node.name
            place[mine] = len(place) + 1
            members[mine, False] = [node.name]
        elif node.op_type in types:
            follows = not (mine and node.op_type in quantise.ABSORBED)
            members.setdefault((mine, follows), []).append(node.name)
        place.setdefault(mine, 0)
        owner.update(dict.fromkeys(node.output, mine))
    cost = _costs(model, [p for p in found if not p.inside], costs)
    return [
        Unit(tuple(names), sum(cost.get(name, 0.0) for name in names)) for names in members.values()
    ]


def _costs(
    model: Any, found: Sequence[nodes.Product], costs: Mapping[str, float] | None
) -> dict[str, float]:
    """Of each product its share: of the seconds told, else of the multiply-adds or the weights.

    A product whose seconds are not told takes what its work takes elsewhere.
    """
    known = nodes.total(found)
    work = {p.name: float((p.multiply_adds if known else p.weights_bytes) or 0) for p in found}
    told = _told(model, work, costs or {})
    done = sum(work[name] for name in told)
    rate = sum(told.values()) / done if done else 1.0
    cost = {name: told.get(name, work[name] * rate) if done else work[name] for name in work}
    whole = sum(cost.values()) or 1.0
    return {name: value / whole for name, value in cost.items()}


def _told(model: Any, names: Collection[str], costs: Mapping[str, float]) -> dict[str, float]:
    """Seconds by the names of products; ONNX Runtime renames what it fuses or lays out anew."""
    takers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            takers.setdefault(name, []).append(node)
    found = {}
    for node in model.graph.node:
        if node.name not in names:
            continue
        keys, last = [node.name, f"{node.name}/MatMulScaleFusion/"], node
        for _ in range(FUSED):
            keys.append(f"{last.output[0]}_nchwc")
            after = takers.get(last.output[0], [])
            if len(after) != 1:
                break
            last = after[0]
        key = next((key for key in keys if key in costs), None)
        if key is not None:
            found[node.name] = float(costs[key])
    return found


@dataclass(frozen=True)
class _Mix:
    recipe: Recipe
    error: float
    left: frozenset[Unit]  # in FP32


class _OutOfTimeError(Exception):
    """Another trial would end after the time is up."""


class _Search:
    def __init__(
        self, folder: Path, recipe: Recipe, metric: str, limit: float, seconds: float
    ) -> None:
        import onnx

        self._ends = time.monotonic() + seconds
        self._learns_until = self._ends - (1 - SENSITIVITY_SHARE) * seconds
        self.model = onnx.load(str(folder / PREPARED))
        self._recipe, self._metric = recipe, metric
        self._limit = limit
        self._ranges = ranges(folder, recipe.calibration)
        self._inputs = samples.read(folder / samples.INPUTS)
        self._reference = samples.read(folder / samples.REFERENCE)
        self._few = len(self._inputs)
        self._trial_s = 0.0
        self.tried = 0
        self._seen: dict[frozenset[Unit], _Mix] = {}

    def run(self, found: Sequence[Unit]) -> _Mix:
        """The best mix found in the time; WorkloadError `no_mix` where none keeps the limit."""
        if len(found) < 2:
            raise self._no_mix("there is nothing to choose from")
        try:
            order = self._order(found)
            if self._metric == "relative_error":
                self._require_hope(order)
            best = self._fewest(order)
            if best is not None:
                self._readmit(best)
        except _OutOfTimeError:
            pass
        best = self._best_seen(MARGIN * self._limit) or self._best_seen(self._limit)
        if best is None:
            nearest = min((mix.error for mix in self._seen.values()), default=math.inf)
            raise self._no_mix(
                f"the nearest of {len(self._seen)} has {nearest:.3g}"
                if math.isfinite(nearest)
                else "the time was too short to try one"
            )
        if self._share(best.left, found) < LEAST_SHARE:
            raise self._no_mix("all but the cheapest products must stay in FP32")
        return best

    def _require_hope(self, order: Sequence[tuple[Unit, float]]) -> None:
        """Give up where the errors of single units say that next to nothing can be quantised."""
        rest = order[self._predicted(order, 1.0) :]
        if sum(unit.cost for unit, _ in rest) < LEAST_SHARE / 2:
            raise self._no_mix("nearly every product alone makes a larger error")

    def _no_mix(self, found: str) -> WorkloadError:
        return WorkloadError(
            f"no mix of INT8 and FP32 stays within {self._limit:g}: {found}",
            code="no_mix",
            hint="allow a larger error, or give real inputs to calibrate on",
        )

    # ---------------------------------------------------------- trials

    def _try(self, left: Sequence[Unit]) -> _Mix:
        """Build, run and judge the mix that leaves `left` in FP32."""
        key = frozenset(left)
        if key not in self._seen:
            names = tuple(name for unit in left for name in unit.names)
            recipe = replace(self._recipe, excluded=(*self._recipe.excluded, *names))
            error = self._run(recipe, (), len(self._inputs), self._metric)
            self._seen[key] = _Mix(recipe, error, key)
        return self._seen[key]

    def _alone(self, group: Sequence[Unit]) -> float:
        """The relative error of a few samples where only `group` is quantised."""
        names = [name for unit in group for name in unit.names]
        return self._run(self._recipe, names, self._few, "relative_error")

    def _run(self, recipe: Recipe, only: Sequence[str], count: int, metric: str) -> float:
        """The error over `count` samples: infinite where the form gives NaN."""
        began = time.monotonic()
        if began + 2 * self._trial_s > self._ends:  # the form chosen has to be made once more
            raise _OutOfTimeError
        made = quantise.static(self.model, self._ranges, recipe, only)
        session = sessions.open_session(made)
        ready = time.monotonic()
        answers = sessions.answers(session, self._inputs[:count])
        ended = time.monotonic()
        self._few = max(1, min(self._few, int(FEW_S * count / max(ended - ready, 1e-9))))
        self._trial_s = max(0.7 * self._trial_s, ended - began)
        self.tried += 1
        names = agreement.compared(session)
        try:
            outputs = agreement.compare(names, answers, self._reference[:count])
        except WorkloadError:
            return math.inf
        return agreement.summary(outputs, metric)

    # ---------------------------------------------------------- the search

    def _order(self, found: Sequence[Unit]) -> list[tuple[Unit, float]]:
        """Units with the error that each makes, most error for its cost first."""
        groups = [list(found[i : i + 1]) for i in range(len(found))]
        self._alone(groups[0])
        began = time.monotonic()
        self._alone(groups[-1])
        affordable = (self._learns_until - began) / max(time.monotonic() - began, 1e-3)
        size = max(1, math.ceil(len(found) / max(2.0, affordable)))
        groups = [list(found[i : i + size]) for i in range(0, len(found), size)]
        rated: list[tuple[Unit, float]] = []
        for group in groups:
            error = self._alone(group)
            # Of a group, each is taken for its equal part.
            rated.extend((unit, error / math.sqrt(len(group))) for unit in group)
        return sorted(rated, key=lambda pair: pair[1] ** 2 / (pair[0].cost + 0.002), reverse=True)

    def _fewest(self, order: Sequence[tuple[Unit, float]]) -> _Mix | None:
        """The mix that leaves out the fewest units from the front of `order`."""
        low, high = 0, len(order)  # `low` is known to be too few, `high` leaves nothing quantised
        best = None
        told = self._metric == "relative_error"  # single units tell nothing of other metrics
        guess = self._predicted(order, MARGIN) if told else high // 2
        while low + 1 < high:
            trial = self._try([unit for unit, _ in order[:guess]])
            if self._keeps(trial):
                best, high = trial, guess
            else:
                low = guess
            guess = (low + high) // 2
        return best

    def _predicted(self, order: Sequence[tuple[Unit, float]], margin: float) -> int:
        """How many to leave out by the errors of single units."""
        left = sum(error**2 for _, error in order)
        for count, (_, error) in enumerate(order):
            if left <= (margin * self._limit) ** 2:
                return max(1, count)
            left -= error**2
        return max(1, len(order) - 1)

    def _readmit(self, mix: _Mix) -> None:
        """Quantise dear units again, one by one, where the limit allows it."""
        for unit in sorted(mix.left, key=lambda unit: unit.cost, reverse=True):
            if unit.cost < SMALL_SHARE:
                break
            trial = self._try([other for other in mix.left if other != unit])
            if self._keeps(trial):
                mix = trial

    def _keeps(self, mix: _Mix) -> bool:
        return mix.error <= MARGIN * self._limit

    def _best_seen(self, limit: float) -> _Mix | None:
        """Of the mixes within `limit`, the one that leaves least in FP32."""
        kept = [mix for mix in self._seen.values() if mix.error <= limit]
        return min(kept, key=lambda mix: sum(unit.cost for unit in mix.left), default=None)

    @staticmethod
    def _share(left: frozenset[Unit], found: Sequence[Unit]) -> float:
        return sum(unit.cost for unit in found if unit not in left)
