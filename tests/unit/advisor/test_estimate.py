"""Between recorded sizes: never outside the neighbours, and as far off as it says."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from workbench.advisor.estimate import MOST_ERROR, Estimate, Point, estimate as estimated
from workbench.contract import Work
from workbench.records.reason import Reason

SIZES = (64, 128, 256, 512, 1024)


def product(n: float) -> Work:
    """A matrix product's: operations grow with the cube, bytes with the square."""
    return Work(2.0 * n**3, 12.0 * n**2, 1, "products", 0)


def point(n: float, value_s: float, spread: float = 0.01) -> Point:
    return Point(product(n), value_s, (value_s * (1 - spread), value_s * (1 + spread)))


def estimate(points: list[Point], n: float, work: Work) -> Estimate | Reason:
    return estimated(dict(zip(SIZES, points, strict=False)), n, work)


def roofline(n: float, overhead_s: float, peak: float, bandwidth: float) -> float:
    work = product(n)
    return overhead_s + max(work.flops / peak, work.bytes_moved / bandwidth)


def by_hand(points: list[Point]) -> float:
    """The smallest of the four largest errors, worked out another way."""
    errors = []
    for amount in ("flops", "bytes_moved"):
        for scale, back in ((float, float), (math.log, math.exp)):
            worst = 0.0
            for i in range(1, len(points) - 1):
                rest = points[:i] + points[i + 1 :]
                x = [scale(getattr(p.work, amount)) for p in rest]
                t = [scale(p.value_s) for p in rest]
                at = scale(getattr(points[i].work, amount))
                slope = (t[i] - t[i - 1]) / (x[i] - x[i - 1])
                found = back(t[i - 1] + slope * (at - x[i - 1]))
                worst = max(worst, abs(found - points[i].value_s) / points[i].value_s)
            errors.append(worst)
    return min(errors)


rates = st.floats(1e9, 1e14)
roofs = st.tuples(st.floats(1e-7, 1e-3), rates, st.floats(1e9, 1e13))


@given(roofs, st.floats(65, 1023).filter(lambda n: n not in SIZES))
def test_an_estimate_lies_between_its_neighbours_and_knows_its_held_out_error(roof, n) -> None:
    points = [point(size, roofline(size, *roof)) for size in SIZES]
    found = estimate(points, n, product(n))
    error = by_hand(points)
    if isinstance(found, Reason):
        assert found.code == "too_far_off"
        assert error > MOST_ERROR * (1 - 1e-9)
        return
    assert found.error == pytest.approx(error, rel=1e-6, abs=1e-9)
    below = max(p.value_s for size, p in zip(SIZES, points, strict=True) if size < n)
    above = min(p.value_s for size, p in zip(SIZES, points, strict=True) if size > n)
    assert below <= found.value_s <= above
    low, high = found.interval_s
    assert low <= found.value_s <= high
    assert low <= found.value_s / (1 + found.error)
    assert high >= found.value_s / (1 - found.error)


@given(st.floats(0, 1e-3), rates, st.sampled_from(["flops", "bytes_moved"]), st.floats(65, 1023))
def test_overhead_and_a_constant_rate_are_found_exactly(overhead, rate, amount, n) -> None:
    def truth(size: float) -> float:
        return overhead + getattr(product(size), amount) / rate

    found = estimate([point(size, truth(size)) for size in SIZES], n, product(n))
    if n not in SIZES:
        assert found.value_s == pytest.approx(truth(n), rel=1e-6)
    assert found.error == pytest.approx(0, abs=1e-6)


@given(st.floats(0.4, 1.2), st.floats(65, 1023).filter(lambda n: n not in SIZES))
def test_a_power_of_the_work_is_found_exactly(power, n) -> None:
    points = [point(size, 1e-12 * product(size).flops ** power) for size in SIZES]
    found = estimate(points, n, product(n))
    assert found.value_s == pytest.approx(1e-12 * product(n).flops ** power, rel=1e-6)


def test_intervals_hold_the_truth_where_rates_rise_smoothly() -> None:
    rng = random.Random(1)
    held = given = 0
    for _ in range(500):
        overhead, half = 10 ** rng.uniform(-6, -4), 10 ** rng.uniform(1, 3)
        peak, bandwidth = 10 ** rng.uniform(10.5, 13.5), 10 ** rng.uniform(9.5, 12)

        def truth(n: float) -> float:
            return roofline(n, overhead, peak * n / (n + half), bandwidth)  # noqa: B023

        points = [point(n, truth(n) * math.exp(rng.gauss(0, 0.01)), 0.025) for n in SIZES]
        n = rng.randrange(65, 1023)
        found = estimate(points, n, product(n))
        if isinstance(found, Estimate):
            given += 1
            held += found.interval_s[0] <= truth(n) <= found.interval_s[1]
    assert given > 400
    assert held / given >= 0.95


def test_the_order_of_the_points_does_not_matter() -> None:
    points = {size: point(size, roofline(size, 1e-5, 1e11, 1e10)) for size in SIZES}
    turned = dict(reversed(points.items()))
    assert estimated(turned, 300, product(300)) == estimated(points, 300, product(300))


@pytest.mark.parametrize("n", [63, 64, 1024, 1025, 4096])
def test_there_is_no_estimate_outside_the_points(n: int) -> None:
    points = [point(size, roofline(size, 1e-5, 1e11, 1e10)) for size in SIZES]
    found = estimate(points, n, product(n))
    assert found.code == "outside"


def test_three_points_are_too_few() -> None:
    points = [point(size, 1e-9 * size**3) for size in SIZES[:3]]
    found = estimate(points, 100, product(100))
    assert found.code == "too_few_sizes"
    assert "4 recorded sizes; there are 3" in found.message


def test_a_point_far_from_its_neighbours_prevents_an_estimate() -> None:
    points = [point(size, 1e-9 * size**3) for size in SIZES]
    points[2] = replace(points[2], value_s=5 * points[2].value_s)  # a cliff, or a disturbance
    found = estimate(points, 100, product(100))
    assert found.code == "too_far_off"
    assert "%" in found.message


def test_a_size_that_changes_no_work_has_no_estimate() -> None:
    points = [replace(point(size, 1e-3 * size), work=product(64)) for size in SIZES]
    found = estimate(points, 100, product(64))
    assert found.code == "no_work"


def test_without_counted_operations_the_bytes_are_used() -> None:
    points = [point(size, 1e-6 + 1e-10 * product(size).bytes_moved) for size in SIZES]
    points = [replace(p, work=replace(p.work, flops=None)) for p in points]
    found = estimate(points, 200, replace(product(200), flops=None))
    assert found.value_s == pytest.approx(1e-6 + 1e-10 * 12 * 200**2)


def test_an_estimate_needs_intervals_of_both_neighbours_for_its_own() -> None:
    points = [point(size, 1e-9 * size**3) for size in SIZES]
    points[1] = replace(points[1], interval_s=None)
    assert estimate(points, 100, product(100)).interval_s is None
    assert estimate(points, 700, product(700)).interval_s is not None
