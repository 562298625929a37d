"""Reasons not to race a case, from its work and the machine."""

import math
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from ..contract import LEAST_CAPABILITY, REDUCED, Case, Work, Workload, kind_of
from ..machine import datasheets
from ..machine.host.isa import bound_ops_per_s, lacking, native
from ..machine.packages import onnx_cuda
from ..machine.warnings import lacks_code_for, torch_remedy
from ..records.machine import Cpu, Gpu, Machine, Software
from ..records.reason import Reason
from ..report.candidate import Candidate
from ..report.measurements import flops_per_s
from ..text import units
from ..worker.failures import SHARE_GPU

GPU_SHARE = 0.9  # share of the free GPU memory that a case may take; other processes need some too
NOT_WORTH_RACING = 3.0  # a candidate this many times as slow as the best leaves or does not enter
COMPILE_S = 30.0  # for a training step on two cores, with nothing in torch's cache
AUTOTUNE_S = 90.0  # an estimate for max-autotune, which times many kernels
# A datasheet's peak assumes a rated clock, which cards exceed: the 989 TFLOP/s of an H200 imply
# 1.83 GHz (132 multiprocessors, 4,096 operations a cycle), but NVML reports up to 1.98 GHz.
BEYOND_DATASHEET = 1.25
SMALLER = "choose a smaller size or batch"
WINOGRAD = 4.0  # largest saving of operations (Lavin and Gray 2016, arXiv:1509.09308)


def beforehand(
    case: Case, workload: Workload, machine: Machine, software: Software, *, held_bytes: float = 0.0
) -> Reason | None:
    """Why a case is not tried; `held_bytes` is the memory that others hold on its device."""
    work, have_bytes = workload.work(case), machine.memory.available_bytes
    needed_bytes = work.memory_bytes
    if refusal := beyond_host(work, machine):
        return refusal
    if not kind_of(case.device).on_host:
        gpu = machine.by_device.get(case.device)
        if gpu is None:  # the user named it as a value of a command's {device}
            return Reason("no_device", f"there is no {case.device} here", "see workbench detect")
        if refusal := _not_on(gpu, case, machine, software):
            return refusal
        if gpu.memory_total_bytes is None:
            return None
        have_bytes = int(GPU_SHARE * (gpu.memory_total_bytes - (gpu.memory_used_bytes or 0)))
        if gpu.shares_memory:
            needed_bytes += work.host_bytes
    text, free = f"it needs about {units.size(needed_bytes)}", units.size(have_bytes)
    if needed_bytes > have_bytes:
        return Reason("no_memory", f"{text}, but only {free} may be used", SMALLER)
    if needed_bytes > have_bytes - held_bytes:
        text = f"{text}; other candidates hold {units.size(held_bytes)} of {free}"
        remedy = "race fewer candidates at a time: --precision, --mode, --set"
        return Reason("no_memory", text, remedy)
    return None


def beyond_host(work: Work, machine: Machine) -> Reason | None:
    """Why a case for a GPU cannot be prepared in main memory."""
    have_bytes = machine.memory.available_bytes
    if work.host_bytes <= have_bytes:
        return None
    text = f"preparing it needs about {units.size(work.host_bytes)} of main memory"
    return Reason("no_memory", f"{text}, but only {units.size(have_bytes)} are free", SMALLER)


def _not_on(gpu: Gpu, case: Case, machine: Machine, software: Software) -> Reason | None:
    """Why a case cannot run on this GPU, however much memory is free."""
    package = software.packages.get(case.backend)
    if package is not None and package.detail == "CPU build":
        text = f"this {case.backend} is a CPU build and cannot use the GPU"
        hint = torch_remedy(machine, software.executable)
        if case.backend == "onnxruntime":
            hint = onnx_cuda.remedy(machine, software)
        return Reason(f"cpu_only_{case.backend}", text, hint)
    if case.backend == "onnxruntime":
        if why := onnx_cuda.refusal(case, machine, software):
            return why
        package = software.packages.get(onnx_cuda.GPU_PACKAGE)
    if gpu.compute_mode == "prohibited":
        text = f"{gpu.device} is in compute mode prohibited, which admits no program"
        return Reason("gpu_prohibited", text, f"`sudo nvidia-smi -i {gpu.index} -c DEFAULT`")
    if package is not None and lacks_code_for(package, gpu):
        text = f"a build for {package.detail} has no code for {gpu.device}"
        text += f", whose compute capability is {gpu.compute_capability}"
        return Reason("unsupported_device", text, "install the build that `workbench doctor` names")
    return _beyond(case, gpu)


def _beyond(case: Case, gpu: Gpu) -> Reason | None:
    """Why this model of GPU cannot compute a case; None if it can."""
    for wanted in (case.precision, *case.mode_words, *(["compile"] if case.is_compiled else [])):
        least = LEAST_CAPABILITY.get(wanted, (0, 0))
        if gpu.is_below(least):
            text = f"{case.device} has no {wanted}: its compute capability is"
            text += f" {gpu.compute_capability}, below {least[0]}.{least[1]}"
            return Reason("unsupported_precision", text, "choose fp32 or fp16, without compile")
    return None


def taken(device: str, machine: Machine, why: str, remedy: str = SHARE_GPU) -> Reason | None:
    """Why a case cannot have a GPU that admits one process at a time; `why` names the others."""
    if device not in machine.exclusive:
        return None
    return Reason("exclusive_gpu", f"{device} admits one process at a time, and {why}", remedy)


def unpriced(case: Case, objective: str, price_per_hour: float | None) -> Reason | None:
    if objective != "cost" or price_per_hour is not None:
        return None
    remedy = f"add --price {case.device_kind}=PER_HOUR"
    return Reason("no_price", f"no price is known for {case.device}: {remedy}", remedy)


def compiling_s(case: Case, compile_s: float = COMPILE_S) -> float:
    """Seconds that compiling a case may take, where others of its workload took `compile_s`."""
    if "max-autotune" in case.mode_words:
        return max(compile_s, AUTOTUNE_S)
    return compile_s if case.is_compiled else 0.0


def small_probe_of(case: Case, workload: Workload, cpu: Cpu | None) -> tuple[Case, Case] | None:
    """A small case and its FP32 counterpart, to be timed before `case` is prepared.

    None if the precision is not a reduced one, or the processor has it natively.
    """
    if case.precision not in REDUCED or (cpu is not None and native(case.precision, cpu)):
        return None
    small = workload.small_probe(case) if case.device_kind == "cpu" else None
    if small is None:
        return None
    return small, replace(small, precision="fp32", quantization=None)


def slower_precision(
    case: Case, factor: float, where: str, cpu: Cpu | None, shown: float | None = None
) -> Reason | None:
    """Why a reduced precision that takes `factor` times the time of FP32 is not worth racing.

    None if it is.  `where` says at which job or when, and `shown` is the factor to name.
    """
    if factor < NOT_WORTH_RACING:
        return None
    missing = lacking(case.precision, cpu) if cpu and case.device_kind == "cpu" else None
    name = case.precision if case.quantization is None else f"{case.quantization} {case.precision}"
    why = f": this CPU has no {missing}" if missing else ""
    text = f"{name} is {units.ratio(shown or factor)} slower than fp32 {where}{why}"
    return Reason("slower_precision", text, "use fp32 here")


def slower_in_any_mode(
    case: Case, candidates: Mapping[str, Candidate], cpu: Cpu | None
) -> Reason | None:
    """Why a mode of an emulated precision is not tried: without it, it was far slower than FP32."""
    emulates = cpu is not None and lacking(case.precision, cpu) is not None
    if case.mode is None or case.device_kind != "cpu" or not emulates:
        return None
    usual = replace(case, mode=None)
    found = candidates.get(usual.id), candidates.get(replace(usual, precision="fp32").id)
    known = found[0].reason if found[0] is not None else None
    if known is not None and known.code == "slower_precision":
        text = f"{known.message} (measured without {case.mode})"
        return msgspec.structs.replace(known, message=text)
    slow, fast = (each.warmup.step_s if each is not None else None for each in found)
    if not slow or not fast:
        return None
    return slower_precision(usual, slow / fast, f"without {case.mode}", cpu)


def most_ops_per_s(case: Case, machine: Machine, ranks: int = 1) -> float:
    """Operations per second that a case's devices cannot exceed: the bound of the CPU's instruction
    set, or 1.25 times the peak of the GPU's datasheet (assets/devices.toml); infinite if unknown.
    """
    if case.device == "cpu":
        bound = bound_ops_per_s(case.precision, machine.cpu, _threads(case, machine))
        return (bound or math.inf) * ranks  # ranks may run on as many machines
    gpu = machine.by_device.get(case.device)
    sheet = datasheets.load().get(gpu.name or "") if gpu else None
    peak = sheet.peak_ops_per_s.get(case.precision, math.inf) if sheet else math.inf
    # With FP16 sums, which TensorRT may use, GeForce cards are twice as fast (Ada whitepaper).
    narrow = 2.0 if case.precision == "fp16" and "tensorrt" in case.mode_words else 1.0
    return BEYOND_DATASHEET * peak * narrow * ranks


def impossible_rate(candidate: Candidate, machine: Machine, *, convolves: bool) -> Reason | None:
    """Why the rate of a candidate is an error; None if its device can reach it.

    `convolves` as in `Workload`: algorithms for convolutions may save operations.
    """
    case, ranks, ops_per_s = candidate.case, candidate.work.ranks, flops_per_s(candidate) or 0.0
    bound = most_ops_per_s(case, machine, ranks) * (WINOGRAD if convolves else 1.0)
    if ops_per_s <= bound:
        return None
    where, source = case.device, " (datasheet peak plus 25%)"
    if case.device == "cpu":
        where, source = f"{units.counted(_threads(case, machine) * ranks, 'core')} of this CPU", ""
    rate, most = (units.rate(each, units.per_s(case.precision)) for each in (ops_per_s, bound))
    text = f"{rate} is beyond the {most} that {where} can reach in {case.precision}{source}"
    hint = "do not trust it: the workload does less work than it declares, or the clock is wrong"
    return Reason("impossible_rate", text, hint)


def _threads(case: Case, machine: Machine) -> int:
    return case.threads or machine.cpu.effective_cores
