"""A race drops the slower, keeps the ties, and is wrong no more often than it says."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.advisor import race
from workbench.measure.statistics import Ratio


def simulate(rng, true_times: list[float], rounds: int, noise: float = 0.03) -> set[str]:
    """Run a whole race on synthetic blocks; returns the names of those dropped."""
    names = [f"c{i}" for i in range(len(true_times))]
    measured: dict[str, dict[int, float]] = {name: {} for name in names}
    out: set[str] = set()
    for number in range(rounds):
        drift = float(np.exp(rng.normal(0, 0.1)))
        for name, true in zip(names, true_times, strict=True):
            if name not in out:
                measured[name][number] = true * drift * float(np.exp(rng.normal(0, noise)))
        if number >= 2:
            alive = {name: measured[name] for name in names if name not in out}
            pairs = race.pair_count(len(names))
            out |= {b.case for b in race.beaten(alive, look=number - 1, pairs=pairs)}
    return out


def test_the_best_is_dropped_in_at_most_5_percent_of_races_over_all_looks() -> None:
    rng = np.random.default_rng(7)
    races = 400
    # Near ties: the best is 1 % ahead of four others, less than the noise of one block.
    wrong = sum("c0" in simulate(rng, [1.0, 1.01, 1.01, 1.01, 1.01], 12) for _ in range(races))
    assert wrong / races <= 0.05


def test_clear_losers_go_within_a_few_rounds() -> None:
    rng = np.random.default_rng(8)
    dropped = [simulate(rng, [1.0, 2.0, 3.0], 5) for _ in range(100)]
    assert sum(out == {"c1", "c2"} for out in dropped) >= 97


def test_nobody_is_dropped_before_three_rounds() -> None:
    two = {"a": {0: 1.0, 1: 1.0}, "b": {0: 9.0, 1: 9.0}}
    assert race.beaten(two, look=1, pairs=1) == []


def test_errors_over_all_looks_and_pairs_sum_to_alpha() -> None:
    pairs = 10
    spent = sum(pairs * (1 - race.confidence_at(look, pairs)) for look in range(1, 100_000))
    assert spent == pytest.approx(race.ALPHA, rel=1e-4)


def test_beaten_names_the_rival_that_shows_it_best() -> None:
    rounds = {
        name: {r: value * (1 + 0.001 * r) for r in range(6)}
        for name, value in {"fast": 1.0, "middle": 2.0, "slow": 4.0}.items()
    }
    found = {b.case: b for b in race.beaten(rounds, look=4, pairs=3)}
    assert set(found) == {"middle", "slow"}
    assert found["slow"].by == "fast"
    assert found["slow"].ratio.value == pytest.approx(4.0)


def test_ranking_compares_in_common_rounds_not_across_drift() -> None:
    # `early` ran only while the machine was twice as fast; in common rounds it is the slower.
    rounds = {
        "early": {0: 0.6, 1: 0.6, 2: 0.6},
        "late": {0: 0.5, 1: 0.5, 2: 0.5, 3: 1.0, 4: 1.0, 5: 1.0, 6: 1.0},
    }
    assert race.ranking(rounds) == ["late", "early"]


def test_ranking_of_nothing_is_empty() -> None:
    assert race.ranking({"a": {}}) == []


@pytest.mark.parametrize(
    ("low", "high", "tie", "settled"),
    [
        (0.98, 1.03, True, True),
        (1.01, 1.04, True, True),
        (1.2, 1.4, False, True),
        (0.5, 0.7, False, True),
        (0.9, 1.3, False, False),
    ],
)
def test_ties_and_settled_ratios(low: float, high: float, tie: bool, settled: bool) -> None:
    ratio = Ratio((low * high) ** 0.5, low, high, 5)
    assert race.is_tie(ratio) is tie
    assert race.settled(ratio) is settled


def test_no_ratio_settles_nothing() -> None:
    assert not race.settled(None)
