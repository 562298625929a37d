"""Matrix products whose operands are never in cache; in `matmul` they may be."""

import math
from copy import deepcopy
from dataclasses import replace
from itertools import cycle
from typing import Any

from workbench.contract import Case, Parameter, Setup, Task, Variant, Work
from workbench.worker.libraries import torch

from .matmul import Matmul

MOST_CACHE_BYTES = 1 << 29  # larger ones would take gigabytes of copies
MOST_L2_BYTES = 1 << 27  # no GPU has a larger L2 cache yet
OVERFLOW = 2  # size of all sets of operands, in times the last-level cache
MOST_SETS = 4096  # for a tiny product, which launches limit rather than memory


class MatmulCold(Matmul):
    """Like `matmul`, but each step takes the next of many copies of the operands.  Together the
    copies are twice as large as all last-level caches, of which at most 512 MiB count, so each step
    finds its own evicted.  This slows small sizes down, but hardly large ones."""

    name = "matmul_cold"
    title = "Matrix product, cold cache"
    teaches = "A benchmark that reuses its data measures the cache; real programs often do not."
    parameters = (Parameter("n", 512, "rows and columns of the matrices", 64, 65_536),)
    quick = {"n": 256}
    variants = (
        Variant("cpu", "numpy", "fp32"),
        *(Variant(kind, "torch", p) for kind in ("cpu", "gpu") for p in ("fp32", "bf16")),
    )

    def work(self, case: Case) -> Work:
        return with_copies(super().work(case), case)

    def prepare(self, case: Case, setup: Setup) -> Task:
        return cold(super().prepare(case, setup), setup)


def with_copies(one: Work, case: Case) -> Work:
    """The cost of a product whose operands are copied until they overflow the largest cache."""
    cache_bytes = MOST_CACHE_BYTES if case.device_kind == "cpu" else MOST_L2_BYTES
    copied = max(2 * (one.bytes_moved or 0.0), OVERFLOW * float(cache_bytes))
    return replace(one, memory_bytes=one.memory_bytes + copied)


def copies(size: int, cache_bytes: int) -> int:
    """Number of sets of operands, of `size` bytes each, that overflow the cache; at least two."""
    return min(max(2, math.ceil(OVERFLOW * cache_bytes / size)), MOST_SETS)


def cold(task: Any, setup: Setup) -> Task:
    """The product `task`, each step of which takes the next copy of its operands."""
    cache_bytes = MOST_CACHE_BYTES  # that of a GPU without CUDA is unknown
    if task.case.computes_on == "cpu":
        cache_bytes = min(setup.cache_bytes, MOST_CACHE_BYTES)
    elif task.device.type == "cuda":
        cache_bytes = torch.cuda.get_device_properties(task.device).L2_cache_size
    whole, step = (task.a, task.b, task.product), task.step
    count = copies(sum(each.nbytes for each in whole), cache_bytes)
    task.sets = [deepcopy(whole) for _ in range(count)]
    turns = cycle(task.sets)

    def cold_step() -> None:
        task.a, task.b, task.product = next(turns)
        step()

    task.step = cold_step
    return task  # type: ignore[no-any-return]


WORKLOAD = MatmulCold()
