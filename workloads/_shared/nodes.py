"""Memory nodes of the machine: which there are, being on one, and where pages lie.

Sources: kernel docs, ABI/stable/sysfs-devices-node, filesystems/proc.rst (numa_maps).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from workbench.process.cores import affinity_mask, cpulist

NODES = Path("sys/devices/system/node")


@dataclass(frozen=True)
class Node:
    """A memory node with cores of its own."""

    number: int
    cpus: frozenset[int]
    distances: Mapping[int, int] = field(default_factory=dict)  # to each node; 10 is to itself


def nodes(root: Path = Path("/")) -> list[Node]:
    """The nodes that have memory and cores, as sysfs shows them; empty where it does not."""
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
            ways = dict(zip(sorted(folders), distances, strict=False))  # online nodes only
            found.append(Node(number, cpus, ways))
    return found


def usable(found: Sequence[Node]) -> list[Node]:
    """The nodes of whose cores this process may use some, with those cores."""
    allowed = affinity_mask() or set()
    shared = (replace(node, cpus=node.cpus & allowed) for node in found)
    return [node for node in shared if node.cpus]


def farthest(found: Sequence[Node]) -> Node:
    """The node that the first one has the longest way to."""
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
    """Pages on each node of the mapping that holds `address`; empty where the
    kernel does not tell."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return {}
    before = [line for line in lines if int(line.split(maxsplit=1)[0], 16) <= address]
    found = re.findall(r" N(\d+)=(\d+)", before[-1]) if before else []
    return {int(node): int(count) for node, count in found}
