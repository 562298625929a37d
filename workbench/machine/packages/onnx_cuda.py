"""Whether ONNX Runtime, torch and the driver fit together, and which release would."""

from ...contract import Case
from ...records.machine import Machine, Software
from ...records.reason import Reason
from ...worker.onnx_gpu import DRIVERS, PACKAGE, RELEASES, major

GPU_PACKAGE = "onnxruntime-gpu"
TURING = (7, 5)  # the oldest compute capability that CUDA 13 supports
# Releases for Arm, as in `RELEASES`; they need glibc 2.34, and leave Jetsons to NVIDIA's builds.
ARM_RELEASES = {13: ">=1.29"}


def disagreement(machine: Machine, software: Software) -> str | None:
    """Why the installed ONNX Runtime for CUDA does not fit the driver or torch; None if it does."""
    built, torch = _cuda_of(GPU_PACKAGE, software), _cuda_of("torch", software)
    driver = major(machine.cuda.api_version)
    if built and driver and built > driver:
        return f"it is built for CUDA {built}, this driver is for {machine.cuda.api_version}"
    if built and torch and built != torch:
        return f"it is built for CUDA {built}, torch for CUDA {torch}: both put cuDNN in one place"
    return None


def remedy(machine: Machine, software: Software) -> str:
    """The command that installs an ONNX Runtime for the driver, the GPUs and maybe torch."""
    releases = ARM_RELEASES if machine.cpu.architecture == "aarch64" else RELEASES
    driver, newest = major(machine.cuda.api_version), max(releases)
    if "tegra" in machine.os.release:
        return "use torch on this GPU: PyPI has no onnxruntime-gpu for a Jetson"
    if driver and driver < min(releases):
        return f"update the NVIDIA driver to {DRIVERS[newest]} or later"
    known = [driver or newest, _cuda_of("torch", software) or newest, newest]
    if any(gpu.visible and gpu.is_below(TURING) for gpu in machine.gpus):
        known.append(min(releases))
    wanted = max(min(known), min(releases))
    same = _cuda_of(GPU_PACKAGE, software) == wanted
    release = f"=={software.packages[GPU_PACKAGE].version}" if same else releases[wanted]
    pip = f"{software.executable} -m pip"
    return f"{pip} uninstall -y onnxruntime {GPU_PACKAGE}; {pip} install '{PACKAGE}{release}'"


def refusal(case: Case, machine: Machine, software: Software) -> Reason | None:
    """Why a case of ONNX Runtime on a GPU certainly cannot work; None otherwise."""
    built, driver = _cuda_of(GPU_PACKAGE, software), major(machine.cuda.api_version)
    if built and driver and built > driver:
        text = f"onnxruntime: {disagreement(machine, software)}"
        return Reason("driver_too_old", text, remedy(machine, software))
    tensorrt = any(name.startswith("tensorrt") for name in software.packages)
    if built and not tensorrt and "tensorrt" in (case.mode or "").split("+"):
        hint = f"{software.executable} -m pip install 'tensorrt-cu{built}<11'"
        if machine.cpu.architecture == "aarch64":
            hint = "use another --mode: PyPI's onnxruntime-gpu for Arm is built without it"
        return Reason("no_tensorrt", "TensorRT is not installed", hint)
    return None


def _cuda_of(name: str, software: Software) -> int | None:
    """The major CUDA version that a package was built for."""
    package = software.packages.get(name)
    return package.cuda[0] if package and package.cuda else None
