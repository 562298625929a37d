"""Is the machine in order?  Its software level by level, and checks with remedies."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from .. import catalog
from ..machine import warnings as hardware
from ..machine.datasheets import shortfalls
from ..machine.nvidia.driver_errors import ABSENT
from ..machine.nvidia.gpus import GPU_WITHOUT_DRIVER
from ..machine.packages import onnx_cuda
from ..machine.packages.software import ORT, WARNED, package_of
from ..records.document import Ceilings
from ..records.inspection import FAIL, OK, WARN, Check, DoctorReport, Level, Trial
from ..records.machine import Gpu, Links, Machine, Package, Pcie, Software
from ..records.reason import Reason, Warning
from ..report.measurements import against, fastest_of
from ..report.report import Report
from ..text import units
from ..worker.failures import FULL_HINT, cause, is_out_of_memory
from ..worker.onnx_gpu import CPU, CUDA

LEAST_FREE = 0.10  # share of memory that should be free, on the host and on each GPU
# Detection warnings after which something installed cannot be used as it is.
_FATAL = (
    *hardware.NOT_BY_TORCH, "gpu_prohibited", "nvml_without_cuda", "gpu_unreadable",
    "gpu_without_driver", "python_silent", "python_too_old", "version_mismatch",
)  # fmt: skip
# "hw_slowdown" is left out: cards report it briefly while they wake up.
_SLOWING = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


def examine(
    head: Mapping[str, Any],
    machine: Machine,
    software: Software,
    trials: Mapping[str, Trial],
    ceilings: Ceilings | None = None,
    compared: tuple[Report, Links] | None = None,
) -> DoctorReport:
    """Everything that can be said of the machine.  `head` has the first members of every document;
    `trials` are by package; `compared` has the same matrix product on every GPU, and the links
    between the GPUs."""
    warnings = hardware.hardware_warnings(machine, software)
    checks = [
        *_host(machine, warnings),
        *_packages(machine, software, trials, warnings),
        *_driver(machine, warnings),
        *(c for gpu in machine.gpus if not gpu.simulated for c in _gpu(gpu, machine, warnings)),
        *_reached(ceilings),
    ]
    report, links = compared or (Report(), None)
    return DoctorReport(
        **head,
        stack=stack(machine, software, trials),
        checks=[*checks, *stragglers(report)],
        links=links,
        trials=dict(trials),
        machine=machine,
        software=software,
    )


def sees_gpu(machine: Machine) -> bool:
    return any(gpu.visible and not gpu.simulated for gpu in machine.gpus)


def stack(machine: Machine, software: Software, trials: Mapping[str, Trial]) -> list[Level]:
    """The stack from the interpreter down to the cards, with the version of each level."""
    levels = [Level(0, "python", software.python or "unknown", OK if software.python else FAIL)]
    below = list(_driver_levels(machine))
    is_bare = all(level.status is None for level in below)  # neither a GPU nor a driver
    # Without an answer from the interpreter its packages are unknown.
    needed = ("torch", ORT) if software.python else ()
    for name in dict.fromkeys((*needed, *trials)):
        package = software.packages.get(package_of(name, software) or name)
        optional = catalog.backend(name).optional
        # An optional package may well be a build for the CPU.
        has_gpu = sees_gpu(machine) and not optional
        levels += _package_levels(name, package, trials.get(name), has_gpu=has_gpu, is_bare=is_bare)
    return [*levels, *below]


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
        if hardware.of_others(gpu, machine):
            yield Level(0, "GPU", gpu.name or "not readable", None, "not yours")
            continue
        found = ", ".join(filter(None, [gpu.name or "unreadable", gpu.platform]))
        note = gpu.device or ("not usable" if gpu.visible else "hidden")
        yield Level(0, "GPU", found, OK if gpu.device else WARN, note)
    if not cards:
        yield Level(0, "GPU", "none", None)


def _check(name: str, warning: Warning) -> Check:
    status = FAIL if warning.code in _FATAL else WARN
    return Check(name, status, warning.message, warning.remedy)


def _from(
    warnings: Sequence[Warning], *codes: str, name: str, otherwise: str | None = None
) -> list[Check]:
    """The warnings with these codes as checks of that name; without any, an OK with `otherwise`."""
    found = [_check(name, warning) for warning in warnings if warning.code in codes]
    return found or ([Check(name, OK, otherwise)] if otherwise is not None else [])


def _host(machine: Machine, warnings: Sequence[Warning]) -> Iterator[Check]:
    cpu, memory = machine.cpu, machine.memory
    cores = f"{cpu.effective_cores} of {units.counted(cpu.logical_cores, 'core')}"
    yield from _from(warnings, "fewer_cores", name="cores", otherwise=cores)
    free = f"{units.size(memory.available_bytes)} of {units.size(memory.usable_bytes)} free"
    if memory.available_bytes < LEAST_FREE * memory.usable_bytes:
        yield Check("memory", WARN, f"only {free}", "stop other processes or measure small sizes")
    else:
        yield Check("memory", OK, free)
    unset = "no environment variables affect results"
    yield from _from(warnings, *WARNED, name="environment", otherwise=unset)


def _packages(
    machine: Machine, software: Software, trials: Mapping[str, Trial], warnings: Sequence[Warning]
) -> Iterator[Check]:
    broken = _from(warnings, "python_silent", "python_too_old", name="python")
    yield from broken or [Check("python", OK, f"Python {software.python}")]
    yield from _from(warnings, "debug_build", "two_onnxruntimes", name="packages")
    if broken:
        return
    for name in dict.fromkeys(("torch", ORT, *trials)):
        yield from _works(name, machine, software, trials.get(name))
    if sees_gpu(machine):
        yield from _torch_gpu(machine, software, trials.get("torch"), warnings)
    if machine.cuda_gpus:
        yield from _ort_gpu(machine, software, trials.get(ORT))


def _works(name: str, machine: Machine, software: Software, trial: Trial | None) -> Iterator[Check]:
    """Whether the package computes on the CPU, and an optional one also on its other devices."""
    pip, library = f"{software.executable} -m pip install", catalog.backend(name)
    builds = {}  # package to an install command; the default wheels suit few drivers
    if machine.cuda_gpus:
        builds["torch"] = hardware.torch_remedy(machine, software.executable)
        if (fits := onnx_cuda.remedy(machine, software)).startswith(software.executable):
            builds[ORT] = fits  # else the driver is too old for any
    if trial is None:
        yield Check(name, FAIL, "not installed", builds.get(name, f"{pip} {name}"))
        return
    cpu = CPU if name == ORT else "cpu"
    why = trial.failure or trial.devices.get(cpu, f"{cpu} is missing")
    if why is not None:
        package = package_of(name, software) or next(iter(library.packages), name)
        remedy = builds.get(name, f"{pip} --force-reinstall {package}")
        yield Check(name, WARN if library.optional else FAIL, f"does not work: {why}", remedy)
    else:
        yield Check(name, OK, f"{trial.version} gives correct results on the CPU")
    for device, why in trial.devices.items():
        if why is not None and device != "cpu" and library.optional:
            yield Check(name, WARN, f"does not work on {device}: {why}")
    for warning in hardware.library_warnings(name, trial.version, trial.libraries.get("OpenMP")):
        yield Check(name, WARN, warning.message, warning.remedy)


def _torch_gpu(
    machine: Machine, software: Software, trial: Trial | None, warnings: Sequence[Warning]
) -> Iterator[Check]:
    name = "torch on the GPU"
    tried = trial.devices.items() if trial is not None else ()
    devices = {device: why for device, why in tried if device != "cpu"}
    known = _from(warnings, *hardware.NOT_BY_TORCH, name=name)
    # Where all compute, a build has code, such as PTX, for cards newer than its version of CUDA.
    if known and {*devices.values()} != {None}:
        yield from known
        return
    for device, why in devices.items():
        if why is not None:
            remedy = "see the driver checks below"
            if "CUDA error: no kernel image" in why:  # some builds leave cards out
                remedy = hardware.torch_remedy(machine, software.executable)
            yield _not_on_gpu(name, f"{device}: {why}", remedy)
    if working := [device for device, why in devices.items() if why is None]:
        yield Check(name, OK, f"gives correct results on {', '.join(working)}")


def _not_on_gpu(name: str, text: str, remedy: str) -> Check:
    """A trial that failed on a GPU, which is no fault where other processes hold the GPU."""
    error = RuntimeError(text)
    if is_out_of_memory(error):
        return Check(name, WARN, text, FULL_HINT)
    code, of_card = cause(error) or ("", "")
    status = WARN if code == "gpu_busy" else FAIL
    return Check(name, status, text, of_card if code.startswith("gpu_") else remedy)


def _ort_gpu(machine: Machine, software: Software, trial: Trial | None) -> Iterator[Check]:
    name = "onnxruntime on the GPU"
    if trial is None or trial.failure is not None:
        return
    remedy = onnx_cuda.remedy(machine, software)
    if differs := onnx_cuda.disagreement(machine, software):
        yield Check(name, WARN, differs, remedy)
    if CUDA not in trial.devices:
        yield Check(name, WARN, "this build runs on the CPU only", remedy)
    elif why := trial.devices[CUDA]:
        yield _not_on_gpu(name, f"built in but not usable: {why}", remedy)
    elif not differs:
        yield Check(name, OK, "gives correct results")


def _driver(machine: Machine, warnings: Sequence[Warning]) -> list[Check]:
    nvml, good = machine.nvml, "no NVIDIA driver and no NVIDIA GPU"
    if nvml.available:
        good = f"{nvml.driver_version}, CUDA {machine.cuda.api_version or 'unknown'}"
    code = nvml.reason.code if nvml.reason else ""
    codes = "cuda_without_nvml", "nvml_without_cuda", code
    checks = _from(warnings, *codes, name="driver", otherwise=good)
    if code == GPU_WITHOUT_DRIVER and machine.os.container:
        # A container may see the cards of its host on purpose without their driver.
        return [msgspec.structs.replace(check, status=WARN) for check in checks]
    return checks


def _gpu(gpu: Gpu, machine: Machine, warnings: Sequence[Warning]) -> Iterator[Check]:
    name = gpu.label
    if hardware.of_others(gpu, machine):
        why = gpu.unavailable.get("name") or gpu.unavailable["device"]
        yield Check(name, OK, f"not yours: {why}")
        return
    mine = [w for w in warnings if w.subject == gpu.subject and w.code not in hardware.NOT_BY_TORCH]
    found = [_check(name, warning) for warning in mine]
    found += [*_health(gpu, machine, name), *_nvlinks(gpu, machine, name)]
    if not found and gpu.visible:
        unjudged = "; in a virtual machine its PCIe link cannot be judged" if gpu.is_virtual else ""
        found = [Check(name, OK, f"{gpu.name or 'GPU'}, no problems found{unjudged}")]
    yield from found


def _health(gpu: Gpu, machine: Machine, name: str) -> Iterator[Check]:
    """Failing and doubtful readings of a card; those that could not be read are skipped."""
    usable = machine.cuda.available or gpu.platform  # otherwise the driver's check says why
    if gpu.device is None and gpu.visible and gpu.name and usable:
        message = f"cannot be used: {gpu.unavailable.get('device', 'unknown')}"
        remedy = "see `nvidia-smi -L`; where MIG is on, CUDA offers one instance alone"
        yield Check(name, WARN, message, None if gpu.platform else remedy)
    total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
    if total and used is not None and total - used < LEAST_FREE * total:
        message = f"only {units.size(total - used)} of {units.size(total)} free"
        yield Check(name, WARN, message, "find the processes that hold it: `nvidia-smi`")
    limit, default = gpu.power_limit_w or 0.0, gpu.power_default_w or 0.0
    if 0 < limit < default:
        message = f"power limit {limit:.0f} W, default {default:.0f} W"
        remedy = f"sudo nvidia-smi -i {gpu.index} -pl {default:.0f}, unless this is intended"
        if gpu.is_laptop:  # its firmware sets the limit (NVIDIA/open-gpu-kernel-modules#483)
            remedy = "plug in its power supply and choose the power profile for performance"
        yield Check(name, WARN, message, remedy)
    if slowed := [event for event in gpu.clock_event_reasons or () if event in _SLOWING]:
        message = f"clock held back: {', '.join(slowed).replace('_', ' ')}"
        yield Check(name, WARN, message, "check cooling and power: `nvidia-smi -q -d PERFORMANCE`")
    if gpu.ecc_uncorrected:
        errors = units.counted(gpu.ecc_uncorrected, "uncorrected memory error")
        message = f"{errors} since the driver was loaded"
        remedy = "reset or replace the card: `nvidia-smi -q -d ECC,ROW_REMAPPER`"
        yield Check(name, FAIL, message, remedy)
    if gpu.row_remap == "failed":
        message = "faulty memory could not be replaced by spare rows"
        yield Check(name, FAIL, message, "replace the card: `nvidia-smi -q -d ROW_REMAPPER`")
    elif gpu.row_remap == "pending":
        message = "faulty memory waits for a reset to be taken out of use"
        remedy = f"end its processes, then `sudo nvidia-smi -i {gpu.index} -r`, or reboot"
        yield Check(name, WARN, message, remedy)
    if gpu.device in machine.exclusive:
        message = "admits one process at a time, so candidates in another process are skipped"
        remedy = f"sudo nvidia-smi -i {gpu.index} -c DEFAULT, unless this is intended"
        yield Check(name, WARN, message, remedy)
    if not (gpu.is_virtual or gpu.is_soldered):
        yield from _slot(gpu.pcie, name)
    may_stay_awake = not (gpu.is_virtual or gpu.is_laptop) and machine.os.container is None
    if may_stay_awake and gpu.persistence is False:
        message = "persistence mode is off: the first use after a pause takes seconds"
        yield Check(name, WARN, message, "sudo nvidia-smi -pm 1, or run nvidia-persistenced")


def _slot(link: Pcie, name: str) -> Iterator[Check]:
    is_awake = link.generation == link.max_generation  # an idle link has fewer lanes, too
    if is_awake and 0 < (link.width or 0) < (link.max_width or 0):
        message = f"PCIe link uses {link.width} of {link.max_width} lanes"
        remedy = "reseat it or use another slot, unless the board limits it"
        yield Check(name, WARN, message, remedy)
    if 0 < (link.max_generation or 0) < (link.gpu_max_generation or 0):
        message = f"slot is PCIe {link.max_generation}.0, card supports {link.gpu_max_generation}.0"
        yield Check(name, WARN, message, "use a faster slot or check the BIOS settings")


def _nvlinks(gpu: Gpu, machine: Machine, name: str) -> Iterator[Check]:
    """Links that are down, as far as another card of the same model has more: a board may leave
    some unconnected by design (Azure/azurehpc-health-checks#162)."""
    most = max(other.nvlinks or 0 for other in machine.gpus if other.name == gpu.name)
    if 0 < (gpu.nvlinks or 0) < most:  # 0: it has no bridge
        message = f"{gpu.nvlinks} NVLinks are active, {most} on another card of its model"
        yield Check(name, WARN, message, f"see why: `nvidia-smi nvlink -s -i {gpu.index}`")


def _reached(ceilings: Ceilings | None) -> Iterator[Check]:
    """Cards whose measured ceilings are far below those expected of their model."""
    for device, shortfall in shortfalls(ceilings) if ceilings is not None else ():
        remedy = "check other processes, heat and power limits; then: workbench ceilings --again"
        yield Check(f"{device} ceilings", WARN, shortfall, remedy)


def stragglers(report: Report) -> Iterator[Check]:
    """GPUs that are slower than others of the same model at the same matrix product."""
    names = {gpu.device: gpu.name for gpu in report.machine.gpus} if report.machine else {}
    for candidate in report.candidates.values():
        device, name = candidate.case.device, names.get(candidate.case.device)
        if not candidate.blocks:
            reason = candidate.reason or Reason("unknown", "no reason given")
            status = WARN if reason.code in ("no_memory", "gpu_busy") else FAIL  # others hold it
            yield Check(f"{device} product", status, f"not measured: {reason.message}", reason.hint)
            continue
        equals = [c for c in report.candidates.values() if names.get(c.case.device) == name]
        behind = against(candidate, fastest_of(equals))
        text = f"{units.duration(candidate.median_s)} per matrix product"
        if behind and behind.word == "slower":
            text += f", {units.ratio(behind.ratio)} slower than {behind.id.split('/')[1]}"
            remedy = "compare clocks, heat and power with the other GPUs: workbench watch"
            yield Check(f"{device} product", WARN, text, remedy)
        else:
            yield Check(f"{device} product", OK, text)
