"""Why a case is not raced, or no longer: pure functions of what is known of it and the machine."""

from __future__ import annotations

from dataclasses import replace

from .contract import Case, Workload, is_cuda
from .document import Cpu, Machine, Reason, Software
from .machine.isa import bound_ops_per_s, lacking, native

GPU_SHARE = 0.9  # of the free memory; the rest stays free for whoever else is there
SLOWER_THAN_WORTH = 3.0  # times: a reduced precision this far behind FP32 is not raced on
COMPILE_S = 30.0  # of a training step on two cores, with nothing in torch's cache
REDUCED = ("bf16", "fp16", "int8")


def beforehand(
    case: Case,
    workload: Workload,
    machine: Machine,
    software: Software | None,
    *,
    held_bytes: float = 0.0,
) -> Reason | None:
    """Why a case is not even tried; `held_bytes` is what other contenders hold on its device."""
    need, have = workload.work(case).memory_bytes, machine.memory.available_bytes
    if is_cuda(case.device):
        torch = software.packages.get("torch") if software else None
        cpu_only = torch is not None and torch.detail == "CPU build"
        if case.backend == "torch" and cpu_only:
            return Reason(
                "cpu_only_torch",
                "this torch is a CPU build and cannot use the GPU",
                "install a CUDA build: see the warning at the top, or workbench detect",
            )
        gpu = next(g for g in machine.gpus if g.device == case.device)
        if gpu.memory_total_bytes is None:
            return None
        have = int(GPU_SHARE * (gpu.memory_total_bytes - (gpu.memory_used_bytes or 0)))
    if need > have:
        return Reason(
            "no_memory",
            f"it needs about {need / 2**30:.1f} GiB, {have / 2**30:.1f} GiB are free",
            "take a smaller size or batch",
        )
    if need > have - held_bytes:
        return Reason(
            "no_memory",
            f"it needs about {need / 2**30:.1f} GiB beside the {held_bytes / 2**30:.1f} GiB that "
            f"other contenders hold, and {have / 2**30:.1f} GiB are there",
            "race it with fewer others: --precision, --mode, --set",
        )
    return None


def unpriced(case: Case, objective: str, price_per_hour: float | None) -> Reason | None:
    """Why a case cannot be raced for its cost."""
    if objective != "cost" or price_per_hour is not None:
        return None
    remedy = f"add --price {case.device_kind}=PER_HOUR"
    return Reason("no_price", f"no price was given for {case.device}: {remedy}", remedy)


def is_compiled(case: Case) -> bool:
    return "compile" in (case.mode or "").split("+")


def too_long_to_compile(case: Case, left_s: float) -> Reason | None:
    """Why a compiled contender does not fit into what its row has left."""
    if not is_compiled(case) or left_s >= COMPILE_S:
        return None
    return Reason(
        "budget",
        f"compiling takes up to {COMPILE_S:.0f} s, {left_s:.0f} s are left",
        "give it a larger --budget",
    )


def scouting(case: Case, workload: Workload, cpu: Cpu | None) -> tuple[Case, Case] | None:
    """A small case and its like in FP32, to be timed before `case` is; None: no need to, as where
    the processor has the precision."""
    if case.precision not in REDUCED or (cpu is not None and native(case.precision, cpu)):
        return None
    small = workload.miniature(case) if case.device_kind == "cpu" else None
    if small is None:
        return None
    return small, replace(small, precision="fp32", quantization=None)


def slower_precision(case: Case, factor: float, where: str, cpu: Cpu | None) -> Reason | None:
    """A reduced precision that is `factor` times slower than FP32 at the same job, and why."""
    if factor < SLOWER_THAN_WORTH:
        return None
    missing = lacking(case.precision, cpu) if cpu and case.device_kind == "cpu" else None
    name = case.precision if case.quantization is None else f"{case.quantization} {case.precision}"
    why = f": this CPU has no {missing}" if missing else ""
    return Reason(
        "slower_precision",
        f"{name} is {factor:.0f}x slower than fp32 {where}{why}",
        "use fp32 here",
    )


def impossible_rate(
    case: Case, ops_per_s: float, machine: Machine, ranks: int = 1
) -> Reason | None:
    """A rate beyond what the instruction set allows: the workload, or a clock, is wrong."""
    if case.device != "cpu":
        return None
    # Ranks on other machines have as many each.
    threads = (case.threads or machine.cpu.effective_cores) * ranks
    bound = bound_ops_per_s(case.precision, machine.cpu, threads)
    if bound is None or ops_per_s <= bound:
        return None
    return Reason(
        "impossible_rate",
        f"{ops_per_s / 1e9:.0f} GFLOP/s is beyond the {bound / 1e9:.0f} GFLOP/s that "
        f"{threads} cores of this CPU can reach in {case.precision}",
        "the workload does less than it says, or the clock is wrong: do not trust it",
    )
