"""Matrix products whose operands are never in cache; in `matmul` they may be."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import cycle
from typing import Any, ClassVar

from workbench.contract import Case, Parameter, Setup, Task, Variant, Work

from ._shared.product import NumpyProduct, Probe, TorchProduct
from .matmul import Matmul

OVERFLOW = 2  # size of all sets of operands, in last-level caches
MOST_SETS = 4096  # of a tiny product, which waits for its launch and not for memory


class MatmulCold(Matmul):
    """Like `matmul`, but each step takes the next of many copies of the operands.

    Together the copies are twice as large as the last-level cache, so each step finds its own
    evicted.  This slows small sizes down, large ones hardly.
    """

    name = "matmul_cold"
    title = "Matrix product, cold cache"
    teaches = "A benchmark that reuses its data measures the cache; real programs often do not."
    parameters = (Parameter("n", 512, "rows and columns of the matrices", 64, 65_536),)
    quick: ClassVar = {"n": 256}
    variants = tuple(
        Variant(kind, backend, precision)
        for kind, backend, precision in (
            ("cpu", "numpy", "fp32"),
            ("cpu", "torch", "fp32"),
            ("cpu", "torch", "bf16"),
            ("gpu", "torch", "fp32"),
            ("gpu", "torch", "bf16"),
        )
    )

    def work(self, case: Case) -> Work:
        return with_copies(super().work(case))

    def prepare(self, case: Case, setup: Setup) -> Task:
        a, b, probe = self.draw(case, setup)
        if case.backend == "numpy":
            return ColdNumpy(case, probe, a, b, setup.cache_bytes)
        return ColdTorch(case, setup, probe, a, b)


def with_copies(one: Work) -> Work:
    """The cost of a product whose operands are copied until they overflow a cache of 256 MiB."""
    copied = max(2 * (one.bytes_moved or 0.0), OVERFLOW * float(1 << 28))
    return replace(one, memory_bytes=one.memory_bytes + copied)


def copies(size: int, cache_bytes: int) -> int:
    """Number of sets of operands, of `size` bytes each, that overflow the cache; at least two."""
    return min(max(2, math.ceil(OVERFLOW * cache_bytes / size)), MOST_SETS)


class ColdNumpy(NumpyProduct):
    def __init__(self, case: Case, probe: Probe, a: Any, b: Any, cache_bytes: int) -> None:
        super().__init__(case, probe, a, b)
        count = copies(3 * a.nbytes, cache_bytes)
        self.sets = [(a.copy(), b.copy(), self.product.copy()) for _ in range(count)]
        self.turns = cycle(self.sets)

    def step(self) -> None:
        self.a, self.b, self.product = next(self.turns)
        super().step()


class ColdTorch(TorchProduct):
    def __init__(self, case: Case, setup: Setup, probe: Probe, a: Any, b: Any) -> None:
        self.turns = cycle([()])
        super().__init__(case, setup, probe, a, b)
        whole = (self.a, self.b, self.product)
        count = copies(sum(tensor.nbytes for tensor in whole), cache_of(self.device, setup))
        self.sets = [tuple(tensor.clone() for tensor in whole) for _ in range(count)]
        self.turns = cycle(self.sets)

    def step(self) -> None:
        if turn := next(self.turns):
            self.a, self.b, self.product = turn
        super().step()


def cache_of(device: Any, setup: Setup) -> int:
    """Size of the last cache before memory, bytes."""
    if device.type == "cpu":
        return setup.cache_bytes
    import torch

    return int(torch.cuda.get_device_properties(device).L2_cache_size)


WORKLOAD = MatmulCold()
