"""The statistics of one candidate promise what their docstrings say."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from workbench.stats import samples as stats

times = st.floats(1e-9, 1e3)
samples = st.lists(times, min_size=1, max_size=60)


@given(samples, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_lie_within_the_samples_and_do_not_cross(values, p, q) -> None:
    low, high = sorted((p, q))
    assert min(values) <= stats.quantile(values, low) <= stats.quantile(values, high) <= max(values)


def test_quantiles_agree_with_numpy() -> None:
    values = np.random.default_rng(1).lognormal(size=101).tolist()
    for q in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        assert stats.quantile(values, q) == pytest.approx(float(np.quantile(values, q)))


@pytest.mark.parametrize("n", [*range(6, 61), 400, 5000])
def test_the_median_interval_covers_with_exact_binomial_probability(n: int) -> None:
    low, high = stats.median_interval([float(i) for i in range(1, n + 1)])
    k = int(low)
    assert high == n + 1 - k
    missed = 2 * sum(math.comb(n, i) for i in range(k))  # in 2**n, exact whole numbers
    assert missed * 20 <= 2**n
    missed_by_narrower = missed + 2 * math.comb(n, k)
    assert missed_by_narrower * 20 > 2**n  # the next narrower pair of order statistics


@given(samples)
def test_the_median_interval_holds_the_median_and_ends_on_samples(values) -> None:
    interval = stats.median_interval(values)
    assert (interval is None) == (len(values) < 6)
    if interval is not None:
        assert interval[0] <= stats.median(values) <= interval[1]
        assert set(interval) <= set(values)


@given(samples)
def test_the_median_interval_is_independent_of_the_order_of_samples(values) -> None:
    assert stats.median_interval(values) == stats.median_interval(values[::-1])


def test_five_samples_have_no_interval() -> None:
    # The widest pair of n covers the median with 1 - 2 / 2**n: 0.969 of six, 0.938 of five.
    values = [float(i) for i in range(6)]
    assert stats.median_interval(values) == (0.0, 5.0)
    assert stats.median_interval(values[:5]) is None


def test_no_samples_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no samples"):
        stats.quantile([], 0.5)


def test_the_relative_half_width_is_half_the_interval_over_its_centre() -> None:
    assert stats.relative_half_width(2.0, (1.9, 2.2)) == pytest.approx(0.075)
    assert stats.relative_half_width(2.0, None) is None
    assert stats.relative_half_width(0.0, (0.0, 1.0)) is None


@given(st.lists(times, min_size=2, max_size=40), st.floats(1e-3, 1e3))
def test_autocorrelation_is_a_share_independent_of_the_unit(values, factor: float) -> None:
    found = stats.autocorrelation(values)
    assert 0 <= found <= stats.MOST_AUTOCORRELATION
    scaled = stats.autocorrelation([value * factor for value in values])
    assert scaled == pytest.approx(found, abs=1e-4)


def test_autocorrelation_of_runs_and_of_alternation() -> None:
    assert stats.autocorrelation([1.0] * 10 + [2.0] * 10) > 0.8
    assert stats.autocorrelation([1.0, 2.0] * 10) == 0
    assert stats.autocorrelation([3.0] * 8) == 0
    # Worked by hand: 8.75 / 17.5, and a sixth for the bias of six values.
    assert stats.autocorrelation([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 3)


def test_outliers_are_named_and_few_values_have_none() -> None:
    # By hand: median 1.00, median distance 0.01, so those beyond 3.5 * 1.4826 * 0.01 = 0.052.
    values = [1.0, 1.01, 0.99, 1.0, 1.02, 1.06, 0.98, 1.05, 0.99]
    assert stats.outliers(values) == [5]
    assert stats.outliers([1.0, 1.0, 1.0, 9.0]) == []
    assert stats.outliers([1.0] * 8) == []
    assert stats.outliers([1.0] * 19 + [2.0]) == [19]  # more than half equal: mean distance


@given(st.lists(times, min_size=6, max_size=40), st.floats(1e-3, 1e3))
def test_outliers_are_never_the_bulk(values, factor: float) -> None:
    assert len(stats.outliers(values)) <= len(values) / 2


def test_a_trend_is_found_and_noise_has_none() -> None:
    assert stats.trend([1 + 0.01 * i for i in range(9)]) == pytest.approx(1.07 / 1.01 - 1)
    assert stats.trend([2 - 0.01 * i for i in range(9)]) < -0.02
    assert stats.trend([1.0, 1.1] * 8) == 0
    assert stats.trend([1.0, 2.0, 3.0, 4.0]) == 0  # too few to be one
    rng = np.random.default_rng(3)
    false = sum(stats.trend(rng.normal(1, 0.1, 12).tolist()) != 0 for _ in range(2000))
    assert false / 2000 <= 0.015


def test_samples_of_one_block_count_for_less_than_independent_ones() -> None:
    """Blocks of 40 samples, each with a level of its own: the number of blocks is what counts."""
    rng = np.random.default_rng(11)
    trusting = honest = 0
    for _ in range(1000):
        levels = rng.normal(1, 0.02, (10, 1))
        blocks = (levels + rng.normal(0, 0.005, (10, 40))).tolist()
        low, high = stats.median_interval([x for block in blocks for x in block])
        trusting += low <= 1 <= high
        low, high = stats.blocked_interval(blocks)
        honest += low <= 1 <= high
    assert trusting / 1000 < 0.5
    assert honest / 1000 >= 0.93


@given(st.lists(st.lists(times, min_size=1, max_size=9), min_size=1, max_size=12))
def test_the_blocked_interval_holds_the_plain_one(blocks) -> None:
    samples = [sample for block in blocks for sample in block]
    plain, found = stats.median_interval(samples), stats.blocked_interval(blocks)
    assert (plain is None) == (found is None)
    if plain is not None:
        assert found[0] <= plain[0] <= stats.median(samples) <= plain[1] <= found[1]


@pytest.mark.parametrize("n", [stats.MANY, stats.MANY + 1])
def test_many_values_have_the_median_of_their_order(n: int) -> None:
    values = [((i * 7919) % 10_007) / 3 for i in range(n)]
    ordered = sorted(values)
    low, high = ordered[(n - 1) // 2], ordered[n // 2]
    assert stats.median(values) == stats.median(stats.ascending(values)) == low + (high - low) * 0.5
