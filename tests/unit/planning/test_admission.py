"""Reasons not to race a case: bounds and gaps of instruction sets, slow precisions."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from builders import case, machine
from fakes import IdleWorkload
from hypothesis import given, strategies as st

from workbench import catalog
from workbench.contract import PRECISIONS, Case, Work, Workload
from workbench.machine.host.isa import bound_ops_per_s, having, lacking
from workbench.planning import admission
from workbench.records import events as ev
from workbench.records.document import WarmUp
from workbench.records.machine import Cpu, Isa, Machine, Package, Software
from workbench.records.reason import Reason
from workbench.report.candidate import Candidate
from workbench.text import units

EVERY = dict.fromkeys(Isa.__struct_fields__, False)


def cpu(architecture: str = "x86_64", mhz: float | None = None, **isa: bool | None) -> Cpu:
    return msgspec.structs.replace(
        machine().cpu,
        architecture=architecture,
        max_frequency_mhz=mhz,
        isa=Isa(**{**EVERY, "avx2": architecture == "x86_64", **isa}),
    )


@pytest.mark.parametrize(
    ("precision", "isa", "missing"),
    [
        ("fp16", {}, "AVX512-FP16"),
        ("fp16", {"avx512_fp16": True}, None),
        ("bf16", {}, "AVX512-BF16 or AMX"),
        ("bf16", {"amx_bf16": True}, None),
        ("int8", {"avx512f": True}, "AVX512-VNNI or AVX-VNNI or AMX"),
        ("int8", {"avx_vnni": True}, None),
        ("bf16", {"avx512_bf16": None}, None),  # the kernel did not say
        ("fp32", {}, None),
    ],
)
def test_the_extensions_a_precision_lacks(precision: str, isa: dict, missing: str | None) -> None:
    assert lacking(precision, cpu(**isa)) == missing


def test_three_extensions_are_a_list() -> None:
    found = cpu(avx512_vnni=True, avx_vnni=True, amx_int8=True)
    assert having("int8", found) == "AVX512-VNNI, AVX-VNNI and AMX"


def test_on_arm_other_extensions_count() -> None:
    assert lacking("int8", cpu("aarch64")) == "dot products or I8MM"
    assert lacking("int8", cpu("aarch64", asimddp=True)) is None
    assert lacking("fp16", cpu("aarch64")) is None  # not read there: nothing is claimed


def test_the_bound_of_an_instruction_set_worked_by_hand() -> None:
    # 16 lanes, two units, two operations per multiply-add, 7 GHz, 4 cores.
    assert bound_ops_per_s("fp32", cpu(mhz=7000, avx512f=True), 4) == 16 * 2 * 2 * 7e9 * 4
    assert bound_ops_per_s("fp64", cpu(mhz=7000), 1) == 4 * 2 * 2 * 7e9
    assert bound_ops_per_s("fp32", cpu(mhz=7000), 999) == 8 * 2 * 2 * 7e9 * 8  # it has 8 cores
    assert bound_ops_per_s("fp32", cpu("arm64"), 4) is None
    assert bound_ops_per_s("fp32", cpu(avx2=None), 4) is None


def test_a_clock_reported_without_its_boost_does_not_lower_the_bound() -> None:
    # An EPYC 7451 under acpi-cpufreq reports 2300 MHz and runs at 2894 and more.
    reported, unknown = cpu(mhz=2250), cpu()
    bounds = [bound_ops_per_s("fp32", each, 1) for each in (reported, unknown)]
    assert bounds[0] == bounds[1] > 98e9


@given(st.sampled_from(PRECISIONS), st.integers(1, 64))
def test_more_extensions_and_threads_never_lower_the_bound(precision: str, threads: int) -> None:
    few, many = cpu(), cpu(**dict.fromkeys(EVERY, True))
    lower, upper = (bound_ops_per_s(precision, c, threads) for c in (few, many))
    assert (lower is None) == (upper is None)
    assert lower is None or lower <= upper
    assert lower is None or lower <= bound_ops_per_s(precision, few, threads + 1)


def beyond(
    of: Case, ops_per_s: float, here: Machine, *, ranks: int = 1, convolves: bool = False
) -> Reason | None:
    """The reason against a candidate with this rate."""
    work = Work(ops_per_s, None, 1.0, "runs", 0.0, ranks=ranks)
    block = ev.BlockMeasured(
        at_s=0, case=of.id, scenario="row", round=0, samples_s=[1.0], lead_in_s=[], loss=None
    )
    candidate = Candidate(of, "row", "throughput", work, blocks=[block])
    return admission.impossible_rate(candidate, here, convolves=convolves)


def test_a_rate_beyond_the_bound_is_an_error_and_one_below_is_none() -> None:
    here = msgspec.structs.replace(machine(), cpu=cpu(mhz=3000))
    fp32 = case("cpu-a")
    bound = bound_ops_per_s("fp32", here.cpu, fp32.threads)
    assert beyond(fp32, bound, here) is None
    found = beyond(fp32, 1.01 * bound, here)
    assert found.code == "impossible_rate"
    assert "8 cores" in found.message


def with_card(name: str) -> Machine:
    here = machine("cuda:0")
    return msgspec.structs.replace(here, gpus=[msgspec.structs.replace(here.gpus[0], name=name)])


def test_a_listed_gpu_cannot_exceed_its_datasheet_by_more_than_a_quarter() -> None:
    here, bf16 = with_card("NVIDIA H200"), case("cuda:0-a", "bf16")
    assert beyond(bf16, 1.08 * 989e12, here) is None  # at its highest clock
    found = beyond(bf16, 50e15, here)
    assert found.code == "impossible_rate"
    assert found.message.startswith("50.0 PFLOP/s is beyond the 1.24 PFLOP/s that cuda:0 can reach")
    assert beyond(bf16, 8 * 989e12, here, ranks=8) is None
    assert beyond(bf16, 2 * 989e12, here, convolves=True) is None
    assert beyond(bf16, 50e15, here, convolves=True) is not None


def test_a_gpu_or_precision_that_is_not_listed_has_no_bound() -> None:
    bf16, fp8 = case("cuda:0-a", "bf16"), case("cuda:0-a", "fp8")
    assert beyond(bf16, 1e30, with_card("NVIDIA Unheard-of")) is None
    assert beyond(fp8, 1e30, with_card("NVIDIA L40S")) is None


@pytest.mark.parametrize(("precision", "peak"), [("tf32", 494.5e12), ("fp8", 1979e12)])
def test_the_tensor_cores_of_a_hopper_card_bound_its_narrow_precisions(precision, peak) -> None:
    on_card = case("cuda:0-a", precision)
    assert beyond(on_card, 1.2 * peak, with_card("NVIDIA H200")) is None
    found = beyond(on_card, 1.3 * peak, with_card("NVIDIA H200"))
    assert found is not None and found.code == "impossible_rate"


def test_tensorrt_may_sum_in_fp16_which_geforce_cards_do_at_twice_the_rate() -> None:
    here, fp16 = with_card("NVIDIA GeForce RTX 4090"), case("cuda:0-a", "fp16")
    assert beyond(fp16, 280e12, here) is not None
    assert beyond(replace(fp16, mode="tensorrt"), 280e12, here) is None
    assert beyond(replace(fp16, mode="tensorrt"), 450e12, here) is not None


def test_a_slow_reduced_precision_is_reported_with_the_missing_extension() -> None:
    fp16 = case("cpu-a", "fp16")
    found = admission.slower_precision(fp16, 212.4, "in matmul[n=256]", cpu())
    assert found.code == "slower_precision"
    assert found.message == (
        "fp16 is 212x slower than fp32 in matmul[n=256]: this CPU has no AVX512-FP16"
    )
    native = admission.slower_precision(fp16, 5, "here", cpu(avx512_fp16=True))
    assert native.message == "fp16 is 5.00x slower than fp32 here"
    assert admission.slower_precision(fp16, 2.9, "here", cpu()) is None


def test_no_mode_of_an_emulated_precision_is_tried_that_was_far_slower_without_it() -> None:
    fp32, bf16 = case("cpu-a"), case("cpu-a", "bf16")
    nhwc = replace(bf16, mode="nhwc")
    candidates = {
        each.id: SimpleNamespace(warmup=WarmUp(step_s=step_s), reason=None)
        for each, step_s in ((fp32, 0.02), (bf16, 0.28))
    }
    found = admission.slower_in_any_mode(nhwc, candidates, cpu())
    assert found.message == (
        "bf16 is 14.0x slower than fp32 without nhwc: this CPU has no AVX512-BF16 or AMX"
    )
    assert admission.slower_in_any_mode(bf16, candidates, cpu()) is None
    assert admission.slower_in_any_mode(nhwc, candidates, cpu(avx512_bf16=True)) is None
    candidates[bf16.id].warmup = WarmUp(step_s=0.05)
    assert admission.slower_in_any_mode(nhwc, candidates, cpu()) is None, "a layout may help"
    candidates[bf16.id].warmup = WarmUp()
    assert admission.slower_in_any_mode(nhwc, candidates, cpu()) is None, "not prepared"
    candidates[bf16.id].reason = admission.slower_precision(bf16, 14, "at 4 px", cpu())
    found = admission.slower_in_any_mode(nhwc, candidates, cpu())
    assert found.code == "slower_precision"
    assert found.message == (
        "bf16 is 14.0x slower than fp32 at 4 px: this CPU has no AVX512-BF16 or AMX"
        " (measured without nhwc)"
    )


def test_small_probes_are_for_reduced_precisions_on_a_cpu() -> None:
    matmul = catalog.load("matmul")
    large = Case("matmul", "cpu", "torch", "fp16", threads=2, params=matmul.values({"n": 4096}))
    small, like = admission.small_probe_of(large, matmul, None)
    assert small.params["n"] < 1024
    assert (small.precision, like.precision) == ("fp16", "fp32")
    assert small.params == like.params
    on_gpu = Case("matmul", "cuda:0", "torch", "fp16", params=matmul.values({"n": 4096}))
    assert admission.small_probe_of(on_gpu, matmul, None) is None
    native = msgspec.structs.replace(machine().cpu, isa=Isa(avx512_fp16=True))
    assert admission.small_probe_of(large, matmul, native) is None


# --------------------------------------------------------------- before a start


class Weighty(IdleWorkload):
    """A workload whose preparation needs 40 GB of main memory."""

    def work(self, case: Case) -> Work:
        return Work(None, None, 1.0, "steps", 8.0, host_bytes=40e9)


def refusal(
    of: Case, *, workload: Workload | None = None, build: str = "CUDA 12.6", **card: str | None
) -> Reason | None:
    here = machine("cuda:0")
    gpu = msgspec.structs.replace(here.gpus[0], **card)
    software = Software("3.11", "python", {"torch": Package("2.13", build)}, {})
    here = msgspec.structs.replace(here, gpus=[gpu])
    return admission.beforehand(of, workload or IdleWorkload(), here, software)


def test_a_cpu_build_on_a_machine_with_a_gpu_names_the_build_to_install() -> None:
    found = refusal(case("cuda:0-a"), build="CPU build", compute_capability="7.0")
    assert found is not None and found.code == "cpu_only_torch"
    assert "pip install --force-reinstall torch" in found.hint and "whl/cu126" in found.hint


@pytest.mark.parametrize(
    ("capability", "precision", "mode", "lacks"),
    [
        ("7.5", "bf16", None, "bf16"),
        ("7.5", "tf32", None, "tf32"),
        ("8.0", "fp8", None, "fp8"),
        ("8.9", "fp8", None, None),
        ("12.0", "fp8", "compile", None),
        ("6.1", "fp32", "nhwc+compile", "compile"),
        ("7.0", "fp16", "compile", None),
        (None, "fp8", None, None),
    ],
)
def test_a_precision_that_a_card_lacks_is_refused_before_anything_is_drawn(
    capability: str | None, precision: str, mode: str | None, lacks: str | None
) -> None:
    wanted = replace(case("cuda:0-a", precision), mode=mode)
    found = refusal(wanted, compute_capability=capability)
    assert (found is None) == (lacks is None)
    if found is not None:
        assert found.code == "unsupported_precision"
        assert f"has no {lacks}: its compute capability is {capability}" in found.message


@pytest.mark.parametrize(
    ("build", "capability", "code"),
    [
        ("CUDA 13.0", "7.0", "unsupported_device"),
        ("CUDA 13.0", "7.5", None),
        ("CUDA 12.6", "6.1", None),
        ("ROCm 7.0", "7.0", None),
        ("CUDA 13.0", None, None),
    ],
)
def test_a_card_that_cuda_13_has_dropped_is_refused_without_a_start(
    build: str, capability: str | None, code: str | None
) -> None:
    found = refusal(case("cuda:0-a"), build=build, compute_capability=capability)
    assert (found and found.code) == code


def test_a_card_that_admits_no_program_is_refused_without_a_start() -> None:
    found = refusal(case("cuda:0-a"), compute_mode="prohibited")
    assert found is not None and found.code == "gpu_prohibited" and "-c DEFAULT" in found.hint
    assert refusal(case("cuda:0-a"), compute_mode="exclusive_process") is None


def test_main_memory_that_preparing_for_a_gpu_needs_is_refused_too() -> None:
    found = refusal(case("cuda:0-a"), workload=Weighty())
    assert found is not None and found.code == "no_memory"
    assert "37.3 GiB of main memory, but only 8 GiB are free" in found.message


@pytest.mark.parametrize(
    ("name", "params"), [("matmul", {"n": 65536}), ("gemm", {"m": 65536, "n": 65536, "k": 65536})]
)
def test_operands_that_the_host_cannot_hold_are_refused(name: str, params: dict[str, int]) -> None:
    product = catalog.load(name)
    wanted = Case(name, "cuda:0", "torch", "fp32", params=product.values(params))
    found = refusal(wanted, workload=product, memory_total_bytes=141 * 10**9)
    assert found is not None and "main memory" in found.message
    small = replace(wanted, params=product.values({}))
    assert refusal(small, workload=product, memory_total_bytes=141 * 10**9) is None


def test_a_training_is_refused_for_the_memory_that_its_check_takes_on_the_host() -> None:
    training, card = catalog.load("train_gpt"), {"memory_total_bytes": 141 * 10**9}
    params = training.values({"width": 1024, "blocks": 40})  # 504 million weights
    wanted = Case("train_gpt", "cuda:0", "torch", "fp32", batch=1, params=params)
    found = refusal(wanted, workload=training, **card)
    assert found is not None and "9.39 GiB of main memory" in found.message
    small = replace(wanted, params=training.values({"width": 1024, "blocks": 30}))
    assert refusal(small, workload=training, **card) is None
    # Its check takes nothing of the card's memory: 7.6 GB are for the steps.
    assert refusal(small, workload=training, memory_total_bytes=10 * 10**9) is None
    # Other programs use 2 GB.
    used = {"memory_total_bytes": 10 * 10**9, "memory_used_bytes": 2 * 10**9}
    found = refusal(small, workload=training, **used)
    assert found is not None and found.code == "no_memory" and "GiB may be used" in found.message


def test_both_needs_come_out_of_the_memory_that_a_gpu_shares_with_its_host() -> None:
    training, card = catalog.load("train_gpt"), {"memory_total_bytes": 10 * 10**9}
    params = training.values({"width": 1024, "blocks": 30})
    wanted = Case("train_gpt", "cuda:0", "torch", "fp32", batch=1, params=params)
    assert refusal(wanted, workload=training, **card) is None
    shared = {"unavailable": {"memory_total_bytes": "not supported"}}  # GB10, Jetson
    found = refusal(wanted, workload=training, **card, **shared)
    work = training.work(wanted)
    both = units.size(work.memory_bytes + work.host_bytes)
    assert found is not None and found.message.startswith(f"it needs about {both}, but only")


def test_a_command_for_a_gpu_that_is_not_here_is_refused() -> None:
    found = refusal(case("cuda:3-a"))
    assert found is not None and found.code == "no_device"
    assert found.message == "there is no cuda:3 here"
