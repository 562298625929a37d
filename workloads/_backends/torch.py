"""PyTorch, on CPUs and on the GPUs that it names `cuda:N`, `xpu:N` and `mps:0`.

A build for ROCm says `cuda:N` to AMD's GPUs.  No GPU is proven yet, NVIDIA's either (docs/cuda.md).
"""

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from workbench.contract import Backend
from workbench.worker.libraries import torch


class Torch(Backend):
    name = "torch"
    install = "`pip install torch`, or --python for an interpreter that has it"
    platforms = ("CUDA", "ROCm", "XPU", "MPS")

    def __init__(self) -> None:
        self._held_bytes = 0  # allocated on the GPU at the last reset

    def gpus(self) -> list[dict[str, Any]]:
        counts = {kind: library_of(kind).device_count() for kind in ("cuda", "xpu", "mps")}
        return [_described(kind, n) for kind, count in counts.items() for n in range(count)]

    def start(self, device: str) -> None:
        """Open CUDA and load cuBLAS, or their counterparts for another GPU."""
        library, which = library_of(device), [device]
        if device.startswith("mps"):
            which = []  # there is only one
        else:
            library.init()  # its error says why CUDA cannot be used
            library.set_device(device)  # or code that uses the current device would open GPU 0
        few = torch.ones(8, 8, device=device)
        few @ few
        library.synchronize(*which)

    def load_rest(self, device: str) -> None:
        with suppress(RuntimeError):  # without cuDNN other cases still work
            picture, kernel = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)
            torch.nn.functional.conv2d(picture.to(device), kernel.to(device)).cpu()

    def reset_memory_peak(self, device: str) -> None:
        if not device.startswith("mps"):
            library_of(device).reset_peak_memory_stats(device)
            self._held_bytes = library_of(device).memory_allocated(device)

    def memory_peak_bytes(self, device: str) -> int | None:
        """The peak of torch's allocator, which MPS does not report."""
        if device.startswith("mps"):
            return None
        return int(library_of(device).max_memory_allocated(device) - self._held_bytes)

    def release(self, device: str) -> None:
        library_of(device).empty_cache()
        if hasattr(torch.accelerator, "empty_host_cache"):  # since torch 2.10
            torch.accelerator.empty_host_cache()  # page-locked memory cannot be swapped

    def named_range(self, device: str, name: str) -> AbstractContextManager[Any]:
        """NVTX, which NVIDIA Nsight Systems shows."""
        if not torch.version.cuda:
            return nullcontext()
        nvtx: AbstractContextManager[Any] = torch.cuda.nvtx.range("{}", name)  # takes a format
        return nvtx


def library_of(device: str) -> Any:
    """`torch.cuda`, `torch.xpu` or `torch.mps`, for a device or its kind."""
    return getattr(torch, device.partition(":")[0])


def _described(kind: str, ordinal: int) -> dict[str, Any]:
    """The fields of a `Gpu` that is not NVIDIA's, since the driver itself describes those."""
    found: dict[str, Any] = {"device": f"{kind}:{ordinal}"}
    if kind == "mps":
        memory = torch.mps.recommended_max_memory()
        return {**found, "name": "Apple GPU", "memory_total_bytes": memory, "platform": "MPS"}
    about = library_of(kind).get_device_properties(ordinal)
    found |= {"name": about.name, "memory_total_bytes": about.total_memory}
    if kind == "xpu":
        return {**found, "platform": "XPU"}
    found["platform"] = f"ROCm {torch.version.hip}"
    if hasattr(about, "pci_bus_id"):  # since torch 2.8
        place = about.pci_domain_id, about.pci_bus_id, about.pci_device_id
        found["pci_bus_id"] = "{:04x}:{:02x}:{:02x}.0".format(*place)
    return found


BACKEND = Torch()
