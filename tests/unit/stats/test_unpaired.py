"""Ratios of two runs: false alarms are as rare as promised, and a real change is found."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from workbench.stats.paired import AMBIGUOUS, SAME, SLOWER, student_t_quantile
from workbench.stats.unpaired import (
    BETWEEN_RUNS,
    CONFIDENCE,
    SAME_WITHIN,
    RoundSpread,
    round_spread,
    unpaired_ratio,
)

PROMISED = 0.98  # share of cases of two runs of one machine that are the same or ambiguous
times = st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=12)


def run(rng, cases: int, rounds: int, spread: float, drift: float) -> list[list[float]]:
    """Rounds of a run whose cases are each off by a drift that the run cannot see."""
    return [
        [math.exp(off + rng.normal(0, spread)) for _ in range(rounds)]
        for off in rng.normal(0, drift, cases)
    ]


def words(rng, rounds: int, spread: float, *, slowdown: float = 1.0, pairs: int = 120) -> list[str]:
    """The words of all cases of pairs of runs, between which the machine drifts as much as between
    rounds, and at least as from process to process."""
    found = []
    for _ in range(pairs):
        drift = max(spread, BETWEEN_RUNS)
        before, after = (run(rng, 12, rounds, spread, drift) for _ in "AB")
        spreads = round_spread(before), round_spread(after)
        assert spreads[0] and spreads[1]
        for a, b in zip(before, after, strict=True):
            slower = [slowdown * value for value in b]
            ratio = unpaired_ratio((slower, spreads[1]), (a, spreads[0]), CONFIDENCE)
            found.append(ratio.word(SAME_WITHIN))
    return found


@pytest.mark.parametrize("rounds", [3, 8, 20])
@pytest.mark.parametrize("spread", [0.002, 0.015, 0.05, 0.2])
def test_two_runs_of_one_machine_are_the_same_or_ambiguous(rounds: int, spread: float) -> None:
    found = words(np.random.default_rng(5), rounds, spread)
    assert sum(word in (SAME, AMBIGUOUS) for word in found) / len(found) >= PROMISED


@pytest.mark.parametrize("rounds", [3, 8, 20])
@pytest.mark.parametrize("spread", [0.002, 0.015])
def test_a_slowdown_of_20_percent_is_found(rounds: int, spread: float) -> None:
    found = words(np.random.default_rng(6), rounds, spread, slowdown=1.2)
    assert found.count(SLOWER) / len(found) >= 0.95


def test_equal_runs_of_a_calm_machine_are_the_same() -> None:
    calm = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998]
    spread = round_spread([calm])
    ratio = unpaired_ratio((calm, spread), (calm, spread), CONFIDENCE)
    assert ratio.word(SAME_WITHIN) == SAME
    assert ratio.high > 1.03  # nobody can know less about another run


def test_the_spread_is_pooled_over_cases_within_each() -> None:
    one, two = [1.0, math.e**0.1], [5.0, 5.0 * math.e**0.2, 5.0 * math.e**0.4]
    found = round_spread([one, two, [7.0]])
    assert found == pytest.approx(((0.005 + 0.08) / 3, 3))
    assert round_spread([[1.0], [2.0]]) is None
    assert round_spread([]) is None


def test_a_noisy_case_counts_with_its_own_spread() -> None:
    calm: RoundSpread = (1e-6, 30)
    steady, noisy = [1.0, 1.01, 0.99], [1.0, 1.5, 0.7]
    alike = unpaired_ratio((steady, calm), (steady, calm))
    wide = unpaired_ratio((noisy, calm), (steady, calm))
    assert wide.high / wide.low > 2 * alike.high / alike.low


def test_a_steady_run_does_not_vouch_for_a_noisy_one() -> None:
    """Three rounds of one case have two degrees of freedom, whatever the other run measured."""
    rng, found = np.random.default_rng(7), []
    for _ in range(600):
        steady, noisy = run(rng, 12, 20, 0.005, BETWEEN_RUNS), run(rng, 1, 3, 0.15, 0.15)
        sides = [(cases[0], round_spread(cases)) for cases in (noisy, steady)]
        found.append(unpaired_ratio(*sides, CONFIDENCE).word(SAME_WITHIN))
    assert sum(word in (SAME, AMBIGUOUS) for word in found) / len(found) >= 0.97


def test_a_much_noisier_case_has_only_its_own_degrees_of_freedom() -> None:
    calm, noisy = (1e-6, 1000), [1.0, 1.5, 0.7]
    found = unpaired_ratio((noisy, calm), ([1.0] * 20, calm))
    own = round_spread([noisy])
    error = math.sqrt(own[0] * (1 + math.pi / 6) + BETWEEN_RUNS**2 * (1 + math.pi / 40))
    assert math.log(found.high) == pytest.approx(student_t_quantile(0.975, 2) * error)


@given(times, times, st.floats(1e-3, 1e3))
def test_the_ratio_is_independent_of_the_unit_and_inverted_by_a_swap(a, b, factor: float) -> None:
    first, second = (a, round_spread([a])), (b, round_spread([b]))
    ratio, swapped = unpaired_ratio(first, second), unpaired_ratio(second, first).inverse()
    scaled = unpaired_ratio(
        ([factor * x for x in a], first[1]), ([factor * x for x in b], second[1])
    )
    for other in (swapped, scaled):
        assert other.interval == pytest.approx(ratio.interval, rel=1e-6)
    assert 0 < ratio.low < ratio.value < ratio.high < math.inf


@given(times, times)
def test_more_confidence_is_a_wider_interval(a, b) -> None:
    pair = (a, round_spread([a])), (b, round_spread([b]))
    at_95, at_99 = unpaired_ratio(*pair), unpaired_ratio(*pair, CONFIDENCE)
    assert at_99.low <= at_95.low < at_95.high <= at_99.high
