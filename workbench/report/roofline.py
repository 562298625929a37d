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


def bandwidth(candidate: Candidate, device: DeviceCeilings) -> tuple[str, float | None]:
    """The memory that bounds the candidate, "cache" if its work fits there, and its bytes/s."""
    if candidate.work.memory_bytes <= (device.cache_bytes or 0):
        return "cache", device.cache_bytes_per_s
    return "memory", device.memory_bytes_per_s


def under_ceilings(
    candidate: Candidate, rate: float | None, ceilings: Ceilings | None
) -> tuple[float | None, Roofline | None]:
    """`rate` over the peak of its precision, at most 1, and its place under the roofs; None where
    work, traffic or ceilings are unknown.

    Work that fits into the last-level cache is compared with the bandwidth of that cache.
    """
    device = device_ceilings(candidate, ceilings)
    peak = device.peak_ops_per_s.get(candidate.case.precision) if device else None
    if device is None or not rate or not peak:
        return None, None
    fraction, (slanted, bytes_per_s) = min(rate / peak, 1.0), bandwidth(candidate, device)
    if not candidate.work.flops or not candidate.work.bytes_moved or not bytes_per_s:
        return fraction, None
    intensity = candidate.work.flops / candidate.work.bytes_moved
    attainable = max(min(peak, intensity * bytes_per_s), rate)
    return fraction, Roofline(
        intensity_flops_per_byte=intensity,
        attainable_flops_per_s=attainable,
        fraction=rate / attainable,
        limited_by=slanted if intensity * bytes_per_s < peak else "compute",
    )
