"""99th percentiles compared over blocks."""

import math
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from workbench.stats import ratios
from workbench.stats.paired import paired_ratio
from workbench.stats.samples import quantile
from workbench.stats.tails import PARTS, Q, Tail, parts, tail_interval, tail_of, tail_ratio

times = st.floats(1e-6, 10)
blocks = st.lists(st.lists(times, min_size=34, max_size=60), min_size=3, max_size=8)


def logs_of(first, second) -> list[float]:
    return [math.log(quantile(a, Q) / quantile(b, Q)) for a, b in zip(first, second, strict=True)]


def ratio_of(first, second):
    return tail_ratio(tail_of(first), tail_of(second), logs_of(first, second), 0.95)


def test_rounds_that_drift_widen_the_interval_of_a_ratio_of_tails() -> None:
    first, second = Tail(2.0, [1.9, 2.1] * (PARTS // 2)), Tail(1.0)
    drifting, mixed = [0.1 * n for n in range(8)], [0.1 * n for n in (3, 6, 1, 7, 0, 4, 5, 2)]
    reach = [
        math.log(tail_ratio(first, second, rounds, 0.95).high / 2.0) for rounds in (drifting, mixed)
    ]
    # By hand: the correlation of neighbours is 0.625, and an eighth for its bias.
    assert reach[0] == pytest.approx(reach[1] * math.sqrt(1.75 / 0.25))


@settings(max_examples=30)
@given(blocks)
def test_it_is_the_percentile_of_all_samples_and_of_parts_of_the_rounds(found) -> None:
    kept = [range(len(found)), *parts(len(found))]
    expected = [quantile(list(chain.from_iterable(found[i] for i in each)), Q) for each in kept]
    tail = tail_of(found)
    assert [tail.whole, *tail.parts] == pytest.approx(expected)


@pytest.mark.parametrize("n", [3, 4, 9])
def test_parts_differ_and_are_the_same_each_time(n: int) -> None:
    found = parts(n)
    parts.cache_clear()
    assert parts(n) == found
    assert {len(part) for part in found} == {n - math.ceil(n / 4)}
    assert len(set(found)) >= 3


def test_too_few_samples_or_rounds_have_no_percentile() -> None:
    assert tail_of([[1.0] * 33] * 3) is None
    assert tail_of([[1.0] * 500] * 2) is None
    assert tail_of([[1.0] * 20] * 5) is not None
    assert tail_interval([[1.0] * 33] * 3) is None


@settings(max_examples=30)
@given(blocks)
def test_swapped_candidates_have_the_inverse_ratio(found) -> None:
    there, back = ratio_of(found, found[::-1]), ratio_of(found[::-1], found).inverse()
    assert there.value == pytest.approx(back.value)
    assert there.low <= there.value <= there.high
    assert math.log(there.low) == pytest.approx(math.log(back.low), rel=1e-6, abs=1e-8)


def test_the_interval_of_one_percentile_has_the_stated_coverage() -> None:
    rng, hits = np.random.default_rng(1), 0
    truth = -math.log(0.01)  # the 99th percentile of an exponential distribution
    for _ in range(400):
        low, high = tail_interval(rng.exponential(size=(16, 100)).tolist())
        hits += low <= truth <= high
    assert 0.92 <= hits / 400 <= 0.98


def stalling(rng, step_s: float, rounds: int):
    """Blocks of 100 steps, a third of which are hit by stalls of 4 ms."""
    hit = rng.random((rounds, 100)) < np.where(rng.random((rounds, 1)) < 0.3, 0.08, 0.01)
    steps = step_s * np.exp(0.05 * rng.standard_t(3, (rounds, 100)))
    return (steps + hit * 4e-3 * rng.uniform(0.5, 1.5, (rounds, 100))).tolist()


def test_stalls_in_some_blocks_leave_a_narrower_interval_than_blocks_on_their_own() -> None:
    rng, hits, widths = np.random.default_rng(3), 0, []
    for _ in range(200):
        first, second = stalling(rng, 3e-4, 20), stalling(rng, 3e-4, 20)
        ratio = ratio_of(first, second)
        hits += ratio.low <= 1 <= ratio.high
        alone = paired_ratio(*([quantile(b, Q) for b in each] for each in (first, second)))
        widths.append(math.log(ratio.high / ratio.low) / math.log(alone.high / alone.low))
    assert hits / 200 >= 0.93
    assert np.median(widths) <= 0.6


def test_few_rounds_know_that_they_may_have_missed_stalls() -> None:
    rng, hits = np.random.default_rng(2), 0
    for _ in range(300):
        hit = rng.random((2, 4, 34)) < 0.012
        stalls = 4e-3 * rng.uniform(0.3, 1.5, (2, 4, 34))
        first, second = (1e-3 * np.exp(0.05 * rng.normal(size=(2, 4, 34))) + hit * stalls).tolist()
        ratio = ratio_of(first, second)
        hits += ratio.low <= 1 <= ratio.high
    assert hits / 300 >= 0.95


def rounds_of(samples) -> ratios.Rounds:
    found = ratios.Rounds({i: quantile(block, Q) for i, block in enumerate(samples)})
    found.blocks = dict(enumerate(samples))
    return found


def test_a_race_compares_the_samples_of_common_rounds() -> None:
    rng = np.random.default_rng(4)
    first, second = (rng.lognormal(size=(8, 100)).tolist() for _ in range(2))
    found = ratios.ratio_between(rounds_of(first), rounds_of(second[:5]))
    assert found.pairs == 5
    everything = [list(chain.from_iterable(each[:5])) for each in (first, second)]
    assert found.value == pytest.approx(quantile(everything[0], Q) / quantile(everything[1], Q))
    again = ratios.ratio_between(rounds_of(first), rounds_of(second))
    assert again.pairs == 8


def test_below_a_hundred_samples_the_blocks_are_compared() -> None:
    first, second = [[2.0] * 20] * 4, [[1.0] * 200] * 4
    found = ratios.ratio_between(rounds_of(first), rounds_of(second))
    assert (found.value, found.pairs) == (pytest.approx(2.0), 4)
