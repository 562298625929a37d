"""The statistics promise what their docstrings say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.measure import statistics as stats

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


@pytest.mark.parametrize("n", [6, 7, 10, 25, 60, 400])
def test_the_median_interval_covers_with_exact_binomial_probability(n: int) -> None:
    low, high = stats.median_interval([float(i) for i in range(1, n + 1)])
    k = int(low)
    assert high == n + 1 - k
    within = 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n
    assert within >= 0.95
    narrower = 1 - 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    assert narrower < 0.95  # the next narrower pair of order statistics would not do


def test_below_six_samples_there_is_no_interval() -> None:
    assert stats.median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None


# Reference values: scipy.stats.t.ppf of scipy 1.16, computed once.
T_QUANTILES = [
    (0.975, 1, 12.706204736174694),
    (0.975, 2, 4.302652729749462),
    (0.975, 5, 2.5705818356363146),
    (0.995, 10, 3.16927267261695),
    (0.9995, 2, 31.599054576443622),
    (0.99999, 3, 47.92772772900888),
    (0.975, 120, 1.979930405082422),
    (0.5, 7, 0.0),
]


@pytest.mark.parametrize(("p", "df", "expected"), T_QUANTILES)
def test_student_t_quantiles(p: float, df: int, expected: float) -> None:
    assert stats.student_t_quantile(p, df) == pytest.approx(expected, rel=1e-6, abs=1e-9)


pairs = st.lists(st.tuples(times, times), min_size=3, max_size=30)


@given(pairs, st.floats(1e-3, 1e3))
def test_the_paired_ratio_does_not_know_the_unit(values, factor: float) -> None:
    first, second = zip(*values, strict=True)
    plain = stats.paired_ratio(first, second)
    scaled = stats.paired_ratio([a * factor for a in first], [b * factor for b in second])
    assert scaled.value == pytest.approx(plain.value, rel=1e-6)
    assert math.log(scaled.low) == pytest.approx(math.log(plain.low), abs=1e-5)


@given(pairs)
def test_the_paired_ratio_turned_round_is_its_inverse(values) -> None:
    first, second = zip(*values, strict=True)
    there, back = stats.paired_ratio(first, second), stats.paired_ratio(second, first)
    assert back.value == pytest.approx(1 / there.value, rel=1e-6)
    assert there.low <= there.value <= there.high


def test_common_drift_leaves_the_paired_ratio_alone() -> None:
    drift = np.linspace(1, 3, 12)
    ratio = stats.paired_ratio((2 * drift).tolist(), drift.tolist())
    assert ratio.value == pytest.approx(2.0)
    assert ratio.high - ratio.low < 1e-6


def test_one_burst_does_not_decide() -> None:
    ratio = stats.paired_ratio([2.0] * 9 + [40.0], [1.0, 1.01, 0.99, 1.0, 1.02] * 2)
    assert ratio.value == pytest.approx(2.0, rel=0.02)
    assert ratio.high < 2.1


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_time_is_refused_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match="sample 1"):
        stats.paired_ratio([1.0, bad, 1.0], [1.0, 1.0, 1.0])


def test_pairs_must_be_pairs() -> None:
    with pytest.raises(ValueError, match="pairs"):
        stats.paired_ratio([1.0, 2.0, 3.0], [1.0])
    assert stats.paired_ratio([1.0, 2.0], [1.0, 2.0]) is None


def common_drift(rng, n):
    return np.exp(np.cumsum(rng.normal(0, 0.05, n)))[:, None] * np.exp(rng.normal(0, 0.02, (n, 2)))


def bursts(rng, n):
    hit = rng.random((n, 2)) < 0.1
    return np.exp(rng.normal(0, 0.02, (n, 2))) * np.where(hit, 1 + rng.exponential(0.5, (n, 2)), 1)


def bimodal(rng, n):
    return np.exp(rng.normal(0, 0.01, (n, 2))) * np.where(rng.random((n, 2)) < 0.3, 1.06, 1.0)


@pytest.mark.parametrize("noise", [common_drift, bursts, bimodal], ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [8, 14])
def test_the_stated_95_percent_hold_on_noise_with_a_known_ratio(noise, n: int) -> None:
    rng = np.random.default_rng(2026)
    trials, hits = 2000, 0
    for _ in range(trials):
        times = noise(rng, n)
        ratio = stats.paired_ratio((1.3 * times[:, 0]).tolist(), times[:, 1].tolist())
        hits += ratio.low <= 1.3 <= ratio.high
    assert 0.92 <= hits / trials <= 0.985, hits / trials
