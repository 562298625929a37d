"""`workbench watch`: one look at processor and GPUs after the other, for as long as one wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from ..records.machine import GpuReading, HostReading, Machine
from ..records.reason import Reason
from .host.readings import HostReader
from .nvidia.sampler import GpuSampler

FIRST_S = 0.2  # a share of use needs two readings
GPUS_AT_MOST_S = 5.0  # between readings: the process that takes them is given up when it is silent


class Snapshot(msgspec.Struct, frozen=True):
    """The machine at one moment; `gap` says why the GPUs' readings are missing or old."""

    time: str  # ISO 8601, UTC
    host: HostReading
    gpus: list[GpuReading]
    gap: Reason | None = None


def looks(
    machine: Machine,
    *,
    every_s: float,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Snapshot]:
    """A look every `every_s` seconds until the caller stops asking."""
    indices = [gpu.index for gpu in machine.gpus if gpu.index is not None]
    host = HostReader()
    sampler = None
    if indices and machine.nvml.available:
        sampler = GpuSampler(indices, every_s=min(every_s, GPUS_AT_MOST_S))
    try:
        sleep(min(every_s, FIRST_S))
        readings: dict[int, GpuReading] = {}
        while True:
            gap = None
            for pulse in sampler.drain() if sampler else ():
                gap = pulse.reason
                readings |= {reading.index: reading for reading in pulse.gpus}
                if gap is not None:
                    readings = {}  # nothing old may pass for new
            stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            yield Snapshot(stamp, host.read(), list(readings.values()), gap)
            sleep(every_s)
    finally:
        if sampler is not None:
            sampler.close()
