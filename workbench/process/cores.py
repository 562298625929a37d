"""The cores this process may run on."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

GPU_CORES = "WORKBENCH_GPU_CORES"  # for workers on a GPU: JSON, device to a list of cores near it
# Five digits suffice: NR_CPUS is 8,192 on x86-64.
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_before: set[int] | None = None  # the affinity mask before `bind_near`, if that has bound it


def affinity_mask() -> set[int] | None:
    """The logical cores in this process's affinity mask; None if it cannot be read."""
    if not hasattr(os, "sched_getaffinity"):
        return None  # macOS
    try:
        return os.sched_getaffinity(0)
    except OSError:
        return None


def allowed_cores() -> list[int]:
    """The numbers of the logical cores this process may run on."""
    return sorted(affinity_mask() or range(os.cpu_count() or 1))


def cpulist(text: str) -> set[int]:
    """The CPUs of a list such as `0-3,8` (kernel docs, cputopology.rst); empty if malformed."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        found = match and range(int(match[1]), int(match[2] or match[1]) + 1)
        if not found:
            return set()
        cpus.update(found)
    return cpus


def bind_near(device: str) -> None:
    """Keep this process, and memory that it is the first to write, near a GPU.

    Processes that it forks, such as loaders, may run on any core, as they would without us.
    """
    global _before
    near = cpulist(json.loads(os.environ.get(GPU_CORES) or "{}").get(device, ""))
    before = affinity_mask()
    if near and before:
        _bind(near)
        os.register_at_fork(after_in_child=partial(_bind, before))
        _before = before


@contextmanager
def unbound() -> Iterator[None]:
    """Undo `bind_near` for this thread, and for processes that it starts, during the block."""
    near = affinity_mask() if _before else None
    if near is None or _before is None:
        yield
        return
    _bind(_before)
    try:
        yield
    finally:
        _bind(near)


def _bind(cores: set[int]) -> None:
    with suppress(OSError):  # the cores may have been taken away
        os.sched_setaffinity(0, cores)
