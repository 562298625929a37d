"""Values derived from samples: warnings, comparison with the row's fastest, roofline."""

import math
from dataclasses import replace

import msgspec
import pytest
from builders import block, case, ceilings, changed, events, machine, report, steady
from hypothesis import given, strategies as st
from money import watts

from workbench.contract import Work
from workbench.records import events as ev
from workbench.records.document import Clocks
from workbench.report.measurements import measurement_warnings
from workbench.report.report import Report

A, B, C = case("cpu-a"), case("cpu-b"), case("cpu-c")


def codes(candidate, *arguments) -> set[str]:
    return {warning.code for warning in measurement_warnings(candidate, *arguments)}


def alone(blocks, **changes):
    """The one candidate of a run with these blocks; `changes` go to its preparation."""
    built = changed(events({A: blocks}), ev.CasePrepared, **changes)
    return Report.of(built).candidates[A.id]


def test_a_quiet_measurement_carries_no_warning() -> None:
    assert codes(alone(steady(1.0)), machine()) == set()


def test_a_trend_in_one_direction_is_drift_and_noise_is_not() -> None:
    rising = [[1 + 0.02 * i] * 5 for i in range(9)]
    assert "drifting" in codes(alone(rising))
    warning = next(w for w in measurement_warnings(alone(rising)) if w.code == "drifting")
    assert warning.message.startswith("slowed down by 12%")
    falling = [[1 - 0.02 * i] * 5 for i in range(9)]
    assert any("sped up" in warning.message for warning in measurement_warnings(alone(falling)))
    back_and_forth = [[1.0, 1.01, 0.99, 1.0, 1.02]] * 9
    assert codes(alone(back_and_forth)) == set()


def test_a_step_little_longer_than_its_call_has_a_warning() -> None:
    assert codes(alone(steady(1e-6), call_overhead_s=5e-8)) == {"short_step"}
    assert codes(alone(steady(1e-5), call_overhead_s=5e-8)) == set()


def test_more_threads_than_cores_have_a_warning() -> None:
    few = msgspec.structs.replace(
        machine(), cpu=msgspec.structs.replace(machine().cpu, effective_cores=4)
    )
    assert codes(alone(steady(1.0)), few) == {"oversubscribed"}


def test_every_warning_names_its_case_and_a_remedy() -> None:
    wild = [[1.0, 9.0]] + [[1.0 + i] for i in range(6)]
    found = list(measurement_warnings(alone(wild, call_overhead_s=1.0), machine()))
    assert len(found) >= 3
    assert all(warning.subject == A.id and warning.remedy for warning in found)


def test_each_candidate_is_compared_with_the_fastest_of_its_row() -> None:
    found = report({A: steady(1.0), B: steady(2.0), C: steady(1.002)})
    fastest, slower, close = found.measurements
    assert fastest.against is None
    assert (slower.against.id, slower.against.word) == (A.id, "slower")
    assert slower.against.ratio == pytest.approx(2.0, rel=0.02)
    assert slower.against.ci95[0] <= slower.against.ratio <= slower.against.ci95[1]
    assert close.against.word == "same"


def test_a_single_candidate_is_read_without_ranking_its_row(monkeypatch) -> None:
    """A screen reads each candidate after each block, and shows no comparison within a row."""
    ranked = []
    monkeypatch.setattr("workbench.report.report.fastest_of", ranked.append)
    found = report({A: steady(1.0), B: steady(2.0)})
    measured = found.statistics(found.candidates[B.id])
    assert (measured.n > 0, measured.against, ranked) == (True, None, [])


def test_what_was_shown_to_be_slower_is_not_the_fastest_of_a_row_that_drifted() -> None:
    times = {
        A: {**dict.fromkeys(range(3), 1.0), **dict.fromkeys(range(10, 13), 1.1)},
        B: {**dict.fromkeys(range(3), 1.05), **dict.fromkeys(range(20, 23), 1.0)},
        C: {**dict.fromkeys(range(10, 13), 1.0), **dict.fromkeys(range(20, 23), 1.2)},
    }
    built = report({each: steady(1.0) for each in times})
    for each, rounds in times.items():
        built.candidates[each.id].blocks = [block(each, n, [s] * 5) for n, s in rounds.items()]
    built.candidates[B.id].beaten_by = A.id
    assert [m.against and m.against.id for m in built.measurements] == [None, A.id, A.id]


def test_capability_is_the_best_tenth_and_outliers_stay_in() -> None:
    (found,) = report({A: [[1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 9.0]]}).measurements
    assert found.capability.value == pytest.approx(64 / found.p10_s)
    assert found.outliers == 1
    assert found.n == 7
    assert 9.0 in found.samples_s


def test_clocks_are_medians_over_blocks() -> None:
    times = iter([1.0, 3.0, 2.0])
    measured = events({A: steady(0.5, 3)})
    clocks = {"clocks": lambda _: Clocks("device", next(times), 0.5, 0.1)}
    (found,) = Report.of(changed(measured, ev.BlockMeasured, **clocks)).measurements
    assert found.clocks == Clocks("device", 2.0, 0.5, 0.1)


def under(step_s: float, work: Work, **limits: float):
    """The measurement of one candidate that takes `step_s` for `work`."""
    built = changed(events({A: [[step_s] * 10]}), ev.RacePlanned, work={A.id: work})
    built.append(ev.CeilingsKnown(at_s=9.0, ceilings=ceilings("cpu", **limits)))
    (found,) = Report.of(built).measurements
    return found


def test_a_result_is_a_fraction_of_the_peak_of_its_precision() -> None:
    found = under(0.1, Work(1e9, 1e6, 1, "items", 1e9), peak=1e11)
    assert found.peak_fraction == pytest.approx(0.1)
    assert found.roofline.limited_by == "compute"
    assert found.roofline.intensity_flops_per_byte == pytest.approx(1000)


def test_few_operations_per_byte_stand_under_the_memory_roof() -> None:
    found = under(1.0, Work(1e9, 4e9, 1, "items", 1e10), peak=1e11, bandwidth=1e10)
    assert found.roofline.limited_by == "memory"
    assert found.roofline.attainable_flops_per_s == pytest.approx(2.5e9)
    assert found.roofline.fraction == pytest.approx(0.4)


def test_what_fits_into_the_cache_stands_under_the_caches_roof() -> None:
    found = under(0.1, Work(1e9, 4e9, 1, "items", 1e6), peak=1e11, bandwidth=1e10)
    assert found.roofline.limited_by == "cache"
    assert found.roofline.attainable_flops_per_s == pytest.approx(2.5e10)


def test_without_counted_work_or_ceilings_there_is_no_roof() -> None:
    assert under(1.0, Work(None, 4e9, 1, "items", 1e10)).roofline is None
    (bare,) = report({A: steady(1.0)}).measurements
    assert (bare.peak_fraction, bare.roofline) == (None, None)


@pytest.mark.parametrize(
    ("memory_bytes", "ranks", "cache_bytes_per_s", "rate", "limited_by", "fraction"),
    [
        (8 << 20, 1, 4e11, 3e10, "cache", 0.375),  # 150 GB/s: more than memory delivers
        (1 << 30, 1, 4e11, 1.5e10, "memory", 0.75),
        (1 << 30, 8, 4e11, 4e10, "memory", 0.25),  # eight GPUs have the limits of all
        (8 << 20, 1, None, 3e10, None, None),  # a cache that was not measured is no memory
    ],
)
def test_a_result_on_a_gpu_is_limited_by_its_l2_cache_or_its_memory(
    memory_bytes, ranks, cache_bytes_per_s, rate: float, limited_by, fraction
) -> None:
    known = ceilings("cuda:0", peak=1e13, bandwidth=1e11)
    cache = {"cache_bytes": 32 << 20, "cache_bytes_per_s": cache_bytes_per_s}
    known.devices[0] = msgspec.structs.replace(known.devices[0], **cache)
    on_gpu, work = case("cuda:0-a"), Work(2e6, 1e7, 1, "products", memory_bytes, ranks=ranks)
    built = events({on_gpu: [[work.flops / rate] * 12]}, gpus=["cuda:0"])
    built = changed(built, ev.RacePlanned, work={on_gpu.id: work})
    (found,) = Report.of([*built, ev.CeilingsKnown(at_s=9.0, ceilings=known)]).measurements
    assert found.peak_fraction == pytest.approx(rate / (ranks * 1e13))
    roof = found.roofline
    assert (roof and roof.limited_by) == limited_by
    assert (roof and roof.fraction) == (fraction and pytest.approx(fraction))


@given(st.floats(1e-9, 1e3), st.floats(1, 1e15), st.floats(1, 1e15), st.floats(1, 1e12))
def test_no_fraction_is_above_one(step_s: float, flops: float, moved: float, held: float) -> None:
    found = under(step_s, Work(flops, moved, 1, "items", held))
    assert 0 < found.peak_fraction <= 1
    assert 0 < found.roofline.fraction <= 1
    assert math.isfinite(found.roofline.attainable_flops_per_s)


def ranks(device, seconds, backends=("torch",), metrics=None, **of_row) -> Report:
    """A row of `world` sizes with these step times; the blocks of two ranks have `metrics`."""

    def work(event: ev.RacePlanned) -> dict[str, Work]:
        return {c.id: replace(event.work[c.id], ranks=c.tuning["world"]) for c in cases}

    base = replace(A, device=device, threads=8 if device == "cpu" else None)
    cases = {
        replace(base, backend=backend, tuning={"world": world}): steady(step_s)
        for backend in backends
        for world, step_s in seconds.items()
    }
    built = changed(events(cases), ev.RacePlanned, work=work, **of_row)
    for each in cases:
        if metrics and each.tuning["world"] == 2:
            built = changed(built, ev.BlockMeasured, each, metrics=metrics)
    return Report.of(built)


@pytest.mark.parametrize(
    ("device", "two_s", "options"),
    [
        ("cuda:0", 0.625, {}),  # one device more
        (
            "cuda:0",
            0.625,
            {"objective": "cost", "prices": {"gpu": 3.0}},
        ),  # efficiency counts steps, not cost
        ("cpu", 1.25, {}),  # they share its cores
        ("cpu", 1.25, {"metrics": {"energy_j": 1.0}}),
        ("cpu", 1.25, {"metrics": {"threads_per_rank": 0.0}}),
        ("cpu", 0.625, {"metrics": {"threads_per_rank": 8.0}}),  # on two machines
        ("cpu", 1.25, {"backends": ("torch", "tensorflow")}),  # each against its own
    ],
)
def test_the_efficiency_of_ranks_is_that_of_what_they_add(device, two_s, options) -> None:
    found = [m.metrics for m in ranks(device, {1: 1.0, 2: two_s}, **options).measurements]
    assert not any("scaling_efficiency_fraction" in metrics for metrics in found[::2])
    efficiencies = [metrics["scaling_efficiency_fraction"] for metrics in found[1::2]]
    assert efficiencies == pytest.approx([0.8] * len(efficiencies), rel=0.03)


def test_without_a_single_rank_there_is_no_scaling_efficiency() -> None:
    assert [m.metrics for m in ranks("cpu", {2: 1.0, 4: 1.0}).measurements] == [{}, {}]


def test_a_workloads_own_metrics_are_medians_over_its_blocks() -> None:
    built = changed(
        events({A: steady(1.0)}),
        ev.BlockMeasured,
        metrics=lambda block: {"waiting_fraction": block.round % 3 / 10},
    )
    (found,) = Report.of(built).measurements
    assert found.metrics == {"waiting_fraction": pytest.approx(0.1)}


@pytest.mark.parametrize("world", [1, 2])
def test_the_energy_of_one_gpu_is_not_that_of_several(world: int) -> None:
    found = ranks("cuda:0", {world: 0.5})
    (candidate,) = found.candidates.values()
    candidate.telemetry = watts(counted=200.0)
    joules = pytest.approx(200.0 * candidate.median_s) if world == 1 else None
    assert found.measurements[0].energy_j == joules
