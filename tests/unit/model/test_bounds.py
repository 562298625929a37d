"""The comparison of outputs, and the bounds of a variant's error on unseen inputs."""

import math
import tracemalloc

import numpy as np
import pytest

from workbench.contract import WorkloadError
from workloads.lab import agreement, bounds
from workloads.lab.agreement import CHUNK, holds_labels, sums


def classes(*same: bool) -> tuple[list, list]:
    """Answers and references that agree where `same` says so."""
    right = np.array([[1.0, 0.0]])
    return [[right if each else right[:, ::-1]] for each in same], [[right]] * len(same)


@pytest.mark.parametrize(
    ("differing", "count", "chance", "bound"),
    [
        (0, 10, 0.05, 1 - 0.05**0.1),
        (1, 10, 0.05, 0.39416),  # Clopper and Pearson's tables
        (2, 20, 0.025, 0.31698),
        (10, 10, 0.05, 1.0),
        (900, 1000, 0.05, 0.91518),
    ],
)
def test_agreement_has_an_exact_bound(differing, count, chance, bound) -> None:
    found = bounds.upper(*classes(*[k >= differing for k in range(count)]), "disagreement", chance)
    assert found == pytest.approx(bound, abs=1e-4)


def test_samples_without_rows_change_nothing() -> None:
    nothing, some = np.zeros((0, 2)), np.array([[1.0, 0.0]])
    both = [[nothing], [some]]
    assert bounds.upper(both, both, "disagreement", 0.05) == pytest.approx(1 - 0.05**0.5)
    assert agreement.differing(nothing.T, nothing.T) == 0.0
    (found,) = agreement.compare(["boxes"], both, both)
    assert (found.top1_agreement, found.relative_error) == (1.0, 0.0)


@pytest.mark.parametrize("shape", [(1, 3, 4, 8), (1, 4, 8, 3), (8, 3, 2, 2), (8, 2, 2, 3), (32, 3)])
def test_the_classes_of_pixels_are_their_channels(shape: tuple[int, ...]) -> None:
    axis = shape.index(3)
    right = np.random.default_rng(0).random(shape)
    changed = np.moveaxis(right, axis, -1).copy()
    changed.reshape(-1, 3)[:8] *= -1
    wrong = np.moveaxis(changed, -1, axis)
    assert agreement.differing(wrong, right) == 8 / 32
    assert not agreement.has_classes(right.take([0], axis))


def test_rows_of_one_sample_count_as_one_input() -> None:
    right = np.eye(4)
    answers = [[right], [right[[1, 0, 2, 3]]]]  # half of the rows of the second differ
    one = bounds.upper(answers, [[right]] * 2, "disagreement", 0.05)
    assert one == bounds.upper(*classes(True, False), "disagreement", 0.05)


@pytest.mark.parametrize("limit", [0.5, 0.1, 0.01])
def test_the_fewest_inputs_are_those_that_can_meet_the_limit(limit: float) -> None:
    count = bounds.fewest("disagreement", limit)
    met = bounds.upper(*classes(*[True] * count), "disagreement", bounds.CHECK)
    assert met <= limit
    fewer = bounds.upper(*classes(*[True] * (count - 1)), "disagreement", bounds.CHECK)
    assert fewer > limit or count == bounds.FEWEST


def test_no_number_of_inputs_promises_that_nothing_ever_changes() -> None:
    assert bounds.fewest("disagreement", 0.0) is None
    assert bounds.fewest("disagreement", 1.0) == bounds.fewest("relative_error", 0.0) == 40


def relative(random: np.random.Generator, count: int, spread: float, chance: float) -> float:
    """The bound from `count` inputs whose errors are log-normal around a true one of 0.1."""
    squared = random.lognormal(-(spread**2) / 2, spread, count)
    right = random.standard_normal((count, 1, 8))
    right /= np.linalg.norm(right, axis=2, keepdims=True)
    off = random.standard_normal((count, 1, 8))
    off *= np.sqrt(squared)[:, None, None] / np.linalg.norm(off, axis=2, keepdims=True) / 10
    return bounds.upper(list(right + off), list(right), "relative_error", chance)


@pytest.mark.parametrize(("count", "spread"), [(20, 0.5), (40, 0.8), (100, 1.2)])
def test_the_bound_of_a_relative_error_holds_where_errors_are_skewed(count, spread) -> None:
    random = np.random.default_rng(0)
    found = [relative(random, count, spread, bounds.CHOOSE) for _ in range(200)]
    assert np.mean(np.array(found) >= 0.1) >= 0.95
    assert np.median(found) < 0.16


@pytest.mark.parametrize(("spread", "share"), [(1.6, 0.96), (2.0, 0.92)])
def test_a_few_inputs_with_very_skewed_errors_have_a_wider_bound(spread, share) -> None:
    """Student's t alone holds in 94% and 88%; no method holds at any spread."""
    random = np.random.default_rng(0)
    found = [relative(random, bounds.FEWEST, spread, bounds.CHECK) for _ in range(600)]
    assert np.mean(np.array(found) >= 0.1) >= share


@pytest.mark.parametrize(("rows", "is_promised"), [(1, False), (500, True)])
def test_nothing_is_promised_where_few_inputs_make_the_error(rows: int, is_promised: bool) -> None:
    """A softmax whose answers are rarely undecided, for each input or for each of many pixels."""
    random = np.random.default_rng(0)
    logits = 4 * random.random((48, rows, 1)) ** 0.5 * np.array([1.0, -1.0])
    right, wrong = np.exp(logits), np.exp(logits + 0.1 * random.standard_normal(logits.shape))
    pairs = ([[each / each.sum(1, keepdims=True)] for each in found] for found in (wrong, right))
    found = bounds.promised(*pairs, "relative_error", 0.02, bounds.CHECK)
    assert (found is not None) == is_promised


@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_numbers_that_are_0_or_1_are_not_undecided(kind: str) -> None:
    right = np.random.default_rng(0).integers(0, 2, (40, 1, 1000)).astype(kind)
    wrong = right.copy()
    wrong[0, 0, 0] = 1 - right[0, 0, 0]
    assert bounds.upper(list(wrong), list(right), "relative_error", 0.05) < 0.03


def test_the_worst_output_counts_and_none_is_off() -> None:
    random = np.random.default_rng(0)
    right = random.standard_normal((30, 2, 4))
    exact = bounds.upper(list(right), list(right), "relative_error", 0.05)
    assert exact == 0.0
    off = right.copy()
    off[:, 1] *= 1.1
    worst = bounds.upper(list(off), list(right), "relative_error", 0.05)
    alone = bounds.upper(list(off[:, 1:]), list(right[:, 1:]), "relative_error", 0.05)
    assert worst == alone > 0.1
    nothing = np.zeros_like(right)
    assert bounds.upper(list(off), list(nothing), "relative_error", 0.05) == 1.0


def test_an_infinite_reference_is_left_out() -> None:
    right = np.array([[1.0, -math.inf]])
    assert bounds.upper([[right]] * 20, [[right]] * 20, "relative_error", 0.05) == 0.0


@pytest.mark.parametrize("wrong", [5.0, math.inf, math.nan])
def test_where_the_original_is_infinite_its_sign_counts(wrong: float) -> None:
    masked = np.array([1.0, -math.inf])
    assert agreement.sums(np.array([1.0, -65504.0]), masked)[0] == 0.0
    with pytest.raises(WorkloadError, match="lacks the sign of the original"):
        agreement.sums(np.array([1.0, wrong]), masked, "logits")


@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_classes_in_other_numbers_may_change_too(kind: str) -> None:
    label = [[np.array([n % 3], kind)] for n in range(100)]
    found = bounds.upper(label, label, "relative_error", 0.05)
    assert found == pytest.approx(1 - 0.05**0.01, abs=1e-4)
    always = [[np.array([3], kind)]] * 100
    assert bounds.upper(always, always, "relative_error", 0.05) == 0.0


def test_labels_that_none_was_seen_to_change_may_still_change() -> None:
    """100 inputs with a flip rate of 1 % show none with a chance of 37 %."""
    label = [[np.array([3])]]
    share = 1 - 0.05**0.01
    found = bounds.upper(label * 100, label * 100, "relative_error", 0.05)
    assert found == pytest.approx(share, abs=1e-4)
    wrong = bounds.upper([[np.array([2])], *label * 99], label * 100, "relative_error", 0.05)
    assert wrong > found
    assert bounds.promised(label * 100, label * 100, "relative_error", 0.02, 0.05) is None
    many = label * 150
    for metric in ("relative_error", "disagreement"):
        enough = bounds.promised(many, many, metric, 0.02, 0.05)
        assert enough == pytest.approx(0.0198, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "names"),
    [("uint8", False), ("int16", False), ("int32", True), ("int64", True), ("bool", True)],
)
def test_small_integers_are_quantities_and_wide_ones_labels(kind: str, names: bool) -> None:
    assert holds_labels(np.ones(3, kind)) == names


def test_a_grey_level_off_by_one_is_a_small_error() -> None:
    levels = np.full(1000, 200, np.uint8)
    off, whole, *_ = sums(levels + np.uint8(1), levels)
    assert (off / whole) ** 0.5 == pytest.approx(1 / 200)


def test_large_outputs_are_compared_without_copies_of_them() -> None:
    right = np.ones(64 * CHUNK + 1, np.float32)
    answer = right.copy()
    answer[-1] = 3.0
    tracemalloc.start()
    found = sums(answer, right)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == (4.0, right.size, right.size + 8.0, right.size + 2.0)
    assert peak < right.nbytes


def test_the_last_part_of_a_large_output_counts() -> None:
    right = np.ones(CHUNK + 1, np.float32)
    right[-1] = -np.inf
    with pytest.raises(WorkloadError, match="lacks the sign"):
        sums(np.ones_like(right), right)
    assert sums(np.zeros((0, 3)), np.zeros((0, 3))) == (0.0, 0.0, 0.0, 0.0)
