"""PyTorch, on CPUs and on the GPUs that it names `cuda:N`."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import Any

from workbench.contract import Backend, WorkloadError


class Torch(Backend):
    name = "torch"
    install = "`pip install torch`, or --python for an interpreter that has it"
    lists_gpus = True  # ROCm builds find AMD GPUs, and containers may lack NVML

    def __init__(self) -> None:
        self._held_bytes = 0  # allocated on the GPU at the last reset

    def gpus(self) -> list[dict[str, Any]]:
        import torch

        if not torch.cuda.is_available():
            return []
        found = []
        for ordinal in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(ordinal)
            uuid = getattr(properties, "uuid", None)
            found.append(
                {
                    "device": f"cuda:{ordinal}",
                    "name": properties.name,
                    "uuid": None if uuid is None else f"GPU-{uuid}",
                    "memory_total_bytes": properties.total_memory,
                    "compute_capability": f"{properties.major}.{properties.minor}",
                }
            )
        return found

    def start(self, device: str) -> None:
        """Open CUDA, and load cuBLAS and cuDNN."""
        import torch

        torch.cuda.init()  # it says why CUDA cannot be used
        torch.cuda.set_device(device)  # or code that uses the current device would open GPU 0
        try:
            few = torch.ones(8, 8, device=device)
            few @ few
        except RuntimeError as error:
            if "no kernel image" not in str(error):
                raise
            found = ".".join(map(str, torch.cuda.get_device_capability(device)))
            raise WorkloadError(
                f"torch {torch.__version__} has no code for {device}: its compute capability is"
                f" {found}, the build has {', '.join(torch.cuda.get_arch_list())}",
                code="unsupported_device",
                hint="install the build that `workbench doctor` names",
            ) from error
        with suppress(RuntimeError):  # without cuDNN the rest still works
            picture, kernel = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)
            torch.nn.functional.conv2d(picture.to(device), kernel.to(device))
        torch.cuda.synchronize(device)

    def reset_memory_peak(self, device: str) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        self._held_bytes = torch.cuda.memory_allocated(device)

    def memory_peak_bytes(self, device: str) -> int | None:
        """The peak of torch's allocator."""
        import torch

        return int(torch.cuda.max_memory_allocated(device) - self._held_bytes)

    def release(self, device: str) -> None:
        import torch

        torch.cuda.empty_cache()
        if hasattr(torch.accelerator, "empty_host_cache"):  # since torch 2.10
            torch.accelerator.empty_host_cache()  # page-locked memory cannot be swapped

    def named_range(self, device: str, name: str) -> AbstractContextManager[Any]:
        """NVTX, which NVIDIA Nsight Systems shows."""
        import torch

        nvtx: AbstractContextManager[Any] = torch.cuda.nvtx.range(name)
        return nvtx


BACKEND = Torch()
