"""Copies between host and device: what a GPU pays before and after its work."""

from __future__ import annotations

from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload

from ._torch import TorchTask


class Transfer(Workload):
    """Queued copies of one array.  From pageable memory the driver copies through a pinned buffer
    of its own, and cannot overlap (CUDA C++ Programming Guide, Page-Locked Host Memory)."""

    name = "transfer"
    title = "Host-device transfer"
    teaches = "Data has to get to a GPU and back; pinned memory is what makes that fast."
    parameters = (
        Parameter("direction", "to_device", "which way", choices=("to_device", "to_host", "both")),
        Parameter("memory", "pinned", "of the host", choices=("pinned", "pageable")),
        Parameter("mib", 64.0, "size of the array", 0.004, 16_384, unit="MiB"),
    )
    variants = (Variant("gpu", "torch", "fp32"),)

    def work(self, case: Case) -> Work:
        size = float(elements_of(case) * 4)
        moved = 2 * size if case.params["direction"] == "both" else size
        return Work(None, moved, items=moved, item="bytes", memory_bytes=moved)

    def prepare(self, case: Case, setup: Setup) -> Task:
        return TransferTask(case, setup)


def elements_of(case: Case) -> int:
    return max(1, int(float(case.params["mib"]) * 2**20) // 4)


class TransferTask(TorchTask):
    """`both` copies each way on a stream of its own, so that the two overlap."""

    def __init__(self, case: Case, setup: Setup) -> None:
        import torch

        super().__init__(case)
        direction, size = case.params["direction"], elements_of(case)
        pin = case.params["memory"] == "pinned" and self.device.type == "cuda"
        generator = torch.Generator().manual_seed(setup.seed)
        self.copies: list[tuple[Any, Any]] = []  # target, source
        with setup.phase("build"):
            for way in ("to_device", "to_host"):
                if direction in (way, "both"):
                    hosted = torch.randn(size, generator=generator)
                    hosted = hosted.pin_memory() if pin else hosted
                    # Made by the copy itself: on the test device both would else be one array.
                    placed = hosted.to(self.device, copy=True)
                    there = torch.zeros_like(placed if way == "to_device" else hosted)
                    there = there.pin_memory() if pin and way == "to_host" else there
                    source = hosted if way == "to_device" else placed
                    self.copies.append((there, source))
        self.streams: list[Any] = []
        if self.device.type == "cuda" and len(self.copies) > 1:
            self.streams = [torch.cuda.Stream(self.device) for _ in self.copies]

    def step(self) -> None:
        import torch

        if not self.streams:
            for target, source in self.copies:
                target.copy_(source, non_blocking=True)
            return
        main = torch.cuda.current_stream(self.device)
        for stream, (target, source) in zip(self.streams, self.copies, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)
        for stream in self.streams:
            main.wait_stream(stream)

    def check(self) -> Accuracy:
        self.step()
        self.finish()
        wrong = sum(int((target.cpu() != source.cpu()).sum()) for target, source in self.copies)
        error = wrong / (len(self.copies) * elements_of(self.case))
        return Accuracy("relative_error", error, "what was sent", 0.0, error == 0)


WORKLOAD = Transfer()
