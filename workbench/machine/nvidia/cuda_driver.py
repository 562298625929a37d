"""Asks libcuda by ctypes for the devices that this process may use, in CUDA's order.

Runs in a child process (see `probe`), because cuInit can hang, and a process that has called it
can no longer fork.  It creates no context, so it allocates nothing on a GPU.
Source: cuda.h, CUDA Driver API 12 and 13.
"""

import ctypes
import os
from typing import Any
from uuid import UUID

import msgspec

from ...records.machine import CudaDriver
from ...records.reason import Reason
from .driver_errors import CUDA_NO_DEVICE, error_reason, library_broken, loading_failure
from .gpu_fields import normalise_bus_id

LIBRARY = "libcuda.so.1"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

_SUCCESS = 0
_NO_SYMBOL = -1  # our own code: no CUresult is negative
_TEXT_BYTES = 256
_UUID_BYTES = 16
# CUdevice_attribute: COMPUTE_CAPABILITY_MAJOR and _MINOR, INTEGRATED, L2_CACHE_SIZE
_ATTRIBUTES = (75, 76, 18, 38)


class CudaDevice(msgspec.Struct, frozen=True):
    """One device that CUDA lets this process use; `ordinal` is the N of `cuda:N`."""

    ordinal: int
    uuid: str | None = None  # that of the MIG instance if there is one, else of the GPU
    gpu_uuid: str | None = None  # the whole GPU's
    pci_bus_id: str | None = None
    name: str | None = None
    memory_total_bytes: int | None = None
    compute_capability: str | None = None
    integrated: bool | None = None  # shares the system's memory
    l2_cache_bytes: int | None = None


class CudaAnswer(msgspec.Struct, frozen=True):
    driver: CudaDriver
    devices: list[CudaDevice]


def survey() -> CudaAnswer:
    """Initialise CUDA and list its devices; a failure is an answer with its reason."""
    try:
        library: Any = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return failed(loading_failure(LIBRARY, error))
    version = _number(library, "cuDriverGetVersion")
    api = None if version is None else f"{version // 1000}.{version % 1000 // 10}"  # 13000: 13.0
    code = _call(library, "cuInit", 0)
    count = ctypes.c_int()
    if code == _SUCCESS:
        code = _call(library, "cuDeviceGetCount", ctypes.byref(count))
    if code == _SUCCESS and count.value == 0:
        code = CUDA_NO_DEVICE
    if code != _SUCCESS:
        return failed(_reason(code), api)
    devices = [_device(library, ordinal) for ordinal in range(count.value)]
    return CudaAnswer(CudaDriver(True, len(devices), None, api), devices)


def failed(reason: Reason, api: str | None = None) -> CudaAnswer:
    return CudaAnswer(CudaDriver(False, 0, reason, api), [])


def in_job() -> bool:
    """Whether a scheduler started this process: Slurm, PBS, LSF or Grid Engine."""
    return not os.environ.keys().isdisjoint(
        ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID")
    )


def _reason(code: int) -> Reason:
    if code == CUDA_NO_DEVICE and VISIBLE_DEVICES in os.environ:
        given = os.environ[VISIBLE_DEVICES]
        message = f"CUDA finds no GPU with {VISIBLE_DEVICES}={given!r} (CUDA {code})"
        remedy = f"`unset {VISIBLE_DEVICES}`, or name GPUs that exist"
        if in_job():  # other GPUs may belong to other jobs
            remedy = "ask the scheduler for a GPU, such as with Slurm's `--gres=gpu:1`"
        return Reason("hidden", message, remedy)
    if code == _NO_SYMBOL:
        return library_broken(LIBRARY, "it lacks the driver API's basic functions")
    return error_reason("CUDA", code)


def _call(library: Any, name: str, *arguments: Any) -> int:
    function = getattr(library, name, None)
    return _NO_SYMBOL if function is None else int(function(*arguments))


def _device(library: Any, ordinal: int) -> CudaDevice:
    device = _number(library, "cuDeviceGet", ordinal)
    if device is None:
        return CudaDevice(ordinal)
    name = _text(library, "cuDeviceGetName", device)
    bus_id = _text(library, "cuDeviceGetPCIBusId", device)
    major, minor, integrated, l2_bytes = (
        _number(library, "cuDeviceGetAttribute", attribute, device) for attribute in _ATTRIBUTES
    )
    gpu_uuid = _uuid(library, "cuDeviceGetUuid", device)
    return CudaDevice(
        ordinal=ordinal,
        # Only _v2 gives the UUID of a MIG instance.
        uuid=_uuid(library, "cuDeviceGetUuid_v2", device) or gpu_uuid,
        gpu_uuid=gpu_uuid,
        pci_bus_id=None if bus_id is None else normalise_bus_id(bus_id),
        name=name,
        memory_total_bytes=_number(library, "cuDeviceTotalMem_v2", device, kind=ctypes.c_size_t),
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
        integrated=None if integrated is None else bool(integrated),
        l2_cache_bytes=l2_bytes or None,
    )


def _number(library: Any, name: str, *arguments: int, kind: Any = ctypes.c_int) -> int | None:
    """The number that a function writes to its first argument; None if it fails."""
    value = kind()
    code = _call(library, name, ctypes.byref(value), *arguments)
    return int(value.value) if code == _SUCCESS else None


def _text(library: Any, name: str, device: int) -> str | None:
    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    code = _call(library, name, buffer, _TEXT_BYTES, device)
    return buffer.value.decode("utf-8", "replace") if code == _SUCCESS else None


def _uuid(library: Any, function: str, device: int) -> str | None:
    """The UUID as hexadecimal groups, without NVML's prefix `GPU-` or `MIG-`."""
    raw = ctypes.create_string_buffer(_UUID_BYTES)
    if _call(library, function, raw, device) != _SUCCESS or not any(raw.raw):
        return None
    return str(UUID(bytes=raw.raw))
