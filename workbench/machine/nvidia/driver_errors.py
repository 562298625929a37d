"""Meanings of NVML's and CUDA's error codes, with remedies.

Codes: nvml.h `nvmlReturn_t`, cuda.h `CUresult`.  Remedies that no manual gives come from public
threads: 18 (driver upgraded under a running module) from nvidia-container-toolkit#394, 999 in a
container (`systemctl daemon-reload` takes its GPUs away) from nvidia-container-toolkit#251.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...records.reason import Reason

NVML_INVALID_ARGUMENT = 2
NVML_NOT_SUPPORTED = 3
NVML_FUNCTION_NOT_FOUND = 13
NVML_ARGUMENT_VERSION_MISMATCH = 25
NVML_DEPRECATED = 26
CUDA_NO_DEVICE = 100

# Values of `Reason.code` that mean "there is nothing here", not "something is broken".
ABSENT = frozenset(
    {"library_missing", "driver_not_loaded", "no_gpu", "no_device", "unsupported_platform"}
)

_DRIVER = "install the NVIDIA driver"
_CONTAINER = "start the container with `--gpus all` and NVIDIA_DRIVER_CAPABILITIES=utility,compute"
_KERNEL_LOG = "read the kernel log (`dmesg | grep -iE 'nvrm|xid'`), then reboot"
_RELOAD = (
    "reboot, or reload the module:"
    " `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`"
)


@dataclass(frozen=True)
class Meaning:
    code: str
    message: str
    hint: str | None = None
    container_hint: str | None = None  # replaces `hint` inside a container


_NVML = {
    1: Meaning("uninitialized", "NVML is not initialised"),
    2: Meaning("invalid_argument", "NVML refused the argument"),
    3: Meaning("not_supported", "not supported by this GPU or driver"),
    4: Meaning(
        "no_permission",
        "no permission",
        "ask for access to /dev/nvidia*, often by the group `video` or `render`",
        _CONTAINER,
    ),
    6: Meaning("not_found", "not found"),
    7: Meaning("insufficient_size", "the list grew while it was being read"),
    8: Meaning(
        "insufficient_power", "the GPU lacks external power", "check the GPU's power cables"
    ),
    9: Meaning(
        "driver_not_loaded",
        "the NVIDIA kernel module is not loaded",
        "load it: `sudo modprobe nvidia`; if that fails, reinstall the driver for this kernel",
        "load it on the host: `sudo modprobe nvidia`, then restart the container",
    ),
    10: Meaning("timeout", "the driver did not answer in time", _KERNEL_LOG),
    11: Meaning("irq_issue", "the kernel has an interrupt problem with the GPU", _KERNEL_LOG),
    12: Meaning(
        "library_missing", "libnvidia-ml.so.1 is not installed or not loadable", _DRIVER, _CONTAINER
    ),
    13: Meaning("function_missing", "this driver lacks the function", "update the driver"),
    14: Meaning("corrupted_inforom", "the GPU's infoROM is corrupted", "contact its vendor"),
    15: Meaning("gpu_lost", "the GPU has fallen off the bus or cannot be reached", _KERNEL_LOG),
    16: Meaning("reset_required", "the GPU must be reset before it can be used", _KERNEL_LOG),
    17: Meaning(
        "blocked_by_os",
        "the operating system or a cgroup blocks the GPU's control device",
        "allow /dev/nvidiactl and /dev/nvidia* in the service's or job's device rules",
        _CONTAINER,
    ),
    18: Meaning(
        "version_mismatch",
        "driver library and kernel module have different versions",
        _RELOAD,
        "restart the container; if that does not help, reboot the host",
    ),
    20: Meaning("out_of_memory", "the driver ran out of memory"),
    21: Meaning("no_data", "no data yet"),
    25: Meaning("argument_version_mismatch", "this driver lacks this form of the function"),
    26: Meaning("deprecated", "this driver no longer has the function"),
    27: Meaning("not_ready", "the GPU is not ready yet"),
    28: Meaning("no_gpu", "no NVIDIA GPU found", None, _CONTAINER),
    999: Meaning(
        "unknown_error",
        "the driver reports an unknown error",
        _KERNEL_LOG,
        "restart the container: `systemctl daemon-reload` on the host takes its GPUs away",
    ),
}

_CUDA = {
    1: Meaning("invalid_value", "CUDA refused an argument"),
    2: Meaning("out_of_memory", "CUDA ran out of memory", "stop other processes on the GPU"),
    3: Meaning("not_initialized", "the CUDA driver could not be initialised", _KERNEL_LOG),
    34: Meaning(
        "stub_library",
        "libcuda.so.1 is the toolkit's stub, not the driver's library",
        "remove the toolkit's `stubs` folder from LD_LIBRARY_PATH",
    ),
    46: Meaning(
        "device_unavailable",
        "the GPU is busy or unavailable",
        "check its compute mode and its processes: `nvidia-smi`",
    ),
    100: Meaning("no_device", "CUDA finds no GPU", None, _CONTAINER),
    101: Meaning("invalid_device", "CUDA refuses the device", "check CUDA_VISIBLE_DEVICES"),
    304: Meaning(
        "operating_system",
        "the operating system refused a call of CUDA",
        "check the permissions of /dev/nvidia*",
        _CONTAINER,
    ),
    802: Meaning(
        "system_not_ready",
        "the system is not ready for CUDA",
        "on NVSwitch systems start the fabric manager: `sudo systemctl start nvidia-fabricmanager`",
    ),
    803: Meaning(
        "version_mismatch",
        "libcuda.so.1 and the kernel module have different versions",
        _RELOAD,
        "remove the image's own libcuda (/usr/local/cuda/compat) from LD_LIBRARY_PATH",
    ),
    804: Meaning(
        "compat_not_supported",
        "the CUDA compatibility package does not support this GPU",
        "remove /usr/local/cuda/compat from LD_LIBRARY_PATH, or update the driver",
    ),
    999: Meaning(
        "unknown_error",
        "CUDA reports an unknown error",
        "often after a suspend: `sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm`, or reboot",
        "restart the container",
    ),
}


def nvml_text(code: int) -> str:
    """One line for `unavailable`: plain words, then the code to search for."""
    meaning = _NVML.get(code)
    return f"{meaning.message} (NVML {code})" if meaning else f"NVML error {code}"


def nvml_reason(code: int, *, in_container: bool) -> Reason:
    return _reason(_NVML, "NVML", code, in_container)


def cuda_reason(code: int, *, in_container: bool) -> Reason:
    return _reason(_CUDA, "CUDA", code, in_container)


def _reason(table: dict[int, Meaning], api: str, code: int, in_container: bool) -> Reason:
    meaning = table.get(code)
    if meaning is None:
        return Reason(f"{api.lower()}_error_{code}", f"{api} error {code}", _KERNEL_LOG)
    hint = (meaning.container_hint if in_container else None) or meaning.hint
    return Reason(meaning.code, f"{meaning.message} ({api} {code})", hint)


def library_missing(library: str, *, in_container: bool) -> Reason:
    hint = _CONTAINER if in_container else _DRIVER
    return Reason("library_missing", f"{library} is not installed", hint)


def library_broken(library: str, detail: str) -> Reason:
    hint = "reinstall the NVIDIA driver's libraries for this architecture"
    return Reason("library_broken", f"{library} cannot be loaded: {detail}", hint)


def missing_capability(*, in_container: bool) -> str:
    """The remedy where CUDA works and NVML is missing."""
    return _CONTAINER if in_container else "install the driver's libnvidia-ml.so.1"
