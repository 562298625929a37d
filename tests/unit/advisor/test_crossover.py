"""Which size to race next, and what the races at several sizes say together."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from builders import block

from workbench.advisor.crossover import GAP, MOST_POINTS, Measured, conclude, find_change, sentence
from workbench.contract import Case, Work
from workbench.engine.crossovers import entrants, next_value
from workbench.planning.scenario import Size
from workbench.records.document import SetupTimes
from workbench.records.verdict import Crossover
from workbench.report.candidate import Candidate

SIZE = Size("batch", 1, 1024)
CPU = Case("work", "cpu", "torch", "fp32", threads=8)
INT8 = Case("work", "cpu", "onnxruntime", "int8", threads=8, quantization="static")
NUMPY = Case("work", "cpu", "numpy", "fp32", threads=8)
GPU = Case("work", "cuda:0", "torch", "fp32")
ROUNDS = 6


def candidate(case: Case, times_s: list[float], *, transfers: str = "step") -> Candidate:
    return Candidate(
        case=case,
        scenario="row",
        objective="throughput",
        work=Work(1e6, 1e6, 1.0, "samples", 0.0, transfers=transfers),
        blocks=[block(case, number, [time_s]) for number, time_s in enumerate(times_s)],
    )


def steady(value: float, steps_s: Mapping[Case, float], **of_work: str) -> Measured:
    return Measured(
        value, [candidate(case, [s] * ROUNDS, **of_work) for case, s in steps_s.items()]
    )


def search(
    measure: Callable[[float], Measured], size: Size = SIZE, *, whole: bool = True, at: float = 32
) -> tuple[list[Measured], Crossover | None]:
    """As the engine does it, from the row's own size; all candidates race everywhere."""
    points = [measure(at)]
    while (value := next_value(points, size, whole=whole)) is not None:
        points.append(measure(value))
    return points, conclude(points, size.name, whole=whole)


def test_the_crossing_of_two_known_curves_is_closed_in_on() -> None:
    points, found = search(lambda n: steady(n, {CPU: n / 12, GPU: 1 + n / 1e4}))
    assert (found.between, found.below, found.above) == ("device", "cpu", "gpu")
    assert found.value in (12, 13)
    assert found.ci95[0] <= 12 <= found.ci95[1] <= 12 * 1.5
    assert found.searched == (1, 1024)
    assert len(points) <= MOST_POINTS
    assert [p.value for p in found.points] == sorted(p.value for p in points)
    assert f"The GPU leads from batch {found.value} (95% CI " in sentence(found)
    assert "the CPU below it. Transfers are included." in sentence(found)


def test_a_lead_that_never_changes_is_claimed_for_the_measured_sizes() -> None:
    points, found = search(lambda n: steady(n, {CPU: 1.0, GPU: 2.0}))
    assert (found.value, found.ci95, found.above) == (None, None, None)
    assert found.sizes == sorted(point.value for point in points)
    assert all(high / low <= GAP for low, high in pairwise(found.sizes))
    assert "batch 1 to 1,024" in sentence(found)
    assert [point.ratio for point in found.points] == [0.5] * len(points)


def test_a_lead_between_the_ends_is_found_in_the_gap_that_hides_it() -> None:
    size = Size("width", 8, 256)
    _, found = search(
        lambda n: steady(n, {CPU: 1.0 if 100 < n < 200 else 0.5, GPU: 0.8}), size, at=16
    )
    assert (found.below, found.above, found.back) == ("cpu", "gpu", (128, 256))
    assert found.ci95[0] <= 100 <= found.ci95[1]


def test_the_gaps_that_a_spent_budget_left_are_mentioned() -> None:
    for ratios in ({8: 0.5, 16: 0.5, 256: 0.5}, {8: 0.5, 16: 2.0, 256: 2.0}):
        assert sentence(between(ratios)).endswith("between 16 and 256.")


def test_of_one_candidate_alone_no_size_is_raced_but_the_ends() -> None:
    points, _ = search(lambda n: steady(n, {CPU: 1.0}))
    assert len(points) == 3


def test_without_a_gpu_two_candidates_are_compared() -> None:
    _, found = search(lambda n: steady(n, {CPU: 1 + n, INT8: 40 + n / 4}))
    assert found.between == "candidate"
    assert (found.below, found.above) == (CPU.label, INT8.label)
    assert found.ci95[0] <= 52 <= found.ci95[1]
    assert "cpu onnxruntime int8" in sentence(found)


def test_a_change_beyond_a_smallest_size_without_a_clear_lead_is_found() -> None:
    steps = {1: (1.0, 1.001, 9.0), 2: (1.2, 1.0, 1.5), 3: (1.5, 1.2, 1.0)}
    points = [steady(n, dict(zip((CPU, INT8, NUMPY), s, strict=True))) for n, s in steps.items()]
    change = find_change(points)
    assert (change.below, change.above) == (INT8.label, NUMPY.label)
    assert change.bracket == (2, 3)


def test_two_that_change_places_behind_a_third_have_no_lead_to_change() -> None:
    steps = {1: (1.0, 2.0, 3.0), 2: (1.0, 3.0, 2.0), 3: (1.001, 1.0, 1.1), 4: (1.001, 1.1, 1.0)}
    points = [steady(n, dict(zip((CPU, INT8, NUMPY), s, strict=True))) for n, s in steps.items()]
    assert find_change(points) is None


def test_a_candidate_that_another_only_equals_is_not_overtaken() -> None:
    _, found = search(lambda n: steady(n, {CPU: 1.0, INT8: 1.0 if n > 100 else 2.0}))
    assert found.value is None


def test_a_size_without_candidates_bounds_what_was_searched() -> None:
    def measure(n: float) -> Measured:
        return steady(n, {CPU: 1.0, GPU: 2.0}) if n < 1000 else Measured(n, ())

    _, found = search(measure)
    assert found.searched == (1, 32)


def test_nothing_is_concluded_from_a_single_size() -> None:
    assert conclude([steady(8, {CPU: 1.0, GPU: 2.0})], "batch", whole=True) is None
    assert conclude([Measured(8, ()), Measured(9, ())], "batch", whole=True) is None


def test_transfers_move_the_crossing_to_larger_sizes() -> None:
    def measure(n: float) -> Measured:
        point = steady(n, {CPU: n * n / 1e4, GPU: 1.0 + n * n / 1e6}, transfers="setup")
        for each in point.candidates:
            each.setup = SetupTimes(transfer_s=n / 50, transfer_out_s=n / 100)
        return point

    _, found = search(measure)
    # n^2 / 1e4 = 1 + n^2 / 1e6 + 0.03 n
    assert found.value_with_transfers == pytest.approx(330, rel=0.15)
    assert found.value == pytest.approx(100, rel=0.1)
    assert "With transfers in every step" in sentence(found)


def test_with_transfers_it_may_lead_nowhere() -> None:
    def measure(n: float) -> Measured:
        point = steady(n, {CPU: n / 4, GPU: 0.5 + n / 8}, transfers="setup")
        for each in point.candidates:
            each.setup = SetupTimes(transfer_s=n)
        return point

    _, found = search(measure)
    assert (found.above, found.value_with_transfers) == ("gpu", None)
    assert "With transfers in every step it leads at no compared size." in sentence(found)


def test_transfers_that_were_not_timed_are_not_known() -> None:
    _, found = search(lambda n: steady(n, {CPU: n / 12, GPU: 1.0}, transfers=""))
    assert {point.ratio_with_transfers for point in found.points} == {None}


def test_sizes_that_contradict_one_another_widen_the_interval() -> None:
    ratios = {1: 0.2, 8: 0.8, 12: 1.2, 16: 0.8, 24: 1.5, 1024: 4.0}
    points = [steady(n, {CPU: ratio, GPU: 1.0}) for n, ratio in ratios.items()]
    change = find_change(points)
    assert change.bracket == (8, 24)
    found = conclude(points, "batch", whole=True)
    assert found.ci95[0] <= 8
    assert found.ci95[1] >= 24


def test_sizes_that_are_no_whole_numbers_are_bisected_too() -> None:
    size = Size("mib", 0.01, 100)
    _, found = search(lambda n: steady(n, {CPU: n, GPU: 0.37}), size, whole=False, at=1.0)
    assert found.ci95[0] <= 0.37 <= found.ci95[1]


def noisy(rng: random.Random, crossing: float, slope: float) -> Callable[[float], Measured]:
    """Rounds share their noise; each preparation is a little faster or slower than the last."""

    def measure(n: float) -> Measured:
        cpu = (n / crossing) ** slope * math.exp(rng.gauss(0, 0.01))
        common = [rng.gauss(0, 0.1) for _ in range(ROUNDS)]
        times = {
            case: [step * math.exp(each + rng.gauss(0, 0.02)) for each in common]
            for case, step in {CPU: cpu, GPU: 1.0}.items()
        }
        return Measured(n, [candidate(case, found) for case, found in times.items()])

    return measure


def test_the_interval_holds_the_true_crossing_as_often_as_it_says() -> None:
    rng = random.Random(7)
    held, widths, runs = 0, [], 100
    for _ in range(runs):
        crossing = math.exp(rng.uniform(math.log(3), math.log(300)))
        _, found = search(noisy(rng, crossing, rng.uniform(0.2, 1.2)), whole=False)
        low, high = found.ci95
        held += low <= crossing <= high
        widths.append(high / low)
    assert held >= 0.95 * runs
    assert sorted(widths)[runs // 2] <= 1.75


def between(ratios: Mapping[float, float], gpu_alone: float | None = None) -> Crossover:
    """A CPU against a GPU, time of the first over the second by size."""
    points = [steady(n, {CPU: ratio, GPU: 1.0}) for n, ratio in ratios.items()]
    points += [steady(gpu_alone, {GPU: 1.0})] if gpu_alone else []
    return conclude(points, "n", whole=True)


def test_a_lead_is_claimed_where_it_is_proven_and_nowhere_else() -> None:
    found = between({1: 1.0, 16: 1.0, 512: 2.0})
    assert (found.below, found.value, found.leads) == ("gpu", None, (512, 512))
    text = sentence(found)
    assert text.startswith("The GPU leads at n 512. Elsewhere between n 1 and 512")
    assert text.endswith("No size was compared between 1 and 16, or between 16 and 512.")
    assert "no clear lead" in sentence(between({1: 1.0, 3: 1.0}))


def test_a_lead_has_to_hold_for_all_sizes_together() -> None:
    noisy, level = [1.02, 1.1, 1.03, 1.08, 1.04, 1.12], [1.0] * ROUNDS  # proven at one size alone
    points = [Measured(n, [candidate(CPU, noisy), candidate(GPU, level)]) for n in (1, 3)]
    assert "no clear lead" in sentence(conclude(points, "n", whole=True))


def test_a_single_candidate_has_no_lead_to_be_clear_about() -> None:
    found = conclude([steady(n, {CPU: 1.0}) for n in (1, 3)], "n", whole=True)
    assert sentence(found) == "Only cpu torch fp32 t8 could be picked from n 1 to 3."


def test_a_size_at_which_only_one_could_be_picked_proves_no_lead() -> None:
    found = between({1: 0.5, 32: 0.5}, gpu_alone=512)
    assert (found.below, found.leads, found.searched) == ("cpu", (1, 32), (1, 512))


def test_a_leader_that_may_not_be_picked_elsewhere_is_mentioned_without_a_change() -> None:
    def measure(n: float) -> Measured:
        return steady(n, {INT8: 1.0, CPU: 2.0} if n < 64 else {CPU: 2.0, NUMPY: 3.0})

    found = conclude([measure(n) for n in (1, 8, 64, 256, 512)], "batch", whole=True)
    assert (found.value, found.below, found.before) == (None, CPU.label, (8, INT8.label))
    assert f"At batch 8 {INT8.label.replace('/', ' ')} leads." in sentence(found)


def test_a_lead_that_changes_back_is_mentioned() -> None:
    found = between({1: 0.5, 8: 0.7, 16: 1.4, 64: 2.0, 512: 0.5})
    assert (found.below, found.above, found.back) == ("cpu", "gpu", (64, 512))
    assert found.ci95[1] <= 64
    assert "Between n 64 and 512 the CPU takes the lead again" in sentence(found)


def test_a_third_leader_is_mentioned() -> None:
    one, other = NUMPY.label, INT8.label
    _, found = search(lambda n: steady(n, {CPU: n, INT8: 10 + n / 10, NUMPY: 100.0}))
    assert (found.below, found.above) == (CPU.label, other)
    assert found.then[0] >= 900
    assert found.then[1] == one
    assert f"At batch 1,024 {one.replace('/', ' ')} leads" in sentence(found)


def test_a_leader_at_sizes_below_the_change_is_mentioned() -> None:
    def measure(n: float) -> Measured:
        able = {CPU: n, NUMPY: 10 + n / 10} | ({INT8: n / 2} if n < 8 else {})
        return steady(n, able)

    found = conclude([measure(n) for n in (1, 2, 6, 10, 64, 256)], "batch", whole=True)
    assert (found.below, found.above, found.before) == (CPU.label, NUMPY.label, (6, INT8.label))
    assert f"At batch 6 {INT8.label.replace('/', ' ')} leads." in sentence(found)


def test_a_leader_that_cannot_be_picked_further_on_does_not_lead_there() -> None:
    points = [steady(n, {CPU: ratio, GPU: 1.0}) for n, ratio in {1: 0.5, 2: 2.0, 4: 2.0}.items()]
    found = conclude([*points, steady(8, {CPU: 8.0})], "n", whole=True)
    assert found.then == (8, "cpu")
    assert sentence(found).endswith("At n 8 the CPU leads.")


def test_too_few_rounds_prove_no_lead() -> None:
    points = [steady(n, {CPU: 1.0, GPU: ratio}) for n, ratio in {64: 2.0, 4096: 0.5}.items()]
    points[0].candidates[1].blocks = points[0].candidates[1].blocks[:1]
    found = conclude(points, "n", whole=True)
    assert (found.value, found.below, found.leads) == (None, "gpu", (4096, 4096))


def test_copying_is_added_to_steps_only() -> None:
    def measure(n: float) -> Measured:
        point = steady(n, {CPU: n / 12, GPU: 1.0}, transfers="setup")
        for each in point.candidates:
            each.objective, each.setup = "time_to_result", SetupTimes(transfer_s=1.0)
        return point

    _, found = search(measure)
    assert {point.ratio_with_transfers for point in found.points} == {None}


def test_the_leader_at_a_size_was_among_those_that_raced_there() -> None:
    rng = random.Random(3)
    cases = [replace(CPU, threads=threads) for threads in (1, 2, 3)] + [GPU]
    for _ in range(8):
        law = {c: (rng.uniform(0.01, 100), rng.uniform(0, 2)) for c in cases}
        steps = lambda n, who=law: {c: a * n**b for c, (a, b) in who.items()}  # noqa: E731
        field = [candidate(case, [1.0] * 2) for case in cases]
        points = [steady(32, steps(32))]
        while (value := next_value(points, SIZE, whole=False)) is not None:
            racing = {c.case for c in entrants(points, field, value)}
            known = steps(value)
            best = min((c for c in cases if c.device == "cpu"), key=known.__getitem__)
            assert {best, GPU} <= racing
            points.append(steady(value, {case: known[case] for case in racing}))


def test_a_candidate_far_behind_on_both_sides_stays_out_and_leaders_come_first_by_kind() -> None:
    slow, steps = replace(CPU, threads=1), {CPU: 1.0, INT8: 0.9, GPU: 3.0}
    field = [candidate(case, [1.0] * 2) for case in (slow, CPU, INT8, GPU)]
    points = [steady(n, {**steps, slow: 5.0}) for n in (8, 16)]
    assert [c.case for c in entrants(points, field, 11)] == [INT8, GPU, CPU]
    assert [c.case for c in entrants(points, field, 64)] == [INT8, GPU, slow, CPU]


def test_a_candidate_that_could_not_be_picked_on_one_side_races_again() -> None:
    field = [candidate(case, [1.0] * 2) for case in (INT8, CPU, GPU)]
    points = [steady(64, {CPU: 9.0, INT8: 1.0, GPU: 2.0}), steady(128, {CPU: 9.0, GPU: 2.0})]
    assert {c.case for c in entrants(points, field, 90)} == {CPU, INT8, GPU}


def test_leaders_at_near_sizes_come_before_leaders_at_far_ones() -> None:
    field = [candidate(case, [1.0] * 2) for case in (CPU, INT8, GPU)]
    points = [
        steady(8, {CPU: 1.0, INT8: 1.5, GPU: 2.0}),
        steady(64, {CPU: 3.0, INT8: 2.0, GPU: 1.0}),
        Measured(512, [candidate(GPU, [])]),  # its value is unknown
    ]
    assert [c.case for c in entrants(points, field, 9)] == [CPU, GPU, INT8]
    assert [c.case for c in entrants(points, field, 60)] == [INT8, GPU, CPU]
