"""The comparison of outputs: labels, quantities, and large outputs in parts."""

import tracemalloc

import numpy as np
import pytest

from workbench.contract import WorkloadError
from workloads.lab.agreement import PART, holds_labels, sums


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
    right = np.ones(64 * PART + 1, np.float32)
    answer = right.copy()
    answer[-1] = 3.0
    tracemalloc.start()
    found = sums(answer, right)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == (4.0, right.size, right.size + 8.0, right.size + 2.0)
    assert peak < right.nbytes


def test_the_last_part_of_a_large_output_counts() -> None:
    right = np.ones(PART + 1, np.float32)
    right[-1] = -np.inf
    with pytest.raises(WorkloadError, match="lacks the sign"):
        sums(np.ones_like(right), right)
    assert sums(np.zeros((0, 3)), np.zeros((0, 3))) == (0.0, 0.0, 0.0, 0.0)
