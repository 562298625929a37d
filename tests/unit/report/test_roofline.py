"""The roofline: which roof limits a result, and where no roof is known."""

from builders import ceilings as build_ceilings, changed, events, scenario
from msgspec.structs import replace

from workbench.contract import Case, Work
from workbench.records import events as ev
from workbench.records.document import Ceilings
from workbench.report.candidate import Candidate
from workbench.report.measurements import under_ceilings
from workbench.report.report import Report

THIN = Case("gemm", "cuda:0", "torch", "fp32", batch=1, params={"m": 1})
IN_CACHE, BEYOND = 8 << 20, 1 << 30  # bytes that a case works on


def candidate(memory_bytes: float, ranks: int = 1) -> Candidate:
    work = Work(2e6, 1e7, 1, "products", memory_bytes, ranks=ranks)
    raced = events({THIN: [[1e-4] * 12]}, row=scenario(), gpus=["cuda:0"])
    built = changed(raced, ev.RacePlanned, work={THIN.id: work})
    return Report.of(built).candidates[THIN.id]


def gpu(cache_bytes_per_s: float | None) -> Ceilings:
    found = build_ceilings("cuda:0", peak=1e13, bandwidth=1e11)
    fields = {"cache_bytes": 32 << 20, "cache_bytes_per_s": cache_bytes_per_s}
    device = replace(found.devices[0], **fields)
    return replace(found, devices=[device])


def test_what_fits_into_the_l2_cache_of_a_gpu_is_limited_by_that_cache() -> None:
    rate = 3e10  # 150 GB/s: more than memory delivers
    roof = under_ceilings(candidate(IN_CACHE), rate, gpu(4e11))[1]
    assert roof.limited_by == "cache"
    assert 0.3 < roof.fraction < 0.4, "not the whole limit, as memory would have it"


def test_what_does_not_fit_is_limited_by_memory() -> None:
    roof = under_ceilings(candidate(BEYOND), 1.5e10, gpu(4e11))[1]
    assert roof.limited_by == "memory"
    assert 0.7 < roof.fraction < 0.8


def test_many_gpus_have_the_limits_of_all_of_them() -> None:
    fraction, roof = under_ceilings(candidate(BEYOND, ranks=8), 4e10, gpu(4e11))
    assert fraction == 4e10 / 8e13
    assert roof.attainable_flops_per_s == 8 * 2e10


def test_a_cache_whose_bandwidth_was_not_measured_is_no_memory() -> None:
    assert under_ceilings(candidate(IN_CACHE), 3e10, gpu(None))[1] is None
