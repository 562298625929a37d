"""Warnings about a machine before a run, with their remedies."""

import pytest
from builders import machine as build_machine
from msgspec.structs import replace

from workbench.export.view.machine import drivers
from workbench.machine.nvidia.driver_errors import nvml_text
from workbench.machine.warnings import hardware_warnings, library_warnings, missing_backends
from workbench.records.machine import (
    CoreLimit,
    CudaDriver,
    Gpu,
    GpuProcess,
    Machine,
    Nvml,
    Os,
    Package,
    Software,
)
from workbench.records.reason import Reason, Warning

GPU = Gpu(0, "cuda:0", "GPU-1", "0000:18:00.0", "NVIDIA H200", compute_capability="9.0")
CUDA = CudaDriver(available=True, device_count=1, api_version="13.0")
LIMITS = [CoreLimit("logical", 8.0, "/sys"), CoreLimit("cgroup", 2.5, "/sys/fs/cgroup/cpu.max")]


def machine(
    *gpus: Gpu, nvml: Nvml | None = None, cuda: CudaDriver = CUDA, cores: int = 8
) -> Machine:
    here, limited_by = build_machine(), "logical" if cores == 8 else "cgroup"
    cpu = replace(here.cpu, effective_cores=cores, limited_by=limited_by, limits=LIMITS)
    return replace(here, cpu=cpu, gpus=[*gpus], nvml=nvml or Nvml(available=True), cuda=cuda)


def software(**packages: Package) -> Software:
    return Software(
        "3.11.7", "~/v/bin/python", {k.replace("_", "-"): p for k, p in packages.items()}, {}
    )


def torch(detail: str, version: str = "2.13.0") -> Software:
    return software(torch=Package(version, detail))


def only(found: list[Warning], code: str) -> Warning:
    assert [warning.code for warning in found] == [code]
    return found[0]


def test_a_machine_in_order_gives_no_warning() -> None:
    assert hardware_warnings(machine(GPU), torch("CUDA 13.0")) == []
    no_driver = Reason("library_missing", "none")
    bare = machine(nvml=Nvml(False, no_driver), cuda=CudaDriver(False, 0, no_driver))
    assert hardware_warnings(bare, torch("CPU build")) == []


@pytest.mark.parametrize(
    ("api", "capability", "remedy"),
    [
        ("13.0", "9.0", "whl/cu130"),
        ("12.4", "9.0", "whl/cu126"),
        ("13.1", "7.0", "whl/cu126"),  # CUDA 13 dropped Volta
        ("11.8", "9.0", "update the NVIDIA driver to one for CUDA 12.6"),
        ("12.8", "12.0", "whl/cu128"),  # Blackwell
        ("13.0", "10.0", "whl/cu130"),
        (None, None, "whl/cu130"),
    ],
)
def test_a_gpu_with_a_cpu_build_of_torch(api, capability, remedy) -> None:
    gpu = replace(GPU, compute_capability=capability)
    cuda = replace(CUDA, api_version=api)
    found = hardware_warnings(machine(gpu, cuda=cuda), torch("CPU build"))
    warning = only(found, "torch_without_cuda")
    assert "NVIDIA H200" in warning.message and warning.subject == "GPU-1"
    assert remedy in warning.remedy


def test_on_arm_no_build_of_torch_has_code_for_a_turing_card() -> None:
    here = machine(replace(GPU, compute_capability="7.5"))
    arm = replace(here.cpu, architecture="aarch64")
    found = hardware_warnings(replace(here, cpu=arm), torch("CPU build"))
    assert "--device cpu" in only(found, "torch_without_cuda").remedy


def test_hidden_and_simulated_gpus_do_not_ask_for_a_cuda_build() -> None:
    hidden = replace(
        GPU, visible=False, device=None, unavailable={"device": "hidden by CUDA_VISIBLE_DEVICES=1"}
    )
    simulated = replace(GPU, simulated=True, device="fake:0")
    found = hardware_warnings(machine(hidden, simulated), torch("CPU build"))
    assert only(found, "gpu_hidden").subject == "GPU-1"
    others = (replace(hidden, uuid=f"GPU-{number}") for number in (2, 3))
    warning = only(hardware_warnings(machine(hidden, *others), torch("CPU build")), "gpu_hidden")
    assert warning.message.startswith("NVIDIA H200 and 2 other GPUs are not used: hidden by CUDA")


def test_a_driver_too_old_for_the_build() -> None:
    old = replace(CUDA, api_version="12.8")
    found = hardware_warnings(machine(GPU, cuda=old), torch("CUDA 13.0"))
    warning = only(found, "driver_too_old")
    assert "12.8" in warning.message and "whl/cu126" in warning.remedy
    blackwell = replace(GPU, compute_capability="12.0")
    found = hardware_warnings(machine(blackwell, cuda=old), torch("CUDA 13.0"))
    assert "whl/cu128" in only(found, "driver_too_old").remedy
    older = replace(CUDA, api_version="11.8")
    found = hardware_warnings(machine(GPU, cuda=older), torch("CUDA 13.0"))
    assert only(found, "driver_too_old").remedy == "update the NVIDIA driver"
    assert hardware_warnings(machine(GPU, cuda=old), torch("CUDA 12.9")) == []


def test_cuda_without_nvml_and_nvml_without_cuda() -> None:
    lost = Nvml(False, Reason("library_missing", "no library", "--gpus all"))
    found = hardware_warnings(machine(GPU, nvml=lost), torch("CUDA 13.0"))
    assert only(found, "cuda_without_nvml").remedy == "--gpus all"
    broken = CudaDriver(False, 0, Reason("unknown_error", "CUDA 999", "reload nvidia_uvm"))
    found = hardware_warnings(machine(GPU, cuda=broken), torch("CUDA 13.0"))
    assert only(found, "nvml_without_cuda").remedy == "reload nvidia_uvm"
    split = replace(GPU, mig=True)
    none = CudaDriver(False, 0, Reason("no_device", "CUDA finds no GPU"))
    found = hardware_warnings(machine(split, cuda=none), torch("CUDA 13.0"))
    assert "nvidia-smi mig -i 0 -cgi" in only(found, "nvml_without_cuda").remedy
    hint = "start the container with --gpus all"
    inside = CudaDriver(False, 0, Reason("no_device", "CUDA finds no GPU", hint))
    said = str(drivers(machine(split, cuda=inside)))  # the screen's remedy is the warning's
    assert "nvidia-smi mig -i 0 -cgi" in said and "--gpus" not in said
    docker = Os("Linux", "6.1", None, "docker")
    there = replace(machine(split, cuda=inside), os=docker)
    found = hardware_warnings(there, torch("CUDA 13.0"))
    assert "--gpus device=GPU:INSTANCE" in only(found, "nvml_without_cuda").remedy


def test_a_driver_that_fails_is_not_taken_for_absent() -> None:
    reason = Reason("version_mismatch", "versions differ", "reboot")
    nothing = CudaDriver(False, 0, Reason("no_device", "no device"))
    found = hardware_warnings(machine(nvml=Nvml(False, reason), cuda=nothing), torch("CUDA 13.0"))
    assert only(found, "version_mismatch").remedy == "reboot"


def test_a_gpu_that_cannot_be_read() -> None:
    def warned(reason: str) -> Warning:
        lost = Gpu(3, None, None, None, None, unavailable={"name": reason})
        return only(hardware_warnings(machine(GPU, lost), torch("CUDA 13.0")), "gpu_unreadable")

    warning = warned(nvml_text(15))
    assert warning.subject == "gpu 3"
    assert warning.message.endswith("(NVML 15)"), "the remedy is said once"
    assert "dmesg" in warning.remedy and "reboot" in warning.remedy
    assert "power cables" in warned(nvml_text(8)).remedy
    assert "nvidia-smi" in warned("the process that asks NVML died").remedy


def test_fewer_cores_name_their_limit() -> None:
    found = hardware_warnings(machine(cores=2), torch("CPU build"))
    message = only(found, "fewer_cores").message
    assert "2 of 8 cores are" in message and "2.5" in message and "cpu.max" in message
    found = hardware_warnings(machine(cores=1), torch("CPU build"))
    assert "1 of 8 cores is usable" in only(found, "fewer_cores").message


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("OMP_NUM_THREADS", "1", "thread_variable"),
        ("ONEDNN_MAX_CPU_ISA", "AVX2", "isa_variable"),
        ("NVIDIA_TF32_OVERRIDE", "1", "precision_variable"),
        ("NVIDIA_TF32_OVERRIDE", "0", "precision_variable"),
        ("DNNL_DEFAULT_FPMATH_MODE", "BF16", "precision_variable"),
        ("CUBLAS_EMULATE_DOUBLE_PRECISION", "1", "precision_variable"),
        ("CUDA_LAUNCH_BLOCKING", "1", "debug_variable"),
        ("TORCH_COMPILE_DISABLE", "1", "debug_variable"),
    ],
)
def test_variables_that_change_results(name: str, value: str, code: str) -> None:
    stack = replace(torch("CPU build"), environment={name: value})
    warning = only(hardware_warnings(machine(), stack), code)
    assert f"{name}={value}" in warning.message
    assert f"unset {name}" in warning.remedy


def test_the_single_thread_of_torchrun_is_corrected_with_a_warning() -> None:
    given = {"OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2"}
    stack = replace(torch("CPU build"), environment=given)
    found = hardware_warnings(machine(cores=8), stack)
    warning = only(found, "torchrun_threads")
    assert "4 cores" in warning.message
    assert "OMP_NUM_THREADS=4" in warning.remedy
    assert "thread_variable" not in {w.code for w in found}
    alone = replace(stack, environment={**given, "LOCAL_WORLD_SIZE": "8"})
    assert "torchrun_threads" not in {w.code for w in hardware_warnings(machine(cores=8), alone)}


def test_a_variable_that_is_switched_off_changes_nothing() -> None:
    off = replace(torch("CPU build"), environment={"CUDA_LAUNCH_BLOCKING": "0"})
    assert hardware_warnings(machine(), off) == []


def test_debug_builds() -> None:
    stack = replace(torch("CPU build"), debug_builds=["torch"])
    assert "torch" in only(hardware_warnings(machine(), stack), "debug_build").message


def test_a_gpu_that_others_use() -> None:
    busy = replace(GPU, processes=[GpuProcess(4711, None)], utilization_percent=37.0)
    warning = only(hardware_warnings(machine(busy), torch("CUDA 13.0")), "busy_gpu")
    assert "NVIDIA H200 (cuda:0, 37% busy)" in warning.message
    assert warning.subject == "GPU-1"


def test_two_builds_of_onnxruntime() -> None:
    both = software(onnxruntime=Package("1.31", None), onnxruntime_gpu=Package("1.31", None))
    warning = only(hardware_warnings(machine(), both), "two_onnxruntimes")
    assert warning.remedy.endswith("pip install onnxruntime-gpu")
    absent = software(onnxruntime=Package(None, None), onnxruntime_gpu=Package("1.31", None))
    assert hardware_warnings(machine(), absent) == []


def test_of_two_builds_of_onnxruntime_the_one_that_suits_the_driver_stays() -> None:
    both = software(onnxruntime=Package("1.31", None), onnxruntime_gpu=Package("1.31", "CUDA 13.0"))
    here = machine(GPU, cuda=CudaDriver(True, 1, None, "12.4"))
    remedy = only(hardware_warnings(here, both), "two_onnxruntimes").remedy
    assert remedy.endswith("pip install 'onnxruntime-gpu[cuda,cudnn]>=1.21,<1.27'")


def test_a_backend_that_is_not_installed_is_one_warning_with_the_command() -> None:
    absent, present = Package(None, "not installed"), Package("1.31", None)
    needed = {"onnxruntime", "torch"}
    found = missing_backends(software(onnxruntime=absent, torch=present), needed)
    assert only(list(found), "backend_missing").remedy.startswith(
        "`~/v/bin/python -m pip install onnxruntime`"
    )
    gpu_build = software(onnxruntime=absent, onnxruntime_gpu=present, torch=present)
    assert list(missing_backends(gpu_build, needed)) == []
    assert list(missing_backends(software(onnxruntime=absent), {"torch", "fake"})) == []
    silent = replace(software(onnxruntime=absent), unavailable={"packages": "it did not answer"})
    assert list(missing_backends(silent, needed)) == []


@pytest.mark.parametrize(
    ("version", "says"),
    [("3.2.7", ""), ("2.1", ""), ("2.0.3", "older than 2.1"), ("3.3", "newer than 3.2"), ("", "")],
)
def test_a_library_outside_the_tested_versions_warns(version: str, says: str) -> None:
    found = list(library_warnings("xgboost", version, None))
    assert [warning.code for warning in found] == ["untested_version"] * bool(says)
    assert all(says in warning.message and warning.remedy for warning in found)
    assert list(library_warnings("torch", "99.0", None)) == [], "no range is named"


def test_a_foreign_interpreter_that_is_silent() -> None:
    stack = replace(software(), unavailable={"python": "~/p ended"})
    assert "~/p ended" in only(hardware_warnings(machine(), stack), "python_silent").message


def test_an_interpreter_that_is_too_old_for_workers() -> None:
    found = hardware_warnings(machine(), replace(software(), python="3.9.18"))
    assert "~/v/bin/python is 3.9.18" in only(found, "python_too_old").message


def test_a_card_that_the_build_has_no_code_for() -> None:
    volta = replace(GPU, name="Tesla V100", compute_capability="7.0")
    warning = only(hardware_warnings(machine(volta), torch("CUDA 13.0")), "gpu_without_code")
    assert "capability 7.0, that of Tesla V100" in warning.message
    assert "whl/cu126" in warning.remedy and warning.subject == "GPU-1"
    assert hardware_warnings(machine(volta), torch("CUDA 12.6")) == []
    both = hardware_warnings(machine(GPU, volta), torch("CUDA 13.0"))
    assert only(both, "gpu_without_code").subject is None


def test_a_build_that_is_too_old_for_the_card() -> None:
    b200 = replace(GPU, name="NVIDIA B200", compute_capability="10.0")
    warning = only(hardware_warnings(machine(b200), torch("CUDA 12.6")), "gpu_without_code")
    assert "capability 10.0, that of NVIDIA B200" in warning.message
    assert "whl/cu130" in warning.remedy
    assert hardware_warnings(machine(b200), torch("CUDA 12.8")) == []


def test_cards_for_which_no_one_build_has_code() -> None:
    new = replace(GPU, name="RTX 5090", compute_capability="12.0")
    old = replace(GPU, uuid="GPU-2", name="GTX 1080", compute_capability="6.1")
    warning = only(hardware_warnings(machine(new, old), torch("CUDA 13.0")), "gpu_without_code")
    assert "that of GTX 1080" in warning.message
    assert "whl/" not in warning.remedy and "CUDA_VISIBLE_DEVICES" in warning.remedy
    warning = only(hardware_warnings(machine(new, old), torch("CUDA 12.6")), "gpu_without_code")
    assert "that of RTX 5090" in warning.message and "whl/cu130" in warning.remedy


def test_a_card_in_prohibited_mode() -> None:
    closed = replace(GPU, compute_mode="prohibited")
    found = hardware_warnings(machine(closed), torch("CUDA 13.0"))
    assert "nvidia-smi -i 0 -c DEFAULT" in only(found, "gpu_prohibited").remedy


def test_a_gpu_that_the_system_gives_to_others_is_no_complaint() -> None:
    why = {"name": nvml_text(4)}
    others = Gpu(1, None, None, None, None, unavailable=why)
    assert hardware_warnings(machine(GPU, others), torch("CUDA 13.0")) == []
    alone = hardware_warnings(machine(others), torch("CUDA 13.0"))
    assert "gpu_unreadable" in [warning.code for warning in alone]


def test_a_gpu_that_is_busy_though_no_program_is_listed() -> None:
    drawing = replace(GPU, processes=[], utilization_percent=99.0)
    found = hardware_warnings(machine(drawing), torch("CUDA 13.0"))
    assert "the driver does not list" in (text := only(found, "busy_gpu").message)
    assert "99% busy" in text
    desktop = replace(drawing, persistence=False)
    found = hardware_warnings(machine(desktop), torch("CUDA 13.0"))
    assert "99% busy" in only(found, "busy_gpu").message
    waking = replace(desktop, ecc=True)
    assert hardware_warnings(machine(waking), torch("CUDA 13.0")) == []


def test_a_share_of_the_gpu_under_mps() -> None:
    name, codes = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", []
    for value in ("25", "100"):
        stack = replace(torch("CPU build"), environment={name: value})
        codes.append([w.code for w in hardware_warnings(machine(), stack)])
    assert codes == [["share_variable"], []]


@pytest.mark.parametrize(("cuda", "builds"), [("12.6", "JetPack"), ("13.0", "whl/cu130")])
def test_a_jetson_whose_driver_is_its_own_needs_nvidias_build(cuda: str, builds: str) -> None:
    orin = replace(GPU, compute_capability="8.7", name="Orin")
    here = machine(orin, cuda=replace(CUDA, api_version=cuda))
    here = replace(here, os=Os("Linux", "5.15.148-tegra", None, None))
    found = hardware_warnings(here, torch("CPU build"))
    assert builds in only(found, "torch_without_cuda").remedy
