"""Memory of the near and of the far NUMA node, read and written by one core of the near one.

Sources on nodes: kernel docs, ABI/stable/sysfs-devices-node, filesystems/proc.rst (numa_maps).
"""

import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, WorkloadError
from workbench.process.cores import affinity_mask, cpulist
from workbench.worker.libraries import np

from .bandwidth import ARRAYS, FLOAT_BYTES, SCALAR, Bandwidth, compared, elements_of

NODES = Path("sys/devices/system/node")
PERIOD = 1 << 20  # elements drawn; arrays repeat them
CHUNK = 1 << 16  # elements; the triad's intermediate result stays in a core's cache


class Numa(Bandwidth):
    """The kernels of `bandwidth` in NumPy on one thread, on memory of either node.  Linux puts a
    page on the node of the core that writes it first (kernel docs, "NUMA Memory Policy").  A core
    of the wanted node fills the arrays, a core of the first node works on them."""

    name = "numa"
    title = "Near and far memory"
    teaches = "Memory of another socket is slower: run threads where their data is."
    parameters = (
        Parameter("kernel", "triad", "operation", choices=tuple(ARRAYS)),
        Parameter("mib", 256.0, "size of each array", 1, 65_536, unit="MiB"),
    )
    quick = {"mib": 64.0}
    variants = (
        Variant("cpu", "numpy", "fp32", mode="near", threads=1),
        Variant("cpu", "numpy", "fp32", mode="far", threads=1),
    )

    def prepare(self, case: Case, setup: Setup) -> Task:
        found = usable(nodes())
        if case.mode == "far" and len(found) < 2:
            needed = "two sockets, or a processor split into nodes"
            hint = f"far memory needs {needed}, and permission to use cores of both"
            raise WorkloadError("this machine has one memory node", hint=hint)
        return NumaTask(case, setup, found)


class NumaTask(Task):
    """Binds the thread to a node during a step only, so other tasks of the process are free."""

    def __init__(self, case: Case, setup: Setup, found: "Sequence[Node]") -> None:
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
            remedy = "run without numactl, in a cpuset with memory of both nodes"
            text = f"its pages are not on memory node {self.home.number}"
            raise WorkloadError(text, hint=f"a memory policy is in force: {remedy}")

    def step(self) -> None:
        with bound(self.near):
            self._work()

    def _work(self) -> None:
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


@dataclass(frozen=True)
class Node:
    """A memory node with cores of its own."""

    number: int
    cpus: set[int]
    distances: Mapping[int, int] = field(default_factory=dict)  # to each node; 10 is to itself


def nodes(root: Path = Path("/")) -> list[Node]:
    """The nodes that have memory and cores, as sysfs shows them; empty if it does not."""
    folders = {int(f.name.removeprefix("node")): f for f in (root / NODES).glob("node[0-9]*")}
    found = []
    for number, folder in sorted(folders.items()):
        try:
            cpus = cpulist((folder / "cpulist").read_text())
            distances = [int(word) for word in (folder / "distance").read_text().split()]
            total = re.search(r"MemTotal:\s+(\d+)", (folder / "meminfo").read_text())
        except (OSError, ValueError):
            continue
        if cpus and total and int(total[1]):
            by_node = dict(zip(sorted(folders), distances, strict=False))  # online nodes only
            found.append(Node(number, cpus, by_node))
    return found


def usable(found: Sequence[Node]) -> list[Node]:
    """The nodes with cores that this process may use, limited to those cores."""
    allowed = affinity_mask() or set()
    shared = (replace(node, cpus=node.cpus & allowed) for node in found)
    return [node for node in shared if node.cpus]


def farthest(found: Sequence[Node]) -> Node:
    """The node at the largest distance from the first."""
    return max(found[1:], key=lambda node: found[0].distances.get(node.number, 0))


@contextmanager
def bound(node: Node | None) -> Iterator[None]:
    """Keep the calling thread on the cores of `node`; other threads stay where they are."""
    if node is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, node.cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pages_by_node(address: int, maps: Path = Path("/proc/self/numa_maps")) -> dict[int, int]:
    """Pages on each node of the mapping that holds `address`; empty if the kernel hides them."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return {}
    before = [line for line in lines if int(line.split(maxsplit=1)[0], 16) <= address]
    found = re.findall(r" N(\d+)=(\d+)", before[-1]) if before else []
    return {int(node): int(count) for node, count in found}


WORKLOAD = Numa()
