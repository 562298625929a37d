"""The machine of a run, with the simulated GPUs that it asks for."""

import msgspec

from ..machine import detect
from ..machine.nvidia.probe_client import DEADLINE_S
from ..planning.request import NAME_PYTHON, Request, fake_devices
from ..planning.usage import UsageError
from ..records.machine import Gpu, Machine, Software

LEAST_S = 1.0  # to detect the machine, however short the budget is


def detected(request: Request, within_s: float) -> tuple[Machine, Software]:
    """The machine, with a GPU for each simulated device, and its software, detected in about
    `within_s`; UsageError if the requested interpreter fails."""
    machine, software = detect(request.python, deadline_s=min(DEADLINE_S, max(LEAST_S, within_s)))
    if (failure := software.unavailable.get("python")) is not None:
        raise UsageError(f"--python: {failure}; {NAME_PYTHON}")
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
    return msgspec.structs.replace(machine, gpus=[*machine.gpus, *fakes]), software
