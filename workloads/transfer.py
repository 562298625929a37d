"""Copies between host and device, and within them: what a GPU pays before and after its work."""

from __future__ import annotations

import math
import time
from typing import Any, ClassVar

from workbench.contract import (
    Accuracy,
    Case,
    Parameter,
    Setup,
    Task,
    Variant,
    Work,
    Workload,
    WorkloadError,
    is_cuda,
)

from ._shared.product import LIMITS, Probe, draw
from ._shared.torch_task import TorchTask, to_device
from .bandwidth import BYTES, elements_of, random_array

WAYS = {  # from where to where
    "to_device": (("host", "device"),),
    "to_host": (("device", "host"),),
    "both": (("host", "device"), ("device", "host")),
    "within": (("device", "device"),),
    "peer": (("device", "peer"),),
}
MODES = {  # pinned, non_blocking
    None: (False, False),
    "non_blocking": (False, True),
    "pinned": (True, True),
    "pinned-blocking": (True, False),
}
# Multiplying takes about as long as the copy where a GPU does so many for a byte over its link.
PRODUCTS_PER_BYTE = 500
REPEATS = 3  # of each part alone, for the overlap


class Transfer(Workload):
    """Copies of one array.  Without a mode as `.to(device)` does it: pageable memory, and the
    program waits; `pinned` is page-locked and only queued.

    From pageable memory the driver copies through pinned memory of its own (CUDA Runtime API, API
    synchronization behavior).  On a CPU host and device share one memory: every way is a copy
    within it, beside which the link can be seen.  `compute=yes` multiplies matrices on the device
    meanwhile; `overlap_fraction` tells how much of the shorter part the longer one hid.
    """

    name = "transfer"
    title = "Host-device transfer"
    teaches = "Data has to get to a GPU and back; pinned memory is what makes that fast."
    parameters = (
        Parameter("direction", "to_device", "which way", choices=tuple(WAYS)),
        Parameter("mib", 64.0, "size of the array", 0.00390625, 16_384, unit="MiB"),
        Parameter("compute", "no", "multiply on the device meanwhile", choices=("no", "yes")),
    )
    quick: ClassVar = {"mib": 16.0}
    variants = (
        Variant("cpu", "torch", "fp32"),
        *(Variant("gpu", "torch", "fp32", mode=mode) for mode in MODES),
    )

    def work(self, case: Case) -> Work:
        ways = WAYS[str(case.params["direction"])]
        size = float(elements_of(case) * BYTES)
        copied = size * len(ways)
        ends = [end for way in ways for end in way]
        on_device = ends.count("device") if is_cuda(case.device) else len(ends)
        over_link = case.device_kind == "gpu" and ways != WAYS["within"]
        n = side_of(case)
        return Work(
            flops=2.0 * n**3 if n else None,
            bytes_moved=copied if over_link else 2 * copied,  # within memory: read and written
            items=copied,
            item="bytes",
            memory_bytes=size * on_device + 3 * n * n * BYTES,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        direction = str(case.params["direction"])
        if case.mode is not None and direction in ("within", "peer"):
            raise WorkloadError(
                f"{direction}: no host memory takes part, so {case.mode} has no meaning",
                hint="the candidate without a mode does it",
            )
        return TransferTask(case, setup)


def side_of(case: Case) -> int:
    """Rows and columns of the matrices multiplied meanwhile; 0: none are."""
    if case.params["compute"] == "no":
        return 0
    side = math.cbrt(PRODUCTS_PER_BYTE * elements_of(case) * BYTES)
    return 32 * max(1, round(side / 32))


class TransferTask(TorchTask):
    """Where something else goes on, each copy has a stream of its own, so that they overlap."""

    def __init__(self, case: Case, setup: Setup) -> None:
        import torch

        super().__init__(case)
        self.activate()  # a page lies near the core that writes it first
        self.pinned, self.non_blocking = MODES[case.mode]
        ways = WAYS[str(case.params["direction"])]
        # Only page-locked memory is copied behind the host's back, and only where that is asked for
        # (CUDA Runtime API, "API synchronization behavior").
        asynchronous = self.pinned and self.non_blocking
        self.waits = not asynchronous and any("host" in way for way in ways)
        generator = torch.Generator().manual_seed(setup.seed)
        self.copies: list[tuple[Any, Any]] = []  # target, source
        with setup.phase("build"):
            for start, end in ways:
                hosted = random_array(elements_of(case), generator)
                source = self._placed(hosted, start)
                self.copies.append((self._placed(torch.zeros_like(hosted), end), source))
        self.factors: list[Any] = []
        if n := side_of(case):
            with setup.phase("build"):
                drawn = [draw((n, n), "fp32", setup.seed + which) for which in (0, 1)]
                self.probe = Probe(drawn[0], drawn[1], setup.seed + 2)
            self.factors = to_device(setup, case, *map(torch.from_numpy, drawn))
            self.product = torch.zeros_like(self.factors[0])
        self.streams: list[Any] = []
        if self.device.type == "cuda" and len(self.copies) + len(self.factors) > 1:
            self.streams = [torch.cuda.Stream(self.device) for _ in self.copies]

    def _placed(self, hosted: Any, place: str) -> Any:
        """A copy of `hosted` where it belongs."""
        if place == "host":
            return hosted.pin_memory() if self.pinned and self.device.type == "cuda" else hosted
        return hosted.to(self._second() if place == "peer" else self.device, copy=True)

    def _second(self) -> Any:
        import torch

        count = torch.cuda.device_count() if self.device.type == "cuda" else 0
        if count < 2:
            raise WorkloadError(
                "there is no second GPU here",
                code="no_device",
                hint="direction=within copies within one",
            )
        return torch.device("cuda", ((self.device.index or 0) + 1) % count)

    def step(self) -> None:
        self._queue(copy=True, multiply=True)

    def _queue(self, *, copy: bool, multiply: bool) -> None:
        import torch

        main: Any = torch.cuda.current_stream(self.device) if self.streams else None
        for stream in self.streams:
            stream.wait_stream(main)
        if multiply and self.factors:
            torch.mm(*self.factors, out=self.product)
        for index, (target, source) in enumerate(self.copies if copy else ()):
            if main is None:
                target.copy_(source, non_blocking=self.non_blocking)
                continue
            with torch.cuda.stream(self.streams[index]):
                target.copy_(source, non_blocking=self.non_blocking)
        for stream in self.streams:
            main.wait_stream(stream)

    def figures(self) -> dict[str, float]:
        """Measured on its own after a block, each part alone and both together."""
        if not self.factors:
            return {}
        waiting = self._fastest(copy=False, multiply=False)  # which each of them pays once
        copy_s, multiply_s, both_s = (
            max(1e-9, self._fastest(copy=copy, multiply=multiply) - waiting)
            for copy, multiply in ((True, False), (False, True), (True, True))
        )
        hidden = (copy_s + multiply_s - both_s) / min(copy_s, multiply_s)
        return {
            "overlap_fraction": min(1.0, max(0.0, hidden)),
            "copy_alone_s": copy_s,
            "product_alone_s": multiply_s,
        }

    def _fastest(self, *, copy: bool, multiply: bool) -> float:
        spent = []
        for _ in range(REPEATS):
            self.finish()
            began = time.perf_counter()
            self._queue(copy=copy, multiply=multiply)
            self.finish()
            spent.append(time.perf_counter() - began)
        return min(spent)

    def check(self) -> Accuracy:
        self.step()
        self.finish()
        wrong = sum(int((target.cpu() != source.cpu()).sum()) for target, source in self.copies)
        lost = wrong / (len(self.copies) * elements_of(self.case))
        if not self.factors:
            return Accuracy("relative_error", lost, "what was sent", 0.0, lost == 0)
        product = self.probe.check(self.case, self.product.cpu().numpy())
        reference = f"what was sent; {product.reference}"
        error = max(lost, product.value)
        passed = lost == 0 and product.passed
        return Accuracy("relative_error", error, reference, LIMITS["fp32"], passed)


WORKLOAD = Transfer()
