"""Which outputs name things, and which are quantities."""

import numpy as np
import pytest

from workloads.lab.agreement import holds_labels, sums


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
