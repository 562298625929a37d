"""The machine of a run, with GPUs that detection misses: simulated ones, and those of a backend."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .. import catalog
from ..machine import detect
from ..machine.nvidia.probe_client import DEADLINE_S
from ..planning.plan import RowPlan
from ..planning.request import NAME_PYTHON, Request, fake_devices
from ..planning.usage import UsageError
from ..pool.answers import Accelerators
from ..pool.pool import Pool, WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records.machine import Gpu, Machine, Software

LEAST_S = 1.0  # for an answer about the machine, however short the budget is


def detected(request: Request, within_s: float) -> tuple[Machine, Software]:
    """The machine with its simulated GPUs, and its software, found out in about `within_s`.

    Raises UsageError if the requested interpreter fails.
    """
    machine, software = detect(request.python, deadline_s=min(DEADLINE_S, max(LEAST_S, within_s)))
    if (failure := software.unavailable.get("python")) is not None:
        raise UsageError(f"--python: {failure}; {NAME_PYTHON}")
    return _with_simulated(machine, request), software


def _with_simulated(machine: Machine, request: Request) -> Machine:
    """The machine with a GPU for each requested fake device."""
    fakes = [
        Gpu(
            index=None,
            device=device,
            uuid=None,
            pci_bus_id=None,
            name=f"Simulated GPU, {speed:g}x this CPU",
            simulated=True,
            unavailable={"*": "simulated: no sensors"},
        )
        for device, speed in fake_devices(request).items()
    ]
    return msgspec.structs.replace(machine, gpus=[*machine.gpus, *fakes])


def backend_to_ask(
    machine: Machine, software: Software, request: Request, rows: Sequence[RowPlan]
) -> str | None:
    """A backend that may know GPUs where none is found, among those that the rows use anyway."""
    if machine.gpus:
        return None
    used = dict.fromkeys(v.backend for row in rows for v in row.workload.variants)
    return next(
        (
            name
            for name in used
            if catalog.backend(name).lists_gpus
            and name in software.packages
            and name in (request.backends or used)
        ),
        None,
    )


def with_gpus_of(backend: str, machine: Machine, pool: Pool, left_s: float) -> Machine:
    """The machine with GPUs that only `backend` can see: ROCm builds, containers without NVML."""
    key = WorkerKey("cpu", backend)
    try:
        pool.start(key, left_s)
        devices = pool.ask(key, left_s, Accelerators, op="accelerators").result.devices
    except WorkerFailed:
        return machine  # its cases report the failure
    found = [
        Gpu(
            index=None,
            pci_bus_id=None,
            unavailable={"*": f"only {backend} sees this device; NVML and libcuda do not"},
            **msgspec.structs.asdict(device),
        )
        for device in devices
    ]
    return msgspec.structs.replace(machine, gpus=found)
