"""Asks libcuda by ctypes for the devices that this process may use, in CUDA's order.

Runs in a child process (see `probe`), because cuInit can hang, and a process that has called
it can no longer fork.  No context is made, so nothing is allocated on any GPU.
Source: cuda.h, CUDA Driver API 12 and 13.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import msgspec

from ...records.machine import CudaDriver
from ...records.reason import Reason
from ..host.system import container
from .driver_errors import CUDA_NO_DEVICE, cuda_reason, library_broken, library_missing
from .gpu_fields import normalise_bus_id

LIBRARY = "libcuda.so.1"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

_SUCCESS = 0
_NO_SYMBOL = -1  # our own code: no CUresult is negative
_NAME_BYTES = 256
_UUID_BYTES = 16
_BUS_ID_BYTES = 32
# CUdevice_attribute
_ATTRIBUTE_INTEGRATED = 18
_ATTRIBUTE_L2_BYTES = 38
_ATTRIBUTE_CAPABILITY_MAJOR = 75
_ATTRIBUTE_CAPABILITY_MINOR = 76


class CudaDevice(msgspec.Struct, frozen=True):
    """One device that CUDA lets this process use; `ordinal` is the N of `cuda:N`."""

    ordinal: int
    uuid: str | None = None  # the MIG instance's where there is one, else the GPU's
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
    in_container = container() is not None
    try:
        library: Any = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return _failed(loading_failure(LIBRARY, error, in_container=in_container))
    version = ctypes.c_int()
    api = None
    if _call(library, "cuDriverGetVersion", ctypes.byref(version)) == _SUCCESS:
        api = _version(version.value)
    code = _call(library, "cuInit", 0)
    count = ctypes.c_int()
    if code == _SUCCESS:
        code = _call(library, "cuDeviceGetCount", ctypes.byref(count))
    if code == _SUCCESS and count.value == 0:
        code = CUDA_NO_DEVICE
    if code != _SUCCESS:
        return _failed(_reason(code, in_container), api)
    devices = [_device(library, ordinal) for ordinal in range(count.value)]
    return CudaAnswer(CudaDriver(True, len(devices), None, api), devices)


def loading_failure(library: str, error: OSError, *, in_container: bool) -> Reason:
    """The reason why `library` does not load; dlopen gives it only in words."""
    text = str(error)
    if text.startswith(f"{library}: cannot open shared object file: No such file"):
        return library_missing(library, in_container=in_container)
    return library_broken(library, text)


def _failed(reason: Reason, api: str | None = None) -> CudaAnswer:
    return CudaAnswer(CudaDriver(False, 0, reason, api), [])


def _reason(code: int, in_container: bool) -> Reason:
    if code == CUDA_NO_DEVICE and VISIBLE_DEVICES in os.environ:
        given = os.environ[VISIBLE_DEVICES]
        message = f"CUDA finds no GPU with {VISIBLE_DEVICES}={given!r} (CUDA {code})"
        return Reason("hidden", message, f"`unset {VISIBLE_DEVICES}`, or name GPUs that exist")
    if code == _NO_SYMBOL:
        return library_broken(LIBRARY, "it lacks the driver API's basic functions")
    return cuda_reason(code, in_container=in_container)


def _call(library: Any, name: str, *arguments: Any) -> int:
    function = getattr(library, name, None)
    return _NO_SYMBOL if function is None else int(function(*arguments))


def _version(number: int) -> str:
    """13000 -> "13.0": 1000 * major + 10 * minor."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _device(library: Any, ordinal: int) -> CudaDevice:
    device = ctypes.c_int()
    if _call(library, "cuDeviceGet", ctypes.byref(device), ordinal) != _SUCCESS:
        return CudaDevice(ordinal)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    named = _call(library, "cuDeviceGetName", name, _NAME_BYTES, device) == _SUCCESS
    memory = ctypes.c_size_t()
    sized = _call(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), device) == _SUCCESS
    bus_id = ctypes.create_string_buffer(_BUS_ID_BYTES)
    placed = _call(library, "cuDeviceGetPCIBusId", bus_id, _BUS_ID_BYTES, device) == _SUCCESS
    major = _attribute(library, _ATTRIBUTE_CAPABILITY_MAJOR, device)
    minor = _attribute(library, _ATTRIBUTE_CAPABILITY_MINOR, device)
    integrated = _attribute(library, _ATTRIBUTE_INTEGRATED, device)
    gpu_uuid = _uuid(library, "cuDeviceGetUuid", device)
    return CudaDevice(
        ordinal=ordinal,
        # Only _v2 distinguishes a MIG instance from its GPU.
        uuid=_uuid(library, "cuDeviceGetUuid_v2", device) or gpu_uuid,
        gpu_uuid=gpu_uuid,
        pci_bus_id=normalise_bus_id(bus_id.value.decode("ascii", "replace")) if placed else None,
        name=name.value.decode("utf-8", "replace") if named else None,
        memory_total_bytes=memory.value if sized else None,
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
        integrated=None if integrated is None else bool(integrated),
        l2_cache_bytes=_attribute(library, _ATTRIBUTE_L2_BYTES, device) or None,
    )


def _attribute(library: Any, attribute: int, device: ctypes.c_int) -> int | None:
    value = ctypes.c_int()
    code = _call(library, "cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
    return value.value if code == _SUCCESS else None


def _uuid(library: Any, function: str, device: ctypes.c_int) -> str | None:
    """Bare hexadecimal groups: CUDA knows no prefix `GPU-` or `MIG-`."""
    raw = ctypes.create_string_buffer(_UUID_BYTES)
    if _call(library, function, raw, device) != _SUCCESS or not any(raw.raw):
        return None
    digits = raw.raw.hex()
    groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(groups)
