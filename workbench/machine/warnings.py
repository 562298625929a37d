"""Warnings about conditions of a machine that weaken results or slow it down, with remedies."""

from collections.abc import Iterator, Set

from .. import catalog
from ..records.machine import Gpu, Machine, Package, Software, version_numbers
from ..records.reason import Reason, Warning
from ..text import units
from .nvidia.driver_errors import ABSENT, NVML_NO_PERMISSION, nvml_hint, nvml_text
from .nvidia.gpus import IN_JOB, cuda_remedy
from .packages import onnx_cuda
from .packages.software import ORT, WARNED

# If all of these lack a value for the same reason, NVML has read nothing.
_READINGS = (
    "memory_used_bytes", "power_w", "sm_clock_mhz", "temperature_c", "utilization_percent",
)  # fmt: skip
# Codes for a working driver that torch cannot use.
NOT_BY_TORCH = ("torch_without_cuda", "driver_too_old", "gpu_without_code")

_KERNEL_LOG = "check `nvidia-smi` and `dmesg | grep -iE 'nvrm|xid'`"
_CUDA_12_8 = (12, 8)
_AMPERE = (8, 0)  # the oldest that torch's builds for Arm have code for
_BLACKWELL = (10, 0)  # the oldest that torch's CUDA 12.6 builds lack code for
_OLDEST_PYTHON = (3, 10)  # see `process.bootstrap`
_CUDA_13 = (13, 0)
_CUDA_12 = (12, 0)


def hardware_warnings(machine: Machine, software: Software) -> list[Warning]:
    """All warnings about this machine before a run, the most serious first."""
    return [
        *_torch_and_gpu(machine, software),
        *_driver(machine),
        *_unproven(machine),
        *_gpus(machine),
        *_cores(machine),
        *_environment(machine, software),
        *_packages(machine, software),
    ]


def missing_backends(software: Software, backends: Set[str]) -> Iterator[Warning]:
    """One warning for each of `backends` that the workers' interpreter cannot import."""
    if "packages" in software.unavailable:
        return
    installed = {name for name, package in software.packages.items() if package.version}
    for name in sorted(backends & software.packages.keys() - installed):
        if name == ORT and any(other.startswith(ORT) for other in installed):
            continue
        text = f"{name} is not installed, so its candidates are skipped"
        other = " (for an NVIDIA GPU see `workbench doctor`)" if name == ORT else ""
        remedy = f"`{software.executable} -m pip install {name}`{other}"
        yield Warning("backend_missing", text, remedy)


def library_warnings(name: str, version: str | None, openmp: str | None) -> Iterator[Warning]:
    """Warnings about the backend `name`: an untested version, or two OpenMP runtimes in it."""
    library, release = catalog.backend(name), version_numbers(version)
    if release and release < version_numbers(library.oldest):
        text = f"{name} {version} is older than {library.oldest}, which its cases need"
        yield Warning("untested_version", text, f"install a newer one: {library.install}")
    elif release and library.newest and release > version_numbers(library.newest):
        text = f"{name} {version} is newer than {library.newest}, the newest that was tested"
        remedy = f"install {name} {library.newest}, or compare a result with your own measurement"
        yield Warning("untested_version", text, remedy)
    if openmp:
        text = f"{name} loads {openmp} into one process, which may crash or slow it"
        remedy = "install all packages from one source, such as PyPI, into a new environment"
        yield Warning("two_openmp_runtimes", text, remedy)


def _torch_and_gpu(machine: Machine, software: Software) -> Iterator[Warning]:
    """GPUs that the installed torch cannot use, because of its build or the driver."""
    gpus = machine.cuda_gpus
    torch = software.packages.get("torch")
    if not gpus or torch is None or torch.version is None or torch.detail is None:
        return
    names = ", ".join(sorted({gpu.name for gpu in gpus if gpu.name})) or "the GPU"
    build, driver = torch.cuda, version_numbers(machine.cuda.api_version)
    remedy = torch_remedy(machine, software.executable)
    what = f"torch {torch.version} ({torch.detail})"
    if not build:
        code, text = "torch_without_cuda", f"{what} cannot use {names}"
    elif driver and build[0] > driver[0]:
        # An older driver runs newer builds of the same major version.
        code, text = "driver_too_old", f"torch {torch.version} needs a driver for {torch.detail}"
        text += f" and cannot use {names}: this driver is for CUDA {machine.cuda.api_version}"
        other = "" if driver < _CUDA_12 else f", or {remedy}"
        remedy = f"update the NVIDIA driver{other}"
    elif lacking := [gpu for gpu in gpus if _lacks_torch_code(torch, gpu)]:
        capability, name = lacking[0].compute_capability, lacking[0].name or "the GPU"
        code = "gpu_without_code"
        text = f"{what} has no code for compute capability {capability}, that of {name}"
        if _has_blackwell(gpus) and not _has_blackwell(lacking):
            remedy = "no current build of torch has code for all of these GPUs:"
            remedy += " `export CUDA_VISIBLE_DEVICES=...` with the newer ones alone"
    else:
        return
    yield Warning(code, text, remedy, gpus[0].subject if len(gpus) == 1 else None)


def lacks_code_for(package: Package, gpu: Gpu) -> bool:
    """Whether a library was built with a CUDA version that dropped this GPU."""
    return package.cuda >= _CUDA_13 and gpu.is_below(onnx_cuda.TURING)


def _lacks_torch_code(torch: Package, gpu: Gpu) -> bool:
    """The same for torch, whose builds below CUDA 12.8 also lack code for Blackwell."""
    too_new = () < torch.cuda < _CUDA_12_8 and _has_blackwell([gpu])
    return too_new or lacks_code_for(torch, gpu)


def torch_remedy(machine: Machine, executable: str) -> str:
    """The command that installs the build that driver and cards can run.

    cu126 has code for Maxwell to Hopper, cu130 for Turing to Blackwell (pytorch#182849), as has
    cu128, which ends with torch 2.11.  A driver for CUDA 12.0 runs a 12.6 build by minor-version
    compatibility; none below 12.8 drives Blackwell.
    """
    gpus, driver = machine.cuda_gpus, version_numbers(machine.cuda.api_version)
    if "tegra" in machine.os.release and (driver or _CUDA_13) < _CUDA_13:
        return "install NVIDIA's build of torch for this JetPack, or use --device cpu"
    if machine.cpu.architecture == "aarch64" and any(gpu.is_below(_AMPERE) for gpu in gpus):
        return "use --device cpu: torch's builds for Arm have no code for this GPU"
    if () < driver < _CUDA_12:
        return "update the NVIDIA driver to one for CUDA 12.6 or later, then reinstall torch"
    tag, is_new = "cu130", _has_blackwell(gpus)
    if () < driver < _CUDA_13 or (not is_new and any(g.is_below(onnx_cuda.TURING) for g in gpus)):
        tag = "cu128" if is_new else "cu126"
    index = f"https://download.pytorch.org/whl/{tag}"
    return f"{executable} -m pip install --force-reinstall torch --index-url {index}"


def _has_blackwell(gpus: list[Gpu]) -> bool:
    return any(version_numbers(gpu.compute_capability) >= _BLACKWELL for gpu in gpus)


def _driver(machine: Machine) -> Iterator[Warning]:
    nvml, cuda, unexplained = machine.nvml, machine.cuda, Reason("", "no reason given")
    nvml_why, cuda_why = nvml.reason or unexplained, cuda.reason or unexplained
    remedy = nvml_why.hint or "reinstall the NVIDIA driver"
    if cuda.available and not nvml.available:
        text = "CUDA works but NVML does not, so power, clocks and utilisation are unknown"
        yield Warning("cuda_without_nvml", f"{text}: {nvml_why.message}", remedy)
    elif nvml.available and not cuda.available and any(gpu.visible for gpu in machine.gpus):
        text = f"NVML sees a GPU but CUDA cannot use it: {cuda_why.message}"
        yield Warning("nvml_without_cuda", text, cuda_remedy(machine) or remedy)
    elif not nvml.available and nvml.reason is not None and nvml.reason.code not in ABSENT:
        text = f"the NVIDIA driver does not answer: {nvml_why.message}"
        yield Warning(nvml.reason.code, text, remedy)


def _unproven(machine: Machine) -> Iterator[Warning]:
    """Devices of kinds on which no run of this program is recorded."""
    for gpu in machine.gpus:
        if gpu.device is not None and gpu.platform is not None:
            device = f"{gpu.device} ({gpu.name or 'a device'})"
            text = f"{device} uses {gpu.platform}, which is unproven: workbench supports it,"
            text += " but no run on such a device is recorded"
            remedy = "compare a result with your own measurement before you rely on it"
            yield Warning("unproven_device", text, remedy, gpu.subject)


def of_others(gpu: Gpu, machine: Machine) -> bool:
    """Whether permissions or a scheduler withhold this GPU, while NVML can read another one."""
    refused = gpu.unavailable.get("name", "").startswith(nvml_text(NVML_NO_PERMISSION))
    hidden = gpu.unavailable.get("device", "").endswith(IN_JOB)
    return (refused or hidden) and any(other.uuid for other in machine.gpus)


def _gpus(machine: Machine) -> Iterator[Warning]:
    listed = [gpu for gpu in machine.gpus if not of_others(gpu, machine)]
    hidden = [gpu for gpu in listed if not gpu.visible]
    for gpu in listed:
        name = gpu.name or "a GPU"
        if not gpu.visible:
            if gpu in hidden[1:]:
                continue
            are, them = f"{name} is", "this GPU"
            if others := len(hidden) - 1:  # a server has eight, and one setting hides them
                are, them = f"{name} and {units.counted(others, 'other GPU')} are", "them"
            text = f"{are} not used: {gpu.unavailable.get('device', '')}"
            found = "gpu_hidden", text, f"`unset CUDA_VISIBLE_DEVICES`, or name {them} in it"
        elif gpu.name is None and gpu.uuid is None and gpu.pci_bus_id is None:
            reason = gpu.unavailable.get("name", "unknown")
            text = f"GPU {gpu.index} is unreadable: {reason}"
            found = "gpu_unreadable", text, nvml_hint(reason) or _KERNEL_LOG
        elif gpu.compute_mode == "prohibited":
            text = f"{name} is in compute mode prohibited, which admits no program"
            found = "gpu_prohibited", text, f"`sudo nvidia-smi -i {gpu.index} -c DEFAULT`"
        elif machine.nvml.available and (why := _unread(gpu)):  # CUDA may know its name
            text = f"power, clocks and temperature of {name} are unknown: {why}"
            found = "gpu_without_readings", text, nvml_hint(why) or _KERNEL_LOG
        elif gpu.is_busy:  # by others, since nothing of ours runs yet
            count = len(gpu.processes or ())
            programs = "another process uses" if count == 1 else f"{count} other processes use"
            if not count:  # NVML does not list programs that draw, such as with Vulkan
                programs = "something that the driver does not list uses"
            used = f", {gpu.utilization_percent:.0f}% busy" if gpu.utilization_percent else ""
            text = f"{programs} {gpu.name or 'the GPU'} ({gpu.device or 'no CUDA device'}{used})"
            remedy = "see which with `nvidia-smi`; wait or choose another GPU with --device"
            found = "busy_gpu", text, remedy
        else:
            continue
        yield Warning(*found, gpu.subject)


def _unread(gpu: Gpu) -> str | None:
    """Why NVML could read nothing of this GPU; None if it could, or if the reason is unknown."""
    reasons = {gpu.unavailable.get(name) for name in _READINGS}
    return reasons.pop() if len(reasons) == 1 else None


def _cores(machine: Machine) -> Iterator[Warning]:
    cpu = machine.cpu
    if cpu.effective_cores >= cpu.logical_cores:
        return
    limit = next(limit for limit in cpu.limits if limit.name == cpu.limited_by)
    be = "is" if cpu.effective_cores == 1 else "are"
    cores = f"{cpu.effective_cores} of {cpu.logical_cores} cores {be} usable"
    text = f"{cores}: {limit.name} allows {limit.cores:g} ({limit.source})"
    counted = units.counted(cpu.effective_cores, "core")
    remedy = f"raise the limit to measure all cores; these results hold for {counted}"
    yield Warning("fewer_cores", text, remedy)


def _environment(machine: Machine, software: Software) -> Iterator[Warning]:
    """Variables and builds that change speed or results."""
    local = software.environment.get("LOCAL_WORLD_SIZE", "")
    by_torchrun = local.isdecimal() and software.environment.get("OMP_NUM_THREADS") == "1"
    share = machine.cpu.effective_cores // max(1, int(local)) if by_torchrun else 0
    if share > 1:
        text = "torchrun sets OMP_NUM_THREADS=1, one core per rank; workbench gives each rank"
        remedy = f"`export OMP_NUM_THREADS={share}` before torchrun for your own trainings"
        yield Warning("torchrun_threads", f"{text} {share} cores instead", remedy)
    for code, (names, message, remedy) in WARNED.items():
        for name in names.split():
            value = software.environment.get(name, "")
            if by_torchrun and name == "OMP_NUM_THREADS":
                continue
            # 0 switches the others off and forbids TF32; 100 percent are a whole GPU.
            is_off = value == ("100" if name.endswith("_PERCENTAGE") else "0")
            if value and (not is_off or name == "NVIDIA_TF32_OVERRIDE"):
                yield Warning(code, message.format(f"{name}={value}"), remedy.format(name))
    for build in software.debug_builds:
        text = f"{build} is a debug build, slower than a release build"
        yield Warning("debug_build", text, "install a release build")


def _packages(machine: Machine, software: Software) -> Iterator[Warning]:
    installed = [name for name, package in software.packages.items() if package.version]
    names = [name for name in installed if name.startswith(ORT)]
    if len(names) > 1:
        keep = next(name for name in names if name != ORT)
        text = f"{' and '.join(names)} share one import name, so only one of them is imported"
        pip = f"{software.executable} -m pip"
        remedy = f"{pip} uninstall -y {' '.join(names)}; {pip} install {keep}"
        if keep == onnx_cuda.GPU_PACKAGE and machine.cuda_gpus:
            remedy = onnx_cuda.remedy(machine, software)  # the newest may not suit the driver
        yield Warning("two_onnxruntimes", text, remedy)
    if "python" in software.unavailable:
        text = f"the workers' interpreter does not answer: {software.unavailable['python']}"
        yield Warning("python_silent", text, "check the path given with --python")
    elif () < version_numbers(software.python) < _OLDEST_PYTHON:
        text = f"workers need Python 3.10 or newer, and {software.executable} is {software.python}"
        yield Warning("python_too_old", text, "name a newer interpreter with --python")
