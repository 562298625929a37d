"""Memory of the near and of the far NUMA node, read and written by one core of the near one."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, WorkloadError

from ._shared.nodes import Node, bound, farthest, nodes, pages_by_node, usable
from .bandwidth import ARRAYS, FLOAT_BYTES, SCALAR, Bandwidth, compared, elements_of

PERIOD = 1 << 20  # elements drawn; arrays repeat them
CHUNK = 1 << 16  # elements; the triad's intermediate result stays in a core's cache


class Numa(Bandwidth):
    """The kernels of `bandwidth` in NumPy on one thread, on memory of either node.

    Linux puts a page on the node of the core that writes it first (kernel docs, "NUMA Memory
    Policy").  A core of the wanted node fills the arrays, a core of the first node works on them.
    """

    name = "numa"
    title = "Near and far memory"
    teaches = "Memory of another socket is slower: run threads where their data is."
    parameters = (
        Parameter("kernel", "triad", "operation", choices=tuple(ARRAYS)),
        Parameter("mib", 256.0, "size of each array", 1, 65_536, unit="MiB"),
    )
    quick: ClassVar = {"mib": 64.0}
    variants = (
        Variant("cpu", "numpy", "fp32", mode="near", threads=1),
        Variant("cpu", "numpy", "fp32", mode="far", threads=1),
    )

    def prepare(self, case: Case, setup: Setup) -> Task:
        found = usable(nodes())
        if case.mode == "far" and len(found) < 2:
            raise WorkloadError(
                "this machine has one memory node",
                hint="far memory needs two sockets, or a processor split into nodes, and permission"
                " to use cores of both",
            )
        return NumaTask(case, setup, found)


class NumaTask(Task):
    """Binds the thread to a node during a step only, so other tasks of the process are free."""

    def __init__(self, case: Case, setup: Setup, found: Sequence[Node]) -> None:
        import numpy as np

        self.case = case
        self.near = found[0] if found else None
        self.home = farthest(found) if case.mode == "far" else self.near
        rng = np.random.default_rng(setup.seed)
        size = elements_of(case)
        with setup.phase("build"), bound(self.home):
            self.target, *self.sources = (
                pages(size, rng) for _ in range(ARRAYS[str(case.params["kernel"])])
            )
        self.scaled = np.empty(CHUNK, np.float32)
        self._require_home()

    def _require_home(self) -> None:
        """Raise WorkloadError if a memory policy put the pages on another node."""
        placed = pages_by_node(self.target.ctypes.data)
        if self.home is None or not placed:
            return
        if placed.get(self.home.number, 0) < sum(placed.values()) / 2:
            raise WorkloadError(
                f"its pages are not on memory node {self.home.number}",
                hint="a memory policy is in force: run without numactl, in a cpuset with memory of"
                " both nodes",
            )

    def step(self) -> None:
        with bound(self.near):
            self._work()

    def _work(self) -> None:
        import numpy as np

        if len(self.sources) == 1:
            np.copyto(self.target, self.sources[0])
            return
        b, c = self.sources
        for start in range(0, len(b), CHUNK):
            part = slice(start, start + CHUNK)
            scaled = np.multiply(c[part], SCALAR, out=self.scaled[: len(c[part])])
            np.add(b[part], scaled, out=self.target[part])

    def check(self) -> Accuracy:
        self.step()
        arrays = self.target, *self.sources
        return compared(
            lambda part: [each[part].astype(float) for each in arrays], len(self.target)
        )


def pages(size: int, rng: Any) -> Any:
    """`size` normal random FP32 numbers on fresh pages, which the calling thread writes first."""
    import numpy as np

    drawn = rng.standard_normal(min(size, PERIOD), dtype=np.float32)
    memory = mmap.mmap(-1, size * FLOAT_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # NumPy does the same for its own arrays
        with suppress(OSError):  # the kernel has none
            memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.float32)
    for start in range(0, size, len(drawn)):
        part = array[start : start + len(drawn)]
        part[:] = drawn[: len(part)]
    return array


WORKLOAD = Numa()
