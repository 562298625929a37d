"""The roofline model: results compared with the measured ceilings of a machine.

A rate is bounded by the peak of its precision and by memory bandwidth times arithmetic intensity
(Williams, Waterman and Patterson 2009).
"""

from __future__ import annotations

from ..records.document import Ceilings, DeviceCeilings, Roofline
from .candidate import Candidate


def device_ceilings(candidate: Candidate, ceilings: Ceilings | None) -> DeviceCeilings | None:
    """The ceilings of the candidate's device; on a CPU those of all usable cores."""
    if ceilings is None or candidate.simulated:
        return None
    return next((d for d in ceilings.devices if d.device == candidate.case.device), None)


def peak_fraction(
    candidate: Candidate, rate: float | None, ceilings: Ceilings | None
) -> float | None:
    """`rate` over the peak of the case's precision, at most 1; None if the peak is unknown."""
    device = device_ceilings(candidate, ceilings)
    peak = device.peak_ops_per_s.get(candidate.case.precision) if device else None
    return min(rate / peak, 1.0) if rate and peak else None


def bandwidth(candidate: Candidate, device: DeviceCeilings) -> tuple[str, float | None]:
    """The memory that bounds the candidate, "cache" if its work fits there, and its bytes/s."""
    if candidate.work.memory_bytes <= (device.cache_bytes or 0):
        return "cache", device.cache_bytes_per_s
    return "memory", device.memory_bytes_per_s


def roofline(
    candidate: Candidate, rate: float | None, ceilings: Ceilings | None
) -> Roofline | None:
    """The place of `rate` under the roofs; None if work, traffic or ceilings are unknown.

    Work that fits into the last-level cache is compared with the bandwidth of that cache.
    """
    device = device_ceilings(candidate, ceilings)
    flops, moved = candidate.work.flops, candidate.work.bytes_moved
    peak = device.peak_ops_per_s.get(candidate.case.precision) if device else None
    if device is None or not rate or not flops or not moved or not peak:
        return None
    slanted, bytes_per_s = bandwidth(candidate, device)
    if not bytes_per_s:
        return None
    intensity = flops / moved
    below_ridge = intensity * bytes_per_s < peak
    attainable = max(min(peak, intensity * bytes_per_s), rate)
    return Roofline(
        intensity_flops_per_byte=intensity,
        attainable_flops_per_s=attainable,
        fraction=rate / attainable,
        limited_by=slanted if below_ridge else "compute",
    )
