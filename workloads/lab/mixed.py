"""The search for nodes to leave in FP32, so that a static INT8 variant keeps its error limit.

A unit is a product, or the quantised operators between it and the next.  Each unit is quantised
alone to see its error.  The units with the most error for their time stay in FP32, as many as the
limit demands (by bisection, each step measured).  Expensive ones are tried again one by one.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.libraries import onnx
from workbench.worker.recipe import Recipe

from .._shared.quantisation import PRODUCTS
from .._shared.session import cpu_session
from . import agreement, bounds, parts, products, quantise, samples
from .prepare import PREPARED

MOST_INPUTS = 64  # in one trial
MARGIN = 0.9  # share of the limit to stay within, since other inputs give another error
FEW_S = 0.3  # seconds of running samples in one trial, where possible
SENSITIVITY_SHARE = 0.4  # share of the time for rating the units one by one
LEAST_SHARE = 0.1  # share of the cost in INT8 below which a mix gains nothing
SMALL_SHARE = 0.005  # share of the cost that is not worth a trial


@dataclass(frozen=True)
class Unit:
    names: tuple[str, ...]
    cost: float  # share of the model's time or arithmetic, 0 to 1


def mixed(
    folder: Path, recipe: Recipe, metric: str, limit: float, seconds: float
) -> dict[str, Any]:
    """Write the variant of the static `recipe` with nodes left in FP32 to keep the error `limit`.
    `metric`: "relative_error" or "disagreement".  Returns what `build` does, recipe and `error`."""
    search = _Search(folder, recipe, metric, limit, seconds)
    chosen = search.run(units(search.model, products.kept(folder), recipe))
    built = quantise.build(folder, chosen.recipe)
    return {"recipe": asdict(chosen.recipe), **built, "error": chosen.error}


def units(model: Any, found: Sequence[products.Product], recipe: Recipe) -> list[Unit]:
    """The units of a static variant: each product with what it absorbs, and the nodes between."""
    multiplying = {p.name for p in found if p.type in PRODUCTS and p.weights}
    types = set(quantise.static_types(recipe)) - set(PRODUCTS)
    members: dict[tuple[str, bool], list[str]] = {}  # by product, and whether they come after it
    place: dict[str, int] = {}
    owner: dict[str, str] = {}  # tensor to the last product that it comes from
    for node in model.graph.node:
        before = [owner[name] for name in node.input if name in owner]
        mine = max(before, key=place.__getitem__, default="")
        if node.name in multiplying:
            mine = node.name
            place[mine] = len(place) + 1
            members[mine, False] = [node.name]
        elif node.op_type in types:
            follows = not (mine and node.op_type in quantise.ABSORBED)
            members.setdefault((mine, follows), []).append(node.name)
        place.setdefault(mine, 0)
        owner.update(dict.fromkeys(node.output, mine))
    cost = _costs([p for p in found if not p.inside])
    groups = map(tuple, members.values())
    return [Unit(names, sum(cost.get(name, 0.0) for name in names)) for names in groups]


def _costs(found: Sequence[products.Product]) -> dict[str, float]:
    """The share of each product in the seconds in FP32, else in the arithmetic or the weights."""
    seconds = {product.name: product.seconds for product in found}
    cost = seconds if any(seconds.values()) else products.work(found)
    whole = sum(cost.values()) or 1.0
    return {name: each / whole for name, each in cost.items()}


@dataclass(frozen=True)
class _Mix:
    recipe: Recipe
    error: float
    left: frozenset[Unit]  # the units in FP32


class _Search:
    def __init__(
        self, folder: Path, recipe: Recipe, metric: str, limit: float, seconds: float
    ) -> None:
        self._ends = time.monotonic() + seconds
        self._learns_until = self._ends - (1 - SENSITIVITY_SHARE) * seconds
        self.model = onnx.load(str(folder / PREPARED))
        self._folder, self._recipe, self._metric = folder, recipe, metric
        self._limit, self._is_bounded = limit, (folder / samples.CHECK).exists()
        self._ranges = quantise.ranges(folder, recipe.calibration)
        self.inputs = samples.read(folder / samples.INPUTS)[:MOST_INPUTS]
        self._reference = samples.read(folder / samples.REFERENCE)
        self._few = len(self.inputs)
        self._trial_s = 0.0
        self._seen: dict[frozenset[Unit], _Mix] = {}

    def run(self, found: Sequence[Unit]) -> _Mix:
        """The best mix that the time allows; WorkloadError `no_mix` if none keeps the limit."""
        if len(found) < 2:
            raise self._no_mix("only one part of the model can be quantised")
        with suppress(TimeoutError):
            best = self._fewest(self._order(found))
            if best is not None:
                self._readmit(best)
        best = self._best_seen(MARGIN * self._limit) or self._best_seen(self._limit)
        if best is None:
            nearest = min((mix.error for mix in self._seen.values()), default=math.inf)
            tried = f"the best of {len(self._seen)} has an error of {nearest:.3g}"
            raise self._no_mix(tried if self._seen else "there was no time to try one")
        if sum(unit.cost for unit in found if unit not in best.left) < LEAST_SHARE:
            raise self._no_mix("all but the cheapest products must stay in FP32")
        return best

    def _no_mix(self, found: str) -> WorkloadError:
        text = f"no mix of INT8 and FP32 keeps the error limit of {self._limit:g}: {found}"
        hint = "allow a larger error, or pass real inputs to calibrate with"
        return WorkloadError(text, code="no_mix", hint=hint)

    def _try(self, left: Sequence[Unit]) -> _Mix:
        """Build, run and judge the mix that leaves `left` in FP32."""
        key = frozenset(left)
        if key not in self._seen:
            names = tuple(name for unit in left for name in unit.names)
            recipe = replace(self._recipe, excluded=(*self._recipe.excluded, *names))
            self._seen[key] = _Mix(recipe, self._error(recipe), key)
        return self._seen[key]

    def _alone(self, group: Sequence[Unit]) -> float:
        """The relative error over a few samples with only `group` quantised."""
        return self._error(self._recipe, [name for unit in group for name in unit.names])

    def _error(self, recipe: Recipe, only: Sequence[str] = ()) -> float:
        """The error over all samples, or its upper bound, or what `_alone` says of the nodes
        `only`; infinite with an answer of NaN."""
        count, metric = (self._few, "relative_error") if only else (len(self.inputs), self._metric)
        began = time.monotonic()
        if began + 2 * self._trial_s > self._ends:  # the chosen variant is made once more
            raise TimeoutError
        session = cpu_session(quantise.static(self.model, self._ranges, recipe, only))
        names = agreement.compared(session)
        cut = parts.read(self._folder, names)
        ready = time.monotonic()
        answers = agreement.answers(session, self.inputs[:count])
        ended = time.monotonic()
        references = self._reference[:count]
        self._few = max(1, min(self._few, int(FEW_S * count / max(ended - ready, 1e-9))))
        self._trial_s = max(0.7 * self._trial_s, ended - began)
        try:
            outputs = agreement.compare(names, answers, references, cut)
        except WorkloadError:
            return math.inf
        chance = bounds.CHOOSE if self._is_bounded and not only else None
        bound = bounds.promised(answers, references, metric, self._limit, chance, cut)
        return agreement.summary(outputs, metric) if bound is None else bound

    def _order(self, found: Sequence[Unit]) -> list[Unit]:
        """The units, the most error for its cost first."""
        self._alone(found[:1])
        began = time.monotonic()
        self._alone(found[-1:])
        affordable = (self._learns_until - began) / max(time.monotonic() - began, 1e-3)
        size = max(1, math.ceil(len(found) / max(2.0, affordable)))
        rating: dict[Unit, float] = {}
        for place in range(0, len(found), size):
            group = found[place : place + size]
            # Each unit of a group counts as an equal part of it.
            square = self._alone(group) ** 2 / len(group)
            rating.update({unit: square / (unit.cost + 0.002) for unit in group})
        return sorted(rating, key=rating.__getitem__, reverse=True)

    def _fewest(self, order: Sequence[Unit]) -> _Mix | None:
        """The mix with the fewest units from the front of `order` in FP32."""
        low, high = 0, len(order)  # `low` is known to be too few, `high` leaves nothing quantised
        best = None
        while low + 1 < high:
            guess = (low + high) // 2
            trial = self._try(order[:guess])
            if self._keeps(trial):
                best, high = trial, guess
            else:
                low = guess
        return best

    def _readmit(self, mix: _Mix) -> None:
        """Quantise expensive units again, one by one but not all, where the limit allows it."""
        for unit in sorted(mix.left, key=lambda unit: unit.cost, reverse=True):
            if unit.cost < SMALL_SHARE or len(mix.left) == 1:
                break
            trial = self._try([other for other in mix.left if other != unit])
            if self._keeps(trial):
                mix = trial

    def _keeps(self, mix: _Mix) -> bool:
        return mix.error <= MARGIN * self._limit

    def _best_seen(self, limit: float) -> _Mix | None:
        """The mix within `limit` that leaves the least in FP32."""
        kept = [mix for mix in self._seen.values() if mix.error <= limit]
        return min(kept, key=lambda mix: sum(unit.cost for unit in mix.left), default=None)
