"""The machine this runs on: CPU, memory, GPUs and software, with a reason for everything missing.

`detect` reads files and asks the driver in child processes; it imports no backend.
"""

import os
import platform
from pathlib import Path

from ..records.machine import Machine, Software


def detect(
    python: str | None = None, *, root: Path = Path("/"), deadline_s: float | None = None
) -> tuple[Machine, Software]:
    """The machine and its software; a missing part is a reason, not an exception.

    `python` is the workers' interpreter, if it is another one.  `deadline_s` bounds the wait for
    each answer of a process.  `root` is the folder of /proc and /sys, for tests.
    """
    from .host.cpu import read_cpu  # here, since most who import this folder need little of it
    from .host.memory import read_memory
    from .host.system import read_os
    from .nvidia.cuda_driver import VISIBLE_DEVICES
    from .nvidia.gpus import has_mps, join, placed, without_driver
    from .nvidia.probe_client import DEADLINE_S, GpuProbes
    from .others import other_gpus
    from .packages.software import StackQuery

    deadline_s = DEADLINE_S if deadline_s is None else deadline_s
    stack = StackQuery(python)
    probes = GpuProbes()
    cpu = read_cpu(root)
    memory = read_memory(root)
    software = stack.collect(deadline_s)
    nvml, gpus, cuda = probes.collect(deadline_s)
    gpus = join(gpus, nvml, cuda, os.environ.get(VISIBLE_DEVICES))
    gpus += other_gpus(software, gpus, root, python, deadline_s)
    machine = Machine(
        hostname=platform.node(),
        os=read_os(root),
        cpu=cpu,
        memory=memory,
        gpus=placed(gpus, root),
        nvml=without_driver(nvml, root),
        cuda=cuda.driver,
        mps=has_mps(root),
    )
    return machine, software
