"""Copies between host and device, and within them: what a GPU pays before and after its work."""

import math
from functools import partial
from typing import Any

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
)
from workbench.worker.libraries import np, torch

from ._backends.torch import library_of
from ._shared.product import LIMITS, Probe, draw
from ._shared.torch_task import STREAMING, TorchTask, to_device
from .bandwidth import FLOAT_BYTES, elements_of, random_array

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
# With this many multiplications for each byte, product and copy take about equally long on a GPU.
PRODUCTS_PER_BYTE = 500
REPEATS = 3  # measurements of each part for the overlap; the fastest counts


class Transfer(Workload):
    """Copies of one array.

    Without a mode as in `.to(device)`: from pageable memory, and the program waits.  `pinned` uses
    page-locked memory and only queues the copy.  From pageable memory the driver copies through
    pinned memory of its own (CUDA Runtime API, API synchronization behavior).  On a CPU every copy
    stays within its memory, for comparison with the link.  `compute=yes` multiplies matrices on the
    device meanwhile: `overlap_fraction` is the share of the shorter part that the longer one hides.
    """

    name = "transfer"
    title = "Host-device transfer"
    teaches = "Data has to get to a GPU and back; pinned memory makes that fast."
    parameters = (
        Parameter("direction", "to_device", "direction of the copies", choices=tuple(WAYS)),
        Parameter("mib", 64.0, "size of the array", 0.00390625, 16_384, unit="MiB"),
        Parameter("compute", "no", "multiply on the device meanwhile", choices=("no", "yes")),
    )
    quick = {"mib": 16.0}
    variants = (
        Variant("cpu", "torch", "fp32"),
        *(Variant("gpu", "torch", "fp32", mode=mode) for mode in MODES),
    )

    def work(self, case: Case) -> Work:
        ways = WAYS[str(case.params["direction"])]
        size = float(elements_of(case) * FLOAT_BYTES)
        copied = size * len(ways)
        ends = [end for way in ways for end in way]
        on_device = len(ends) if case.computes_on == "cpu" else ends.count("device")
        over_link = case.device_kind == "gpu" and ways != WAYS["within"]
        n = side_of(case)
        return Work(
            flops=2.0 * n**3 if n else None,
            bytes_moved=copied if over_link else 2 * copied,  # within memory: read and written
            items=copied,
            item="bytes",
            memory_bytes=size * on_device + 3 * n * n * FLOAT_BYTES,
            host_bytes=2 * copied,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        direction = str(case.params["direction"])
        if case.mode is not None and direction in ("within", "peer"):
            text = f"{direction} uses no host memory, so {case.mode} has no meaning"
            raise WorkloadError(text, hint="use the candidate without a mode")
        return TransferTask(case, setup)


def side_of(case: Case) -> int:
    """Rows and columns of the matrices to multiply meanwhile; 0 if there are none."""
    if case.params["compute"] == "no":
        return 0
    side = math.cbrt(PRODUCTS_PER_BYTE * elements_of(case) * FLOAT_BYTES)
    return 32 * max(1, round(side / 32))


class TransferTask(TorchTask):
    """Each copy has its own stream if there is other work, so that they overlap."""

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        self.activate()  # memory is placed near the core that writes it first
        self.library = library_of(self.device.type)
        self.pinned, self.non_blocking = MODES[case.mode]
        ways = WAYS[str(case.params["direction"])]
        # A copy is asynchronous only on request and from page-locked memory (CUDA Runtime API,
        # "API synchronization behavior").
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
                rngs = [np.random.default_rng(setup.seed + which) for which in (0, 1)]
                drawn = [draw((n, n), "fp32", rng) for rng in rngs]
                self.probe = Probe(drawn[0], drawn[1], setup.seed + 2)
            self.factors = to_device(setup, case, *map(torch.from_numpy, drawn))
            self.product = torch.zeros_like(self.factors[0])
        self.streams: list[Any] = []
        if self.device.type in STREAMING and len(self.copies) + len(self.factors) > 1:
            self.streams = [self.library.Stream(self.device) for _ in self.copies]
        # The end of a copy from pageable memory may still be on its way.
        self.finishes = self.waits and not (self.streams or self.non_blocking)

    def _placed(self, hosted: Any, place: str) -> Any:
        """`hosted` itself or a copy of it, in the memory called `place`."""
        if place == "host":
            return self.page_locked(hosted) if self.pinned else hosted
        return hosted.to(self._second() if place == "peer" else self.device, copy=True)

    def _second(self) -> Any:
        count = self.library.device_count() if self.on_gpu else 0
        if count < 2:
            hint = "use direction=within to copy within one GPU"
            raise WorkloadError("there is no second GPU", code="no_device", hint=hint)
        return torch.device(self.device.type, ((self.device.index or 0) + 1) % count)

    def step(self) -> None:
        self._queue(copy=True, multiply=True)

    def _queue(self, *, copy: bool, multiply: bool) -> None:
        main: Any = self.library.current_stream(self.device) if self.streams else None
        for stream in self.streams:
            stream.wait_stream(main)
        if multiply and self.factors:
            torch.mm(*self.factors, out=self.product)
        for index, (target, source) in enumerate(self.copies if copy else ()):
            if main is None:
                target.copy_(source, non_blocking=self.non_blocking)
                continue
            with self.library.stream(self.streams[index]):
                target.copy_(source, non_blocking=self.non_blocking)
        for stream in self.streams:
            main.wait_stream(stream)

    def metrics(self) -> dict[str, float]:
        """The times of copy and product, separately and together, taken after the block."""
        if not self.factors:
            return {}
        waiting = self._fastest(copy=False, multiply=False)  # a fixed cost of each measurement
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
        return min(self.timed(partial(self._queue, copy=copy, multiply=multiply), REPEATS))

    def check(self) -> Accuracy:
        self.step()
        self.finish()
        wrong = sum(int((target.cpu() != source.cpu()).sum()) for target, source in self.copies)
        lost = wrong / (len(self.copies) * elements_of(self.case))
        if not self.factors:
            return Accuracy.within(lost, 0.0, "the array that was sent")
        product = self.probe.check(self.case, self.product)
        reference = f"the array that was sent; {product.reference}"
        error = max(product.value, lost)  # in this order a NaN stays
        passed = lost == 0 and product.passed
        return Accuracy("relative_error", error, reference, LIMITS["fp32"], passed)


WORKLOAD = Transfer()
