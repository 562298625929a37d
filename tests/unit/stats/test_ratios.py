"""Races eliminate slower candidates, keep ties, and err no more often than stated."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from workbench.stats import ratios
from workbench.stats.paired import Ratio


def calm(rng) -> float:
    return float(np.exp(rng.normal(0, 0.03)))


def bursty(rng) -> float:
    return calm(rng) * (float(rng.uniform(1.3, 3)) if rng.random() < 0.1 else 1.0)


def bimodal(rng) -> float:
    return calm(rng) * (1.08 if rng.random() < 0.4 else 1.0)


def simulate(rng, true_times: list[float], rounds: int, noise=calm) -> list[ratios.ProvenSlower]:
    """Run a whole race on synthetic blocks under a common drift; returns the eliminations."""
    true = {f"c{i}": time for i, time in enumerate(true_times)}
    measured: dict[str, dict[int, float]] = {name: {} for name in true}
    pairs = math.comb(len(true), 2)
    out: dict[str, ratios.ProvenSlower] = {}
    for number in range(rounds):
        drift = float(np.exp(rng.normal(0, 0.1)))
        alive = [name for name in true if name not in out]
        for name in alive:
            measured[name][number] = true[name] * drift * noise(rng)
        if number >= 2 and len(alive) > 1:
            seen = {name: measured[name] for name in alive}
            out |= {b.case: b for b in ratios.proven_slower(seen, look=number - 1, pairs=pairs)}
    return list(out.values())


def share_of_wrong_races(true_times: list[float], *, races: int, rounds: int, noise) -> float:
    """Share of races in which a candidate that is truly no faster eliminates another."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(races):
        eliminated = simulate(rng, true_times, rounds, noise)
        wrong += any(true_times[int(b.case[1])] <= true_times[int(b.by[1])] for b in eliminated)
    return wrong / races


@pytest.mark.parametrize("noise", [calm, bursty, bimodal], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("true_times", "races", "rounds"),
    [
        ([1.0, 1.0], 600, 20),
        ([1.0] * 4, 400, 8),
        ([1.0, 1.01, 1.01, 1.5, 3.0], 250, 10),  # near ties and clear losers
    ],
    ids=["two equals", "four equals", "five"],
)
def test_one_no_slower_is_eliminated_in_at_most_5_percent_of_races(
    true_times: list[float], races: int, rounds: int, noise
) -> None:
    wrong = share_of_wrong_races(true_times, races=races, rounds=rounds, noise=noise)
    assert wrong <= 0.05
    assert wrong > 0 or len(true_times) == 5, "the noise is a challenge"


def test_clearly_slower_candidates_leave_within_a_few_rounds() -> None:
    rng = np.random.default_rng(8)
    eliminated = [{b.case for b in simulate(rng, [1.0, 2.0, 3.0], 5)} for _ in range(100)]
    assert sum(out == {"c1", "c2"} for out in eliminated) >= 97


def test_a_small_true_difference_is_found_by_a_long_race() -> None:
    rng = np.random.default_rng(9)
    eliminated = [simulate(rng, [1.0, 1.06], 40) for _ in range(100)]
    assert sum([b.case for b in out] == ["c1"] for out in eliminated) >= 90


def test_errors_over_all_looks_and_pairs_sum_to_alpha() -> None:
    pairs = 10
    spent = sum(pairs * (1 - ratios.confidence_at(look, pairs)) for look in range(1, 100_000))
    assert spent == pytest.approx(ratios.ALPHA, rel=1e-4)
    assert ratios.confidence_at(1, 0) == ratios.confidence_at(1, 1) == 0.975


def test_a_later_look_needs_more_evidence_than_an_earlier_one() -> None:
    two = {"a": {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, "b": {0: 1.1, 1: 1.12, 2: 1.08, 3: 1.15}}
    assert [b.case for b in ratios.proven_slower(two, look=1, pairs=1)] == ["b"]
    assert ratios.proven_slower(two, look=20, pairs=10) == []


def test_only_rounds_in_common_are_compared() -> None:
    gone = {"a": {0: 1.0, 1: 1.0, 2: 1.0}, "b": {3: 9.0, 4: 9.0, 5: 9.0}}
    assert ratios.ratio_between(gone["a"], gone["b"]) is None
    assert ratios.proven_slower(gone, look=4, pairs=1) == []
    partial = {"a": {0: 1.0, 1: 1.0, 2: 1.0, 9: 77.0}, "b": {0: 2.0, 1: 2.0, 2: 2.0, 8: 0.1}}
    ratio = ratios.ratio_between(partial["b"], partial["a"])
    assert (ratio.value, ratio.pairs) == (pytest.approx(2.0), 3)


@given(st.permutations(["fast", "middle", "slow"]))
def test_the_named_rival_is_the_one_with_the_largest_ratio(order: list[str]) -> None:
    times = {"fast": 1.0, "middle": 2.0, "slow": 4.0}
    rounds = {name: {r: times[name] * (1 + 0.001 * r) for r in range(6)} for name in order}
    found = {b.case: b for b in ratios.proven_slower(rounds, look=4, pairs=3)}
    assert set(found) == {"middle", "slow"}
    assert found["slow"].by == "fast"
    assert found["slow"].ratio.value == pytest.approx(4.0)


def test_ranking_compares_in_common_rounds_not_across_drift() -> None:
    # `early` ran only while the machine was twice as fast; in common rounds it is the slower.
    rounds = {
        "early": {0: 0.6, 1: 0.6, 2: 0.6},
        "late": {0: 0.5, 1: 0.5, 2: 0.5, 3: 1.0, 4: 1.0, 5: 1.0, 6: 1.0},
    }
    assert ratios.ranking(rounds) == ["late", "early"]


def test_an_early_elimination_does_not_decide_between_those_that_stayed() -> None:
    # While `gone` was there, a burst hit `good`; over all rounds `good` is the fastest.
    rounds = {
        "gone": dict.fromkeys(range(3), 3.0),
        "good": {**dict.fromkeys(range(3), 1.3), **dict.fromkeys(range(3, 12), 1.0)},
        "fair": dict.fromkeys(range(12), 1.1),
    }
    assert ratios.ranking(rounds) == ["good", "fair", "gone"]


def test_one_common_round_does_not_outweigh_many() -> None:
    # `gone` left after a round in which something slowed `good`.
    rounds = {
        "gone": {0: 1.05},
        "fair": dict.fromkeys(range(20), 1.03),
        "good": {0: 1.30, **dict.fromkeys(range(1, 20), 1.0)},
    }
    assert ratios.ranking(rounds) == ["good", "fair", "gone"]


def test_a_late_candidate_that_beats_all_in_its_only_round_comes_first() -> None:
    rounds = {"good": dict.fromkeys(range(9), 1.0), "fair": dict.fromkeys(range(9), 1.02)}
    assert ratios.ranking({**rounds, "late": {8: 0.99}}) == ["late", "good", "fair"]


def test_a_beaten_candidate_never_stands_before_the_one_that_beat_it() -> None:
    # Three in a circle: each takes more time than the next.
    rounds = {
        "a": {**dict.fromkeys(range(3), 1.00), **dict.fromkeys(range(10, 13), 1.1)},
        "b": {**dict.fromkeys(range(3), 1.05), **dict.fromkeys(range(20, 23), 1.0)},
        "c": {**dict.fromkeys(range(10, 13), 1.0), **dict.fromkeys(range(20, 23), 1.2)},
    }
    assert ratios.ranking(rounds) == ["b", "c", "a"]
    assert ratios.ranking(rounds, {"b": "a"}) == ["a", "b", "c"]


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3)), min_size=7, max_size=30))
def test_a_ranking_orders_by_the_values_of_the_intervals(pairs) -> None:
    first, second = (ratios.Rounds(enumerate(column)) for column in zip(*pairs, strict=True))
    assert ratios.relative(first, second) == ratios.ratio_between(first, second).value
    for rounds in (first, second):
        rounds.blocks = {number: [value] * 40 for number, value in rounds.items()}
    assert ratios.relative(first, second) == ratios.ratio_between(first, second).value


def test_ranking_leaves_out_unmeasured_candidates() -> None:
    assert ratios.ranking({"a": {}}) == []
    assert ratios.ranking({"a": {}, "b": {0: 2.0}, "c": {0: 1.0}}) == ["c", "b"]


def test_ranking_with_too_few_common_rounds_falls_back_on_their_median() -> None:
    # `brief` left after two rounds, both in a slow hour: against its rival it was the faster.
    rounds = {"brief": {0: 4.0, 1: 4.4}, "long": {0: 5.0, 1: 5.5, 2: 1.0, 3: 1.0, 4: 1.0}}
    assert ratios.ranking(rounds) == ["brief", "long"]


def test_ranking_without_any_common_round_compares_medians() -> None:
    assert ratios.ranking({"a": {0: 2.0}, "b": {1: 1.0, 2: 1.0, 3: 1.0}}) == ["b", "a"]


@pytest.mark.parametrize(
    ("low", "high", "tie", "settled", "close"),
    [
        (0.98, 1.03, True, True, True),
        (1.01, 1.04, True, True, True),
        (1.01, 1.08, False, True, True),  # slower, by hardly more than a tie
        (0.93, 0.98, False, True, True),
        (1.02, 1.12, False, True, False),
        (0.90, 0.96, False, True, False),
        (0.85, 1.2, False, False, True),
        (0.9, 1.3, False, False, False),  # it reaches too far
        (0.75, 1.1, False, False, False),
    ],
)
def test_ties_settled_and_close_ratios(low, high, tie: bool, settled: bool, close: bool) -> None:
    ratio = Ratio((low * high) ** 0.5, low, high, 5)
    assert ratios.is_tie(ratio) is tie
    assert ratios.is_settled(ratio) is settled
    assert ratios.is_close(ratio) is close


def test_after_many_rounds_a_tie_may_be_twice_as_wide() -> None:
    assert ratios.is_tie(Ratio(1.0, 0.92, 1.09, 25), patient=False)
    assert not ratios.is_tie(Ratio(1.0, 0.92, 1.11, 25), patient=False)


def test_without_a_ratio_nothing_is_settled_or_close() -> None:
    assert not ratios.is_settled(None)
    assert not ratios.is_close(None)


def test_a_slower_candidate_never_ranks_above_the_one_that_beat_it() -> None:
    """Seen in a run: a common rival's disturbed first round made a slower candidate look best."""
    rounds = {
        "fp32": {0: 0.0098, 1: 0.00514, 2: 0.00515, 3: 0.00514, 4: 0.00513},
        "bf16": {0: 0.00290, 1: 0.00289, 2: 0.00289},
        "nhwc": {0: 0.00269, 1: 0.00268, 2: 0.00269, 3: 0.00268, 4: 0.00269},
    }
    assert ratios.ranking(rounds) == ["nhwc", "bf16", "fp32"]


@given(st.permutations(["a", "b", "c", "d"]))
def test_ranking_with_few_rounds_is_independent_of_the_order_of_candidates(order) -> None:
    speed = {"a": 1.0, "b": 1.1, "c": 1.3, "d": 2.0}
    drift = [1.0, 1.4, 0.9, 1.2, 1.1]
    rounds = {
        case: {r: speed[case] * drift[r] for r in range(5 - position)}
        for position, case in enumerate(order)
    }
    assert ratios.ranking(rounds) == ["a", "b", "c", "d"]


def started(values: list[float], spread: float) -> ratios.Rounds:
    rounds = ratios.Rounds(enumerate(values))
    rounds.spread = spread
    return rounds


def test_one_time_costs_limit_what_rounds_can_show() -> None:
    one, other = started([1.2, 1.21, 1.19, 1.2], 0.1), started([1.0] * 4, 0.1)
    ratio = ratios.ratio_between(one, other)
    assert ratio.low < 1 < ratio.high < 2
    assert ratios.is_close(ratio)
    assert ratios.is_exhausted(ratio)
    assert ratios.is_settled(ratios.decisive_ratio(one, other))
    far = ratios.ratio_between(started([2.0] * 4, 0.1), other)
    assert far.low > 1
    assert not ratios.is_close(far)
    one.origin = other.origin = ("cpu", "torch")  # the same start-up: it cancels out
    one.shared = other.shared = 0.1
    assert ratios.ratio_between(one, other).low > 1.1
    plain = ratios.ratio_between(dict(one), dict(other))
    assert plain.low > 1.1
    assert not ratios.is_exhausted(plain)


def test_looking_again_does_not_widen_the_spread_of_one_time_costs() -> None:
    one, other = started([1.01, 1.0, 1.02, 1.01] * 5, 0.1), started([1.0] * 20, 0.1)
    late = ratios.decisive_ratio(one, other)
    assert ratios.is_exhausted(late)
    assert ratios.is_exhausted(Ratio(1.0, 1 / 1.30, 1.30, 9, spread=0.1))
    assert not ratios.is_exhausted(Ratio(1.0, 1 / 1.35, 1.35, 9, spread=0.1))
    assert ratios.is_settled(late)
    assert ratios.is_close(late)


def test_the_last_look_costs_no_more_however_many_came_before() -> None:
    one, other = started([1.1, 1.0, 1.2] * 7, 0.0), started([1.0] * 21, 0.0)
    looked_at = ratios.decisive_ratio(one, other)
    last = ratios.decisive_ratio(one, other, is_last=True)
    plain = ratios.ratio_between(one, other)
    assert looked_at.low < last.low < plain.low
    assert last == ratios.ratio_between(one, other, 0.975)


def test_only_the_shared_part_of_a_start_up_cancels_out() -> None:
    one, other = started([1.3] * 5, 0.1), started([1.0] * 5, 0.1)
    one.origin = other.origin = ("cpu", "torch"), 1.0
    one.shared, other.shared = 0.06, 0.06
    assert ratios.ratio_between(one, other).spread == pytest.approx(0.04 * math.sqrt(2))
    one.shared = 0.03
    assert ratios.ratio_between(one, other).spread == pytest.approx(math.hypot(0.07, 0.04, 0.03))


def test_the_order_of_tails_is_that_of_their_ratio_from_the_third_round_on() -> None:
    def rounds(*tails: float) -> ratios.Rounds:
        made = ratios.Rounds(enumerate(tails))
        made.blocks = {n: [0.5] * 50 + [tail] * 2 for n, tail in enumerate(tails)}
        return made

    spiky, calm = rounds(1.0, 1.0, 5.0), rounds(1.2, 1.2, 1.2)
    ratio = ratios.ratio_between(spiky, calm)
    assert ratio is not None and ratio.value > 1
    assert ratios.ranking({"spiky": spiky, "calm": calm}) == ["calm", "spiky"]


def test_a_start_up_has_a_confidence_of_its_own() -> None:
    fast, slow = (ratios.Rounds(dict.fromkeys(range(9), step)) for step in (1.0, 1.2))
    fast.spread = slow.spread = 0.1
    usual = ratios.ratio_between(slow, fast)
    strict = ratios.ratio_between(slow, fast, of_start_ups=1 - 0.05 / 12)
    assert strict.low < usual.low < usual.value == strict.value < usual.high < strict.high
