"""Paired ratios and Student's t promise what their docstrings say."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from workbench.stats.paired import Ratio, paired_ratio, student_t_cdf, student_t_quantile

times = st.floats(1e-9, 1e3)

# Reference values: scipy.stats.t.ppf of scipy 1.16, computed once.
T_QUANTILES = [
    (0.975, 1, 12.706204736174694),
    (0.975, 2, 4.302652729749462),
    (0.975, 5, 2.5705818356363146),
    (0.995, 10, 3.16927267261695),
    (0.9995, 2, 31.599054576443622),
    (0.99999, 3, 47.92772772900888),
    (0.975, 120, 1.979930405082422),
    (0.975, 1000, 1.962339080826),  # the finite sums; from here on a series stands in for them
    (0.9999, 1000, 3.732851604574),
    (0.5, 7, 0.0),
]

# (upper tail, degrees of freedom, quantile): scipy.stats.t.isf of scipy 1.17.1, computed once.
# The smallest tails are those of a late look among many pairs.
T_TAILS = [
    (0.0025, 1, 127.321336469),
    (0.0025, 23, 3.10399696314),
    (1e-5, 1, 31830.9886079),
    (1e-5, 5, 15.546854535),
    (1e-5, 12, 6.76516924181),
    (1e-7, 1, 3183098.86184),
    (1e-7, 11, 11.3816054885),
    (1e-7, 23, 7.29743623631),
    (1e-9, 3, 1033.1096745),
    (1e-9, 12, 15.8948133623),
]


@pytest.mark.parametrize(
    ("p", "df", "expected"), [*T_QUANTILES, *((1 - tail, df, t) for tail, df, t in T_TAILS)]
)
def test_student_t_quantiles(p: float, df: int, expected: float) -> None:
    assert student_t_quantile(p, df) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("df", [1, 2, 5, 20])
def test_beyond_the_digits_of_a_float_the_quantile_still_grows(df: int) -> None:
    found = [student_t_quantile(p, df) for p in (0.9, 1 - 1e-9, 1 - 1e-15, 1 - 2**-53)]
    assert found == sorted(found)
    assert all(map(math.isfinite, found))


@given(st.floats(-1e6, 1e6), st.integers(1, 60))
def test_students_distribution_is_symmetric_and_undone_by_its_quantile(t: float, df: int) -> None:
    p = student_t_cdf(t, df)
    assert p + student_t_cdf(-t, df) == pytest.approx(1)
    if 0.5 <= p < 1 - 1e-9:
        assert student_t_quantile(p, df) == pytest.approx(t, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("p", [0.49, 1.0, 1.1, math.nan])
def test_quantiles_outside_the_upper_half_are_refused(p: float) -> None:
    with pytest.raises(ValueError, match=r"\[0\.5, 1\)"):
        student_t_quantile(p, 3)


pairs = st.lists(st.tuples(times, times), min_size=3, max_size=30)


@given(pairs, st.floats(1e-3, 1e3))
def test_the_paired_ratio_is_independent_of_the_unit(values, factor: float) -> None:
    first, second = zip(*values, strict=True)
    plain = paired_ratio(first, second)
    scaled = paired_ratio([a * factor for a in first], [b * factor for b in second])
    assert scaled.value == pytest.approx(plain.value, rel=1e-6)
    assert math.log(scaled.low) == pytest.approx(math.log(plain.low), abs=1e-5)


@given(pairs)
def test_the_paired_ratio_of_swapped_candidates_is_the_inverse(values) -> None:
    first, second = zip(*values, strict=True)
    there, back = paired_ratio(first, second), paired_ratio(second, first)
    assert back.value == pytest.approx(1 / there.value, rel=1e-6)
    assert there.low <= there.value <= there.high
    turned = there.inverse()
    assert (back.low, back.high) == pytest.approx((turned.low, turned.high), rel=1e-6)


@given(pairs)
def test_more_confidence_is_a_wider_interval_around_the_same_ratio(values) -> None:
    first, second = zip(*values, strict=True)
    plain, sure = (paired_ratio(first, second, c) for c in (0.95, 0.999))
    assert sure.value == plain.value
    assert sure.low <= plain.low
    assert plain.high <= sure.high


def test_below_five_rounds_it_is_the_ordinary_t_interval() -> None:
    # Worked by hand: logs of 2, 4, 8 have mean log 4 and deviation log 2; t(0.975, 2) = 4.3027.
    ratio = paired_ratio([2.0, 4.0, 8.0], [1.0, 1.0, 1.0])
    reach = 4.302652729749462 * math.log(2) / math.sqrt(3)
    assert ratio.value == pytest.approx(4.0)
    assert math.log(ratio.high / 4) == pytest.approx(reach)
    assert math.log(4 / ratio.low) == pytest.approx(reach)


def test_from_seven_rounds_a_fifth_is_trimmed_at_each_end() -> None:
    # Worked by hand: of the logs 0, 1, 2, 3, 4, 5, 13 the middle five remain, mean 3; winsorised
    # to 1, 1, 2, 3, 4, 5, 5 their variance is 3, over (5/7)**2 * 7 gives the squared error.  In
    # this order neighbours differ, so nothing is widened.
    logs = [13.0, 0.0, 5.0, 1.0, 4.0, 2.0, 3.0]
    ratio = paired_ratio([math.exp(x) for x in logs], [1.0] * 7)
    error = math.sqrt(3) / (5 / 7 * math.sqrt(7))
    assert math.log(ratio.value) == pytest.approx(3.0)
    assert math.log(ratio.high) - 3 == pytest.approx(2.7764451051977987 * error)


def test_common_drift_does_not_change_the_paired_ratio() -> None:
    drift = np.linspace(1, 3, 12)
    ratio = paired_ratio((2 * drift).tolist(), drift.tolist())
    assert ratio.value == pytest.approx(2.0)
    assert ratio.high - ratio.low < 1e-6


def test_one_burst_does_not_decide() -> None:
    ratio = paired_ratio([2.0] * 9 + [40.0], [1.0, 1.01, 0.99, 1.0, 1.02] * 2)
    assert ratio.value == pytest.approx(2.0, rel=0.02)
    assert ratio.high < 2.1


def test_pairs_must_be_pairs() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio([1.0, 2.0, 3.0], [1.0])
    assert paired_ratio([1.0, 2.0], [1.0, 2.0]) is None


# Noise that multiplies the times of two candidates over `n` rounds, one column each.


def common_drift(rng, n):
    return np.exp(np.cumsum(rng.normal(0, 0.05, n)))[:, None] * np.exp(rng.normal(0, 0.02, (n, 2)))


def bursts(rng, n):
    hit = rng.random((n, 2)) < 0.1
    return np.exp(rng.normal(0, 0.02, (n, 2))) * np.where(hit, 1 + rng.exponential(0.5, (n, 2)), 1)


def bimodal(rng, n):
    return np.exp(rng.normal(0, 0.01, (n, 2))) * np.where(rng.random((n, 2)) < 0.3, 1.06, 1.0)


def skewed(rng, n):
    return 1 + rng.gamma(1, 0.05, (n, 2))


def heavy_tailed(rng, n):
    return np.exp(0.02 * rng.standard_t(3, (n, 2)))


def all_at_once(rng, n):
    return common_drift(rng, n) * bursts(rng, n) * bimodal(rng, n)


def coverage(noise, n: int, trials: int, seed: int) -> float:
    """The share of intervals that hold the true ratio of 1.3."""
    rng, hits = np.random.default_rng(seed), 0
    for _ in range(trials):
        times = noise(rng, n)
        ratio = paired_ratio((1.3 * times[:, 0]).tolist(), times[:, 1].tolist())
        hits += ratio.low <= 1.3 <= ratio.high
    return hits / trials


NOISES = [common_drift, bursts, bimodal, skewed, heavy_tailed, all_at_once]


@pytest.mark.parametrize("noise", NOISES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [8, 12, 20])
def test_the_stated_95_percent_hold_on_noise_with_a_known_ratio(noise, n: int) -> None:
    assert 0.92 <= coverage(noise, n, trials=4000, seed=2026) <= 0.98


def own_drift(rng, n):
    """Each candidate follows a course of its own: neighbouring rounds correlate by 0.5."""
    steps = rng.normal(0, 1, (n, 2))
    for i in range(1, n):
        steps[i] = 0.5 * steps[i - 1] + math.sqrt(0.75) * steps[i]
    return np.exp(0.02 * steps)


@pytest.mark.parametrize(("n", "least"), [(8, 0.83), (20, 0.86), (40, 0.88)])
def test_a_drift_of_its_own_widens_the_interval(n: int, least: float) -> None:
    """Known limit: so few rounds cannot tell a slow drift from a ratio; unwidened it is 0.77."""
    assert least <= coverage(own_drift, n, trials=2000, seed=7) <= 0.98


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.97, 1.04, "same"),
        (1.01, 1.04, "same"),  # distinguished, but not worth a thought
        (0.5, 0.9, "faster"),
        (1.01, 1.2, "slower"),
        (0.9, 1.2, "ambiguous"),
        (0.5, 1.0, "ambiguous"),
    ],
)
def test_the_word_for_a_ratio(low: float, high: float, word: str) -> None:
    ratio = Ratio(math.sqrt(low * high), low, high, 8)
    assert ratio.word(0.05) == word
    turned = {"faster": "slower", "slower": "faster"}.get(word, word)
    assert ratio.inverse().word(0.05) == turned


@given(st.floats(0.01, 100), st.floats(1, 1.5), st.floats(1, 1.5), st.floats(0, 0.1))
def test_a_widened_ratio_holds_the_one_it_came_from(value, down, up, log_sd) -> None:
    ratio = Ratio(value, value / down, value * up, 8)
    wide = ratio.widened(log_sd)
    assert wide.low <= ratio.low * (1 + 1e-9) and wide.high >= ratio.high * (1 - 1e-9)
    assert (wide.value, wide.pairs) == (value, 8)
    inverse = ratio.inverse().widened(log_sd)
    assert inverse.low == pytest.approx(1 / wide.high)


def test_an_error_from_run_to_run_is_covered_only_by_the_widened_interval() -> None:
    rng = np.random.default_rng(11)
    held = {False: 0, True: 0}
    for _ in range(1000):
        run = float(np.exp(rng.normal(0, 0.01)))
        times = np.exp(rng.normal(0, 0.01, (2, 12)))
        ratio = paired_ratio(list(run * times[0]), list(times[1]))
        for wide in held:
            stated = ratio.widened(0.01) if wide else ratio
            held[wide] += stated.low <= 1 <= stated.high
    assert held[False] < 700
    assert 920 <= held[True] <= 980
