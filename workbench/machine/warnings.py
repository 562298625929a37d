"""What about this machine weakens a result or holds speed back, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator

from ..records.machine import Gpu, Machine, Software
from ..records.reason import Warning
from .nvidia.driver_errors import ABSENT, missing_capability
from .packages.software import PRECISION_VARIABLES

# What a variable does to results -> those that do it; `{}` stands for NAME=VALUE.
_VARIABLES = {
    "thread_variable": (
        "{} is set and may cap the threads of a backend",
        "`unset {}`; workbench sets the threads of each case itself",
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    ),
    "isa_variable": (
        "{} is set and may keep a library below this CPU's instruction set",
        "`unset {}` to measure what the CPU can do",
        (
            "ATEN_CPU_CAPABILITY",
            "DNNL_MAX_CPU_ISA",
            "MKL_DEBUG_CPU_TYPE",
            "MKL_ENABLE_INSTRUCTIONS",
            "NPY_DISABLE_CPU_FEATURES",
            "ONEDNN_MAX_CPU_ISA",
            "OPENBLAS_CORETYPE",
        ),
    ),
    "precision_variable": (
        "{} changes the precision of products behind a program's back; it is not passed on to"
        " the workers, so these results hold without it",
        "`unset {}`, or expect other figures under it",
        PRECISION_VARIABLES,
    ),
    "debug_variable": (
        "{} is set: it is made for finding errors and slows the work down",
        "`unset {}`",
        (
            "CUDA_LAUNCH_BLOCKING",
            "PYTHONDEVMODE",
            "PYTHONMALLOC",
            "PYTORCH_NO_CUDA_MEMORY_CACHING",
        ),
    ),
}
_CUDA_BUILD = "CUDA "
_ORT = "onnxruntime"
_ORT_OTHERS = (
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-rocm",
    "onnxruntime-migraphx",
)
_TURING = (7, 5)  # the oldest compute capability that CUDA 13 still serves
_BLACKWELL = (10, 0)  # the first that torch's CUDA 12.6 builds have no code for
_CUDA_13 = (13, 0)
_CUDA_12 = (12, 0)


def hardware_warnings(machine: Machine, software: Software) -> list[Warning]:
    """Everything to tell about this machine before a run, the most serious first."""
    return [
        *_torch_and_gpu(machine, software),
        *_driver(machine),
        *_gpus(machine),
        *_cores(machine),
        *_environment(machine, software),
        *_packages(software),
    ]


def _torch_and_gpu(machine: Machine, software: Software) -> Iterator[Warning]:
    """GPUs that the installed torch cannot use, because of its build or of the driver."""
    gpus = [gpu for gpu in machine.gpus if gpu.visible and not gpu.simulated]
    torch = software.packages.get("torch")
    if not gpus or torch is None or torch.version is None or torch.detail is None:
        return
    names = ", ".join(sorted({gpu.name for gpu in gpus if gpu.name})) or "the GPU"
    subject = _subject(gpus[0]) if len(gpus) == 1 else None
    build = _numbers(torch.detail.removeprefix(_CUDA_BUILD))
    driver = _numbers(machine.cuda.api_version)
    if not torch.detail.startswith(_CUDA_BUILD):
        yield Warning(
            "torch_without_cuda",
            f"torch {torch.version} ({torch.detail}) cannot use {names}",
            _torch_remedy(machine, gpus, software.executable),
            subject,
        )
    elif build and driver and build[0] > driver[0]:
        # Within one major version an older driver serves a newer build.
        remedy = "update the NVIDIA driver"
        if not _is_too_old(driver, gpus):
            remedy += f", or {_torch_remedy(machine, gpus, software.executable)}"
        yield Warning(
            "driver_too_old",
            f"torch {torch.version} needs a driver for {torch.detail}, this one is for CUDA"
            f" {machine.cuda.api_version}: it cannot use {names}",
            remedy,
            subject,
        )


def _torch_remedy(machine: Machine, gpus: list[Gpu], executable: str) -> str:
    """The command for the build that driver and cards can run (pytorch#182849: cu126 has code for
    Maxwell to Hopper, cu130 for Turing to Blackwell).

    A driver of CUDA 12.0 runs a 12.6 build by minor-version compatibility.
    """
    driver = _numbers(machine.cuda.api_version)
    if driver is not None and _is_too_old(driver, gpus):
        least = "13.0" if _has_blackwell(gpus) else "12.6"
        return f"update the NVIDIA driver to one for CUDA {least} or later, then reinstall torch"
    old = not _has_blackwell(gpus) and any(c < _TURING for c in _capabilities(gpus))
    tag = "cu126" if old or (driver is not None and driver < _CUDA_13) else "cu130"
    index = f"https://download.pytorch.org/whl/{tag}"
    return f"{executable} -m pip install --force-reinstall torch --index-url {index}"


def _is_too_old(driver: tuple[int, ...], gpus: list[Gpu]) -> bool:
    """Whether it runs no build that has code for all of `gpus`."""
    return driver < (_CUDA_13 if _has_blackwell(gpus) else _CUDA_12)


def _has_blackwell(gpus: list[Gpu]) -> bool:
    return any(c >= _BLACKWELL for c in _capabilities(gpus))


def _capabilities(gpus: list[Gpu]) -> list[tuple[int, ...]]:
    found = [_numbers(gpu.compute_capability) for gpu in gpus]
    return [capability for capability in found if capability is not None]


def _numbers(version: str | None) -> tuple[int, ...] | None:
    try:
        return tuple(int(part) for part in (version or "").split("."))
    except ValueError:
        return None


def _driver(machine: Machine) -> Iterator[Warning]:
    nvml, cuda = machine.nvml, machine.cuda
    nvml_why = nvml.reason.message if nvml.reason else "no reason given"
    cuda_why = cuda.reason.message if cuda.reason else "no reason given"
    if cuda.available and not nvml.available:
        yield Warning(
            "cuda_without_nvml",
            f"CUDA works but NVML does not, so power, clocks and use stay unknown: {nvml_why}",
            (nvml.reason and nvml.reason.hint)
            or missing_capability(in_container=machine.os.container is not None),
        )
    elif nvml.available and not cuda.available and any(gpu.visible for gpu in machine.gpus):
        yield Warning(
            "nvml_without_cuda",
            f"NVML sees a GPU but CUDA cannot use it: {cuda_why}",
            (cuda.reason and cuda.reason.hint) or "reinstall the NVIDIA driver",
        )
    elif not nvml.available and nvml.reason is not None and nvml.reason.code not in ABSENT:
        remedy = nvml.reason.hint or "reinstall the NVIDIA driver"
        yield Warning(nvml.reason.code, f"the NVIDIA driver does not answer: {nvml_why}", remedy)


def _gpus(machine: Machine) -> Iterator[Warning]:
    for gpu in machine.gpus:
        why = gpu.unavailable.get("device", "")
        if not gpu.visible:
            yield Warning(
                "gpu_hidden",
                f"{gpu.name or 'a GPU'} is left out: {why}",
                "`unset CUDA_VISIBLE_DEVICES`, or name this GPU in it",
                _subject(gpu),
            )
        elif gpu.name is None and gpu.uuid is None and gpu.pci_bus_id is None:
            reason = gpu.unavailable.get("name", "unknown")
            yield Warning(
                "gpu_unreadable",
                f"GPU {gpu.index} cannot be read: {reason}",
                "look at it with `nvidia-smi` and `dmesg | grep -iE 'nvrm|xid'`",
                _subject(gpu),
            )
        elif gpu.processes:
            yield _busy(gpu)


def _busy(gpu: Gpu) -> Warning:
    """Nothing of ours runs yet: whoever is on the GPU now is somebody else."""
    count = len(gpu.processes or ())
    who = "another program is" if count == 1 else f"{count} other programs are"
    used = f", {gpu.utilization_percent:.0f} % busy" if gpu.utilization_percent else ""
    return Warning(
        "busy_gpu",
        f"{who} on {gpu.name or 'the GPU'} ({gpu.device or 'no CUDA device'}{used})",
        "see whose with `nvidia-smi`; wait, or choose another with --device",
        _subject(gpu),
    )


def _subject(gpu: Gpu) -> str:
    return gpu.uuid or gpu.pci_bus_id or f"gpu {gpu.index}"


def _cores(machine: Machine) -> Iterator[Warning]:
    cpu = machine.cpu
    if cpu.effective_cores >= cpu.logical_cores:
        return
    limit = next(limit for limit in cpu.limits if limit.name == cpu.limited_by)
    yield Warning(
        "fewer_cores",
        f"{cpu.effective_cores} of {cpu.logical_cores} cores are usable:"
        f" {limit.name} allows {limit.cores:g} ({limit.source})",
        f"results hold for {cpu.effective_cores} cores; raise the limit to measure the machine",
    )


def _environment(machine: Machine, software: Software) -> Iterator[Warning]:
    """Variables that change speed or results, and builds that do."""
    local = software.environment.get("LOCAL_WORLD_SIZE", "")
    by_torchrun = local.isdecimal() and software.environment.get("OMP_NUM_THREADS") == "1"
    share = machine.cpu.effective_cores // max(1, int(local)) if by_torchrun else 0
    if share > 1:
        yield Warning(
            "torchrun_threads",
            "OMP_NUM_THREADS=1, which torchrun sets, would leave each rank one core; here they"
            f" share out the usable cores instead: {share} each",
            f"`export OMP_NUM_THREADS={share}` before torchrun, for trainings of your own",
        )
    for code, (message, remedy, names) in _VARIABLES.items():
        for name in names:
            value = software.environment.get(name, "")
            if by_torchrun and name == "OMP_NUM_THREADS":
                continue
            if value not in ("", "0"):
                yield Warning(code, message.format(f"{name}={value}"), remedy.format(name))
    for build in software.debug_builds:
        yield Warning(
            "debug_build",
            f"{build} is a debug build and slower than the one people use",
            "install a release build",
        )


def _packages(software: Software) -> Iterator[Warning]:
    installed = [name for name, package in software.packages.items() if package.version]
    others = [name for name in installed if name in _ORT_OTHERS]
    if others and (_ORT in installed or len(others) > 1):
        names = [name for name in installed if name == _ORT or name in _ORT_OTHERS]
        keep = others[0]
        yield Warning(
            "two_onnxruntimes",
            f"{' and '.join(names)} are installed over one another: only one of them is imported",
            f"{software.executable} -m pip uninstall -y {' '.join(names)};"
            f" {software.executable} -m pip install {keep}",
        )
    if "python" in software.unavailable:
        yield Warning(
            "python_silent",
            f"the workers' interpreter cannot be asked: {software.unavailable['python']}",
            "check the path given with --python",
        )
