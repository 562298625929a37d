"""Joins NVML's GPUs and CUDA's devices into one list, and finds the cores near each.

They are matched by UUID, else by PCI bus id, never by position, since NVML follows the order of the
bus, CUDA its own order and CUDA_VISIBLE_DEVICES.  GPUs without readable UUID and bus id get the
remaining devices, if their numbers agree, and lose NVML's indices.
"""

import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from ...process.cores import affinity_mask, cpulist
from ...records.machine import Gpu, GpuReading, Machine, Nvml
from ...records.reason import Reason
from ..host.cgroup import cpuset
from ..host.sysfs import read_text
from ..host.topology import online_cpus
from .cuda_driver import VISIBLE_DEVICES, CudaAnswer, CudaDevice, in_job
from .driver_errors import ABSENT
from .gpu_fields import with_reasons

GPU_WITHOUT_DRIVER = "gpu_without_driver"
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"  # PCI base class 03: VGA and 3D controllers
_WHOLE_GPU_ONLY = "NVML gives it for the whole GPU only, not for this MIG instance"
IN_JOB = " in a batch job"
# Variables with which users place OpenMP's threads.
_USERS = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND")
_DISCRETE = "NVML does not support it on this GPU"


def join(gpus: list[Gpu], nvml: Nvml, cuda: CudaAnswer, visible_devices: str | None) -> list[Gpu]:
    """One `Gpu` for each that either of the two knows; `device` is set if CUDA can use it.

    `visible_devices` is the value of CUDA_VISIBLE_DEVICES, None if it is not set.
    """
    gpus, left = list(gpus), list(cuda.devices)
    partners = [_take(gpu, left) for gpu in gpus]
    if len(left) == 1:  # all others are matched
        free = [n for n, gpu in enumerate(gpus) if not partners[n] and _may_be(gpu, left[0])]
        if len(free) == 1:
            partners[free[0]] = left.pop()
    unread = [n for n, gpu in enumerate(gpus) if gpu.uuid is None and gpu.pci_bus_id is None]
    if len(left) == len(unread) > 1:  # the same cards, but it is unknown which is which
        for n in unread:
            gpus[n], partners[n] = msgspec.structs.replace(gpus[n], index=None), left.pop(0)
    joined = [
        _without_cuda(gpu, cuda, visible_devices) if partner is None else _merge(gpu, partner)
        for gpu, partner in zip(gpus, partners, strict=True)
    ]
    # A container without `utility` shows no GPU to NVML.
    why = _said("NVML", nvml.reason) if nvml.reason else "NVML does not list this GPU"
    unlisted = with_reasons(Gpu(None, None, None, None, None), why)
    return joined + [_merge(unlisted, device) for device in left]


def _take(gpu: Gpu, devices: list[CudaDevice]) -> CudaDevice | None:
    """Remove and return the device that is this GPU by its identity."""
    # CUDA's UUIDs have no prefix `GPU-` or `MIG-`.
    uuid = gpu.uuid and gpu.uuid.split("-", 1)[-1].lower()
    by_uuid = [d for d in devices if uuid and uuid in (d.uuid, d.gpu_uuid)]
    by_bus = [d for d in devices if gpu.pci_bus_id is not None and gpu.pci_bus_id == d.pci_bus_id]
    for device in by_uuid or by_bus:
        devices.remove(device)
        return device
    return None


def _may_be(gpu: Gpu, device: CudaDevice) -> bool:
    """Whether the device may be this GPU by all that is known."""
    if device.integrated:
        # A Jetson's GPU has different UUIDs in NVML and CUDA, but both report shared memory.
        return gpu.shares_memory
    by_uuid = gpu.uuid is not None and device.uuid is not None
    return not by_uuid and (gpu.pci_bus_id is None or device.pci_bus_id is None)


def _merge(gpu: Gpu, device: CudaDevice) -> Gpu:
    """The GPU with its device name, and with CUDA's values if NVML has none."""
    known = {
        "uuid": device.uuid and f"GPU-{device.uuid}",
        "pci_bus_id": device.pci_bus_id,
        "name": device.name,
        "memory_total_bytes": device.memory_total_bytes,
        "compute_capability": device.compute_capability,
        "l2_cache_bytes": device.l2_cache_bytes,
    }
    changes: dict[str, Any] = {
        f: v for f, v in known.items() if v is not None and getattr(gpu, f) is None
    }
    reasons = {f: reason for f, reason in gpu.unavailable.items() if f not in changes}
    changes["device"] = f"cuda:{device.ordinal}"
    if gpu.shares_memory and device.integrated is False and device.memory_total_bytes:
        # The GPU has its own memory after all, so report that, not the system's.
        changes["memory_total_bytes"] = device.memory_total_bytes
        changes["memory_used_bytes"] = None
        del reasons["memory_total_bytes"]
        reasons["memory_used_bytes"] = _DISCRETE
    if device.uuid is not None and device.gpu_uuid not in (None, device.uuid):
        # The process sees one MIG instance, whose size counts, not that of the whole GPU.
        changes |= {f: v for f, v in known.items() if v is not None}
        changes["uuid"] = f"MIG-{device.uuid}"
        for name in ("memory_used_bytes", "power_w", "processes"):
            changes[name], reasons[name] = None, _WHOLE_GPU_ONLY
    return msgspec.structs.replace(gpu, **changes, unavailable=reasons)


def as_detected(readings: Iterable[GpuReading], gpus: Iterable[Gpu]) -> list[GpuReading]:
    """NVML's readings, without those of a whole GPU if CUDA sees one MIG instance of it, and
    without the system's memory if the GPU has its own."""
    of_whole = ("memory_used_bytes", "power_w", "energy_j", "processes")
    wrong: dict[int | None, dict[str, str]] = {}
    for gpu in gpus:
        if (gpu.uuid or "").startswith("MIG-"):
            wrong[gpu.index] = dict.fromkeys(of_whole, _WHOLE_GPU_ONLY)
        elif gpu.unavailable.get("memory_used_bytes") == _DISCRETE:
            wrong[gpu.index] = {"memory_used_bytes": _DISCRETE}
    found = []
    for each in readings:
        reasons = wrong.get(each.index, {})
        why = {**each.unavailable, **reasons}
        found.append(msgspec.structs.replace(each, **dict.fromkeys(reasons), unavailable=why))
    return found


def _without_cuda(gpu: Gpu, cuda: CudaAnswer, visible_devices: str | None) -> Gpu:
    """A GPU that NVML lists but CUDA does not."""
    reason = cuda.driver.reason
    hidden = visible_devices is not None and (reason is None or reason.code == "hidden")
    if gpu.uuid is None and gpu.pci_bus_id is None:
        hidden, text = False, "NVML could not read this GPU, so it cannot be matched with CUDA"
    elif hidden:
        text = f"hidden by {VISIBLE_DEVICES}={visible_devices}{IN_JOB if in_job() else ''}"
    elif reason is not None:
        text = _said("CUDA", reason)
    else:
        text = "CUDA does not offer this GPU"
    reasons = {**gpu.unavailable, "device": text}
    return msgspec.structs.replace(gpu, visible=not hidden, unavailable=reasons)


def _said(api: str, reason: Reason | None) -> str:
    """The message with the name of its API in front, unless it begins with that."""
    message = reason.message if reason else "no reason"
    return message if message.startswith(f"{api} ") else f"{api}: {message}"


def on_the_bus(
    root: Path, vendor: str = _NVIDIA_VENDOR, classes: tuple[str, ...] = (_DISPLAY_CLASS,)
) -> list[str]:
    """PCI addresses of a vendor's GPUs, from sysfs, which needs no driver."""
    return [
        device.name
        for device in sorted((root / "sys/bus/pci/devices").glob("*"))
        if read_text(device / "vendor").strip() == vendor
        and read_text(device / "class").startswith(classes)
    ]


def without_driver(nvml: Nvml, root: Path) -> Nvml:
    """NVML's answer, corrected if the bus shows GPUs without a driver."""
    reason = nvml.reason
    if nvml.available or reason is None or reason.code not in ABSENT:
        return nvml
    addresses = on_the_bus(root)
    if not addresses:
        return nvml
    message = f"{reason.message}, but NVIDIA GPUs are on the bus: {', '.join(addresses)}"
    better = Reason(GPU_WITHOUT_DRIVER, message, reason.hint)
    return msgspec.structs.replace(nvml, reason=better)


def has_mps(root: Path) -> bool:
    """Whether the daemon of the Multi-Process Service runs, by its pipe (NVIDIA MPS manual)."""
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or root / "tmp/nvidia-mps"
    return os.access(Path(pipes, "control"), os.F_OK)  # does not raise for another user's folder


def placed(gpus: list[Gpu], root: Path = Path("/")) -> list[Gpu]:
    """The GPUs with their `worker_cores`, to which their workers are bound; None if all cores are
    equally near, or if the user has placed the threads.

    From a core of another memory node, every copy to the GPU crosses the link between processors.
    Source: kernel docs, ABI/testing/sysfs-bus-pci (local_cpulist).
    """
    allowed = affinity_mask()
    by_user = allowed not in (online_cpus(root), cpuset(root)) or any(map(os.environ.get, _USERS))
    if not allowed or by_user:
        return gpus
    return [msgspec.structs.replace(g, worker_cores=_near(g, allowed, root)) for g in gpus]


def _near(gpu: Gpu, allowed: set[int], root: Path) -> str | None:
    if gpu.device is None or gpu.pci_bus_id is None:
        return None
    file = root / "sys/bus/pci/devices" / gpu.pci_bus_id / "local_cpulist"
    near = cpulist(read_text(file)) & allowed
    return as_cpulist(near) if near and near < allowed else None


def as_cpulist(cpus: set[int]) -> str:
    """`0-3,8`, as the kernel writes it."""
    runs = groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(pairs) for _, pairs in runs)]
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ends)


def cuda_remedy(machine: Machine) -> str | None:
    """The remedy if CUDA cannot use a GPU that NVML lists; None if none is known."""
    reason = machine.cuda.reason
    if reason is not None and reason.code == "no_device":
        split = next((gpu.index for gpu in machine.gpus if gpu.visible and gpu.mig), None)
        if split is not None:
            if machine.os.container:  # only the host can create instances, and may have some
                given = "start the container with one, such as by `--gpus device=GPU:INSTANCE`"
                return f"MIG is on, and no instance is here: {given}"
            made = f"`sudo nvidia-smi mig -i {split} -cgi PROFILE -C`"
            return f"MIG is on without instances: use {made}, or turn it off with `-mig 0`"
    return reason.hint if reason is not None else None


def no_gpu(machine: Machine) -> Reason | None:
    """Why no GPU can be measured here; None if one can.

    The code is `no_gpu` only if NVML and CUDA agree, and `gpu_unknown` if an error of one of them
    leaves it open.
    """
    if any(gpu.device is not None for gpu in machine.gpus):
        return None
    if machine.gpus:
        why = "; ".join(sorted({g.unavailable.get("device", "unknown") for g in machine.gpus}))
        remedy = None if all(gpu.platform for gpu in machine.gpus) else cuda_remedy(machine)
        return Reason("gpu_unusable", f"no GPU is usable: {why}", remedy)
    nvml, cuda = machine.nvml.reason, machine.cuda.reason
    if nvml is not None and nvml.code == GPU_WITHOUT_DRIVER:
        return nvml
    said = f"{_said('NVML', nvml)}; {_said('CUDA', cuda)}"
    if all(reason is not None and reason.code in ABSENT for reason in (nvml, cuda)):
        return Reason("no_gpu", f"no GPU found ({said})")
    hint = next((reason.hint for reason in (nvml, cuda) if reason and reason.hint), None)
    return Reason("gpu_unknown", f"it is unknown whether there is a GPU ({said})", hint)
