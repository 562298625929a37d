"""The one door to NVML: what there is, and how it changes.

Runs in a child process (see `probe`): a lost GPU can crash or hang NVML.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...records.machine import Gpu, GpuReading, Nvml
from ...records.reason import Reason
from ..host.system import container
from .driver_errors import nvml_reason
from .gpu_fields import with_reasons
from .nvml_fields import Row
from .nvml_query import Query, connect

_SLOW_EVERY = 4  # looks


class NvmlHeader(msgspec.Struct, frozen=True):
    """The first answer of a pass; `count` rows follow, less those that were skipped."""

    nvml: Nvml
    count: int


class GpuSample(msgspec.Struct, frozen=True):
    """One look at the GPUs; `reason` where there is no NVML to look through."""

    monotonic_s: float  # of the machine's monotonic clock, which its processes share
    gpus: list[GpuReading]
    reason: Reason | None = None


def survey(first: int = 0) -> Iterator[NvmlHeader | Gpu]:
    """The library's state, then one row per GPU from `first` on, each as soon as it is read."""
    in_container = container() is not None
    connected = connect(in_container=in_container)
    if isinstance(connected, Reason):
        yield NvmlHeader(Nvml(available=False, reason=connected), 0)
        return
    query, count = connected
    driver, driver_reason = query.ask(("nvmlSystemGetDriverVersion",))
    library, _ = query.ask(("nvmlSystemGetNVMLVersion",))
    empty = Reason("no_gpu", "NVML works but lists no GPU", None) if count == 0 else None
    yield NvmlHeader(Nvml(True, empty, driver, library), count)
    for index in range(first, count):
        handle, failure = query.ask_code(("nvmlDeviceGetHandleByIndex", index))
        if failure is not None or handle is None:
            row = Gpu(index, None, None, None, None, driver_version=driver)
            yield with_reasons(row, _handle_failure(failure, in_container))
        else:
            yield Row(query, handle).read(index, driver, driver_reason)


def _handle_failure(failure: int | str | None, in_container: bool) -> str:
    if not isinstance(failure, int):
        return failure or "NVML gives no handle"
    reason = nvml_reason(failure, in_container=in_container)
    return f"{reason.message}; {reason.hint}" if reason.hint else reason.message


class Links(msgspec.Struct, frozen=True):
    """How each GPU reaches each other one: "NVLink", or the way over PCIe with "+P2P" where they
    can read each other's memory; `reason` where that cannot be asked."""

    matrix: list[list[str]]  # by NVML's numbers; "" on the diagonal, "?" where NVML did not say
    reason: Reason | None = None


# nvml.h nvmlGpuTopologyLevel_t, with the words of nvidia-smi topo
_WAYS = {0: "same board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_P2P_READ, _P2P_NVLINK = 0, 2  # nvml.h nvmlGpuP2PCapsIndex_t


def links() -> Links:
    """The way from every GPU to every other."""
    connected = connect(in_container=container() is not None)
    if isinstance(connected, Reason):
        return Links([], connected)
    query, count = connected
    handles = [query.ask(("nvmlDeviceGetHandleByIndex", index))[0] for index in range(count)]
    return Links([[_way(query, one, two) for two in handles] for one in handles])


def _way(query: Query, one: Any, two: Any) -> str:
    if one is two:
        return ""
    if one is None or two is None:
        return "?"
    by_nvlink, by_read = (
        query.ask(("nvmlDeviceGetP2PStatus", one, two, capability))[0] == 0
        for capability in (_P2P_NVLINK, _P2P_READ)
    )
    if by_nvlink:
        return "NVLink"
    level, _ = query.ask(("nvmlDeviceGetTopologyCommonAncestor", one, two))
    way = "?" if level is None else _WAYS.get(level, "?")
    return f"{way}+P2P" if by_read else way


def pulses(indices: Sequence[int], *, every_s: float) -> Iterator[GpuSample]:
    """A look at these GPUs every `every_s` seconds, for ever; the slow readings less often."""
    in_container = container() is not None
    connected = connect(in_container=in_container)
    if isinstance(connected, Reason):
        yield GpuSample(time.monotonic(), [], connected)
        return
    query, _ = connected
    rows: dict[int, Row] = {}
    lost: list[GpuReading] = []
    for index in indices:
        handle, failure = query.ask_code(("nvmlDeviceGetHandleByIndex", index))
        if failure is not None or handle is None:
            lost.append(
                GpuReading(index, unavailable={"*": _handle_failure(failure, in_container)})
            )
        else:
            rows[index] = Row(query, handle)
    for number in itertools.count():
        slow = number % _SLOW_EVERY == 0
        gpus = [row.pulse(index, slow=slow) for index, row in rows.items()]
        yield GpuSample(time.monotonic(), gpus + lost)
        time.sleep(every_s)
