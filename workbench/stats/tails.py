"""The ratio of two 99th percentiles, measured in the same rounds.

A block has one or two samples beyond its 99th percentile, and a machine stalls in some blocks only:
percentiles of single blocks are little more than their largest samples.  So the percentile is that
of all samples of the common rounds, and its error comes from leaving out a quarter of these rounds
at a time.  Such a jackknife holds for quantiles, where one that leaves out single values fails
(Shao and Wu 1989).
"""

import math
import random
from collections.abc import Sequence
from functools import cache

from .samples import MIN_PAIRS, MIN_SAMPLES_FOR_P99, Ratio, by_t, drift_factor, quantile

Q = 0.99
PARTS = 40


@cache
def parts(rounds: int) -> list[frozenset[int]]:
    """Random three quarters of the rounds, the same whenever there are so many."""
    draw, numbers = random.Random(rounds), range(rounds)  # noqa: S311
    whole, left_out = frozenset(numbers), math.ceil(rounds / 4)
    return [whole.difference(draw.sample(numbers, left_out)) for _ in range(PARTS)]


def percentiles(blocks: Sequence[Sequence[float]]) -> list[float] | None:
    """The 99th percentile of all blocks, then that of each part; None below 100 samples."""
    lengths = [len(block) for block in blocks]
    total = sum(lengths)
    if len(blocks) < MIN_PAIRS or total < MIN_SAMPLES_FOR_P99:
        return None
    most = math.ceil((1 - Q) * total) + 2  # samples of one block that can matter
    top = sorted(
        ((x, i) for i, block in enumerate(blocks) for x in sorted(block)[-most:]), reverse=True
    )

    def of(kept: frozenset[int]) -> float:
        position = (1 - Q) * (sum(map(lengths.__getitem__, kept)) - 1)  # from the largest
        largest = (x for x, i in top if i in kept)
        above = next(x for rank, x in enumerate(largest) if rank == math.floor(position))
        return above + (next(largest) - above) * (position % 1)

    return [of(kept) for kept in (frozenset(range(len(blocks))), *parts(len(blocks)))]


def tail_ratio(
    first: Sequence[float], second: Sequence[float], rounds: Sequence[float], confidence: float
) -> Ratio:
    """The ratio of two candidates from the `percentiles` of their common rounds.

    `rounds` are the logarithms of the ratios of single rounds, which show whether they drift.
    """
    whole, *others = (math.log(a) - math.log(b) for a, b in zip(first, second, strict=True))
    n, left_out = len(rounds), math.ceil(len(rounds) / 4)
    squares = math.fsum((other - whole) ** 2 for other in others) / len(others)
    error = math.sqrt(squares * (n - left_out) / left_out) * drift_factor(rounds)
    return by_t(whole, error, n - 1, confidence, n)


def tail_interval(blocks: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """The 95 % interval of the 99th percentile of all blocks; None below 100 samples."""
    found = percentiles(blocks)
    if found is None:
        return None
    rounds = [math.log(quantile(block, Q)) for block in blocks]
    return tail_ratio(found, [1.0] * len(found), rounds, 0.95).interval
