"""Asks NVML about all GPUs: facts once, readings repeatedly, and links.

Runs in a child process (see `probe`): a lost GPU can crash or hang NVML.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...records.machine import Gpu, GpuReading, Links, Nvml
from ...records.reason import Reason
from .gpu_fields import with_reasons
from .nvml_fields import NvmlFields
from .nvml_query import Query, connect


class NvmlHeader(msgspec.Struct, frozen=True):
    """The first answer of a survey; one `Gpu` for each of `count` follows."""

    nvml: Nvml
    count: int


class GpuSample(msgspec.Struct, frozen=True):
    """The readings of the GPUs at one moment, or the `reason` why NVML gave none."""

    monotonic_s: float  # on the monotonic clock, which all processes share
    gpus: list[GpuReading]
    reason: Reason | None = None


def survey() -> Iterator[NvmlHeader | Gpu]:
    """The library's state, then its GPUs, each as soon as it is read."""
    connected = connect()
    if isinstance(connected, Reason):
        yield NvmlHeader(Nvml(available=False, reason=connected), 0)
        return
    query, count = connected
    driver, driver_failure = query.ask(("nvmlSystemGetDriverVersion",))
    library, _ = query.ask(("nvmlSystemGetNVMLVersion",))
    empty = Reason("no_gpu", "NVML works but lists no GPU") if count == 0 else None
    yield NvmlHeader(Nvml(True, empty, driver, library), count)
    for index in range(count):
        handle, failure = query.ask(("nvmlDeviceGetHandleByIndex", index))
        if failure is not None:
            gpu = Gpu(index, None, None, None, None, driver_version=driver)
            yield with_reasons(gpu, failure.text)
        else:
            yield NvmlFields(query, handle).read(index, driver, driver_failure)


# nvml.h nvmlGpuTopologyLevel_t, in the words of nvidia-smi topo
_PATHS = {0: "same board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_P2P_READ, _P2P_NVLINK = 0, 2  # nvml.h nvmlGpuP2PCapsIndex_t


def links() -> Links:
    """The link from every GPU to every other."""
    connected = connect()
    if isinstance(connected, Reason):
        return Links([], connected)
    query, count = connected
    handles = [query.ask(("nvmlDeviceGetHandleByIndex", index))[0] for index in range(count)]
    matrix = [[_link(query, one, two) for two in handles] for one in handles]
    for number, row in enumerate(matrix):
        row[number] = ""
    return Links(matrix)


def _link(query: Query, one: Any, two: Any) -> str:
    if one is None or two is None:
        return "?"
    by_nvlink, by_read = (
        query.ask(("nvmlDeviceGetP2PStatus", one, two, capability))[0] == 0
        for capability in (_P2P_NVLINK, _P2P_READ)
    )
    if by_nvlink:
        return "NVLink"
    level, _ = query.ask(("nvmlDeviceGetTopologyCommonAncestor", one, two))
    path = "?" if level is None else _PATHS.get(level, "?")
    return f"{path}+P2P" if by_read else path


def samples(indices: Sequence[int], *, every_s: float) -> Iterator[GpuSample]:
    """Readings of these GPUs every `every_s` seconds, endlessly; every fourth has slow fields."""
    connected = connect()
    if isinstance(connected, Reason):
        yield GpuSample(time.monotonic(), [], connected)
        return
    query, _ = connected
    fields: dict[int, NvmlFields] = {}
    lost: list[GpuReading] = []
    for index in indices:
        handle, failure = query.ask(("nvmlDeviceGetHandleByIndex", index))
        if failure is not None:
            lost.append(GpuReading(index, unavailable={"*": failure.text}))
        else:
            fields[index] = NvmlFields(query, handle)
    for slow in itertools.cycle((True, False, False, False)):
        gpus = [gpu.sample(index, slow=slow) for index, gpu in fields.items()]
        yield GpuSample(time.monotonic(), gpus + lost)
        time.sleep(every_s)
