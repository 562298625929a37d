"""The data of `workbench watch`: CPU and GPUs, read repeatedly."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from ..records.inspection import Snapshot
from ..records.machine import GpuReading, Machine
from .host.readings import HostReader
from .nvidia.gpus import as_detected
from .nvidia.probe_client import GpuSampler, silence

FIRST_S = 0.2  # before the first snapshot: utilization needs two readings
NVML_STARTS_S = 5.0  # for GPU readings in the first snapshot, which are slow without persistence
# Longest interval for reading GPUs, since a silent process counts as hanging.
GPUS_EVERY_S = 5.0
OLD_S = 2 * GPUS_EVERY_S  # age of a reading that is not shown as current: NVML may hang


def snapshots(
    machine: Machine, *, every_s: float, sleep: Callable[[float], object] = time.sleep
) -> Iterator[Snapshot]:
    """A snapshot every `every_s` seconds until the caller stops asking."""
    indices = [gpu.index for gpu in machine.watched if gpu.index is not None]
    host = HostReader()
    sampler = None
    if indices:
        often = min(every_s, GPUS_EVERY_S)
        sampler = GpuSampler(indices, every_s=often, vendor=machine.vendor)
    try:
        pause_s, gap, silent_s = min(every_s, FIRST_S), None, 0.0
        patience_s = NVML_STARTS_S if sampler else 0.0
        readings: dict[int, GpuReading] = {}
        while True:
            while pause_s > 0 or patience_s > 0:
                step_s = min(pause_s, GPUS_EVERY_S) if pause_s > 0 else FIRST_S
                sleep(step_s)
                host.count_energy()  # before a counter wraps
                pause_s, patience_s = pause_s - step_s, patience_s - step_s
                silent_s += step_s
                for sample in sampler.drain() if sampler else ():  # a full pipe would block it
                    gap, patience_s, silent_s = sample.reason, 0.0, 0.0
                    now = {r.index: r for r in as_detected(sample.gpus, machine.gpus)}
                    readings = readings | now if gap is None else {}
                if readings and silent_s > OLD_S:
                    readings, gap = {}, silence(machine.vendor, silent_s)
            stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            yield Snapshot(stamp, host.read(), list(readings.values()), gap)
            pause_s = every_s
    finally:
        if sampler is not None:
            sampler.close()
