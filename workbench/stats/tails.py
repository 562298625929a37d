"""The ratio of two 99th percentiles, measured in the same rounds.

A block has one or two samples beyond its 99th percentile, and a machine stalls in only some blocks,
so the percentile of a block is little more than its largest sample.  The percentile is therefore
that of all samples of the common rounds, and its error comes from leaving out a quarter of these
rounds at a time.  Such a jackknife is valid for quantiles, unlike one that leaves out single values
(Shao and Wu 1989).  It is blind to stalls that these rounds happened to miss, so the error is at
least that of order statistics: the number of samples beyond the percentile is binomial.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from .paired import Ratio, by_t
from .samples import MIN_PAIRS, MIN_SAMPLES_FOR_P99, Interval, drift_factor, quantile

Q = 0.99
PARTS = 40  # a standard deviation from so many is known to 11 %


@dataclass(frozen=True)
class Tail:
    """The 99th percentile of all blocks, and those of each part; `spread` is the standard error of
    the logarithm of the first by order statistics."""

    whole: float
    parts: Sequence[float] = (1.0,) * PARTS
    spread: float = 0.0


@cache
def parts(rounds: int) -> list[frozenset[int]]:
    """Random subsets of three quarters of the rounds, always the same for this number of rounds."""
    draw, numbers = random.Random(rounds), range(rounds)  # noqa: S311
    whole, left_out = frozenset(numbers), math.ceil(rounds / 4)
    return [whole.difference(draw.sample(numbers, left_out)) for _ in range(PARTS)]


def tail_of(blocks: Sequence[Sequence[float]]) -> Tail | None:
    """None below 100 samples or three blocks."""
    lengths = [len(block) for block in blocks]
    total = sum(lengths)
    if len(blocks) < MIN_PAIRS or total < MIN_SAMPLES_FOR_P99:
        return None
    beyond, deviation = (1 - Q) * (total - 1), math.sqrt(Q * (1 - Q) * total)  # samples
    most = math.ceil(beyond + deviation) + 2  # samples of one block that can matter
    top = sorted(
        ((x, i) for i, block in enumerate(blocks) for x in sorted(block)[-most:]), reverse=True
    )

    def at(position: float, kept: frozenset[int]) -> float:
        """The value at this position from the largest, which has 0."""
        largest = (x for x, i in top if i in kept)
        above = next(x for rank, x in enumerate(largest) if rank == math.floor(position))
        return above + (next(largest, above) - above) * (position % 1)

    def of(kept: frozenset[int]) -> float:
        return at((1 - Q) * (sum(map(lengths.__getitem__, kept)) - 1), kept)

    every = frozenset(range(len(blocks)))
    high, low = at(max(0.0, beyond - deviation), every), at(beyond + deviation, every)
    spread = math.log(high / low) / 2
    return Tail(of(every), [of(part) for part in parts(len(blocks))], spread)


def tail_ratio(first: Tail, second: Tail, rounds: Sequence[float], confidence: float) -> Ratio:
    """The ratio of two candidates from their common rounds.

    `rounds` are the logarithms of the ratios of single rounds, which show whether they drift.
    """
    whole = math.log(first.whole) - math.log(second.whole)
    others = (math.log(a) - math.log(b) for a, b in zip(first.parts, second.parts, strict=True))
    n, left_out = len(rounds), math.ceil(len(rounds) / 4)
    squares = math.fsum((other - whole) ** 2 for other in others) / PARTS
    error = math.sqrt(squares * (n - left_out) / left_out) * drift_factor(rounds)
    return by_t(whole, max(error, math.hypot(first.spread, second.spread)), n - 1, confidence, n)


def tail_interval(blocks: Sequence[Sequence[float]]) -> Interval | None:
    """The 95 % interval of the 99th percentile of all blocks; None below 100 samples."""
    found = tail_of(blocks)
    if found is None:
        return None
    rounds = [math.log(quantile(block, Q)) for block in blocks]
    return tail_ratio(found, Tail(1.0), rounds, 0.95).interval
