"""Derives from the instruction set whether a precision is native, and an upper bound of its rate.

Operations per cycle and core count a multiply-add as two, with two vector units of the widest
kind: Intel 64 and IA-32 Architectures Optimization Reference Manual (AVX2 and AVX-512 FMA, VNNI,
AMX: 1,024 BF16 and 2,048 INT8 operations per cycle), Software Optimization Guide for AMD Zen 4
and Zen 5 (no more than these).  The bound can prove a rate impossible, not that it is good.  It
assumes a very high clock, since Linux may report one without boost (see
`topology.max_frequency_mhz`).
"""

from ...records.machine import Cpu
from ...text.units import listed

X86 = ("x86_64", "AMD64", "i686")
FASTEST_CLOCK_HZ = 6.5e9  # above any processor sold

# Reduced precision -> the extensions that make it native, each one alone: on x86, and on others.
_NATIVE: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "fp16": ({"avx512_fp16": "AVX512-FP16"}, {}),
    "bf16": ({"avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX"}, {"bf16": "the BF16 extension"}),
    "int8": (
        {"avx512_vnni": "AVX512-VNNI", "avx_vnni": "AVX-VNNI", "amx_int8": "AMX"},
        {"asimddp": "dot products", "i8mm": "I8MM"},
    ),
}

# Operations per cycle and core by extension; the largest of those present counts.
_PER_CYCLE = {
    "fp64": {"avx2": 16, "avx512f": 32},
    "fp32": {"avx2": 32, "avx512f": 64},
    "bf16": {"avx2": 32, "avx512f": 64, "avx512_bf16": 128, "amx_bf16": 1024},
    "fp16": {"avx2": 32, "avx512f": 64, "avx512_fp16": 128, "amx_tile": 1024},
    "int8": {"avx2": 128, "avx512f": 256, "avx512_vnni": 256, "amx_int8": 2048},
}


def native(precision: str, cpu: Cpu) -> bool:
    """Whether this CPU is known to have an extension for `precision`."""
    return having(precision, cpu) is not None


def having(precision: str, cpu: Cpu) -> str | None:
    """The extensions for `precision` that this CPU is known to have, in words; None if none."""
    names = [name for name, has in _extensions(precision, cpu).items() if has]
    return listed(names) if names else None


def lacking(precision: str, cpu: Cpu) -> str | None:
    """The extensions for `precision`, in words, if this CPU is known to have none, else None."""
    known = _extensions(precision, cpu)
    return " or ".join(known) if set(known.values()) == {False} else None


def _extensions(precision: str, cpu: Cpu) -> dict[str, bool | None]:
    """Whether this CPU has each extension of its architecture for `precision`; None: unknown."""
    x86, others = _NATIVE.get(precision, ({}, {}))
    names = x86 if cpu.architecture in X86 else others
    return {name: getattr(cpu.isa, field) for field, name in names.items()}


def bound_ops_per_s(precision: str, cpu: Cpu, threads: int) -> float | None:
    """Operations per second that `threads` cores cannot exceed; None if unknown."""
    if cpu.architecture not in X86:
        return None  # flags do not show coprocessors such as Apple's AMX
    rates = _PER_CYCLE.get(precision, {})
    per_cycle = max((rates[field] for field in rates if getattr(cpu.isa, field)), default=None)
    if per_cycle is None:
        return None
    clock = max(FASTEST_CLOCK_HZ, (cpu.max_frequency_mhz or 0.0) * 1e6)
    return per_cycle * clock * min(threads, cpu.logical_cores)
