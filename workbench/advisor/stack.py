"""The software of a machine level by level, from the interpreter down to the cards."""

from collections.abc import Iterator, Mapping

import msgspec

from .. import catalog
from ..machine.nvidia.driver_errors import ABSENT
from ..machine.packages.trials import Trial
from ..machine.warnings import of_others
from ..records.machine import Machine, Package, Software

OK, WARN, FAIL = "ok", "warn", "fail"
ORT = "onnxruntime"


class Level(msgspec.Struct, frozen=True):
    """One line of the stack as it is drawn, from python down to the GPU."""

    depth: int
    name: str
    found: str
    status: str | None  # "ok", "warn", "fail"; None: absent and not needed
    note: str = ""


def package_of(name: str, software: Software) -> str | None:
    """The installed package that `import name` would find; several provide onnxruntime."""
    names = catalog.backend(name).packages or (name,)
    for package, found in software.packages.items():
        fits = package in names or (name == ORT and package.startswith(f"{ORT}-"))
        if found.version and fits:
            return package
    return None


def sees_gpu(machine: Machine) -> bool:
    return any(gpu.visible and not gpu.simulated for gpu in machine.gpus)


def stack(machine: Machine, software: Software, trials: Mapping[str, Trial]) -> list[Level]:
    """The stack from the interpreter down to the cards, with the version of each level."""
    levels = [Level(0, "python", software.python or "unknown", OK if software.python else FAIL)]
    hardware = list(_driver_levels(machine))
    is_bare = all(level.status is None for level in hardware)  # neither a GPU nor a driver
    # Without an answer from the interpreter its packages are unknown.
    needed = ("torch", ORT) if software.python else ()
    for name in dict.fromkeys((*needed, *trials)):
        package = software.packages.get(package_of(name, software) or name)
        optional = catalog.backend(name).optional
        # An optional package may well be a build for the CPU.
        has_gpu = sees_gpu(machine) and not optional
        levels += _package_levels(name, package, trials.get(name), has_gpu=has_gpu, is_bare=is_bare)
    return [*levels, *hardware]


def _package_levels(
    name: str, package: Package | None, trial: Trial | None, *, has_gpu: bool, is_bare: bool
) -> Iterator[Level]:
    if trial is None:
        yield Level(1, name, "not installed", FAIL)
        return
    version = trial.version or (package and package.version) or "unknown"
    broken = [device for device, why in trial.devices.items() if why is not None]
    working = [device for device in trial.devices if device not in broken]
    status = FAIL if trial.failure or not working else WARN if broken and not is_bare else OK
    note = trial.failure or ("runs on " + ", ".join(working) if working else "")
    if broken:
        note += f"{'; ' if note else ''}not on {', '.join(broken)}"
    if has_gpu and working and not broken and len(trial.devices) == 1:
        status, note = WARN, f"{note}; not on the GPU"  # the chain breaks here
    found = f"{version}, {package.detail}" if package and package.detail else version
    yield Level(1, name, found, status, note)
    for library, linked in trial.libraries.items():
        if linked is not None:
            yield Level(2, library, linked, OK)


def _driver_levels(machine: Machine) -> Iterator[Level]:
    nvml, cuda = machine.nvml, machine.cuda
    reason = nvml.reason or cuda.reason
    if nvml.available or cuda.available:
        status = OK if nvml.available and cuda.available else WARN
        found = f"{nvml.driver_version or 'unknown'}, CUDA {machine.cuda.api_version or 'unknown'}"
        yield Level(0, "driver", found, status, reason.message if reason else "")
    else:
        missing = reason is None or reason.code in ABSENT
        why = reason.message if reason else ""
        yield Level(0, "driver", "none", None if missing else FAIL, why)
    cards = [gpu for gpu in machine.gpus if not gpu.simulated]
    for gpu in cards:
        if of_others(gpu, machine):
            yield Level(0, "GPU", gpu.name or "not readable", None, "not yours")
            continue
        found = ", ".join(filter(None, [gpu.name or "unreadable", gpu.platform]))
        yield Level(0, "GPU", found, OK if gpu.device else WARN, gpu.device or "not usable")
    if not cards:
        yield Level(0, "GPU", "none", None)
