"""The CUDA of ONNX Runtime, torch and the driver side by side, and the release to install."""

from typing import Any

import pytest
from builders import machine as build_machine
from msgspec.structs import replace

from workbench import catalog
from workbench.contract import Case
from workbench.machine.packages import onnx_cuda
from workbench.planning.admission import beforehand
from workbench.records.machine import CudaDriver, Gpu, Machine, Package, Software

CARD = Gpu(0, "cuda:0", "GPU-1", None, "NVIDIA H200", 10**11, 0, compute_capability="9.0")


def machine(driver: str | None = "13.0", card: Gpu = CARD) -> Machine:
    return replace(build_machine(), gpus=[card], cuda=CudaDriver(True, 1, None, driver))


def software(ort: str | None = "CUDA 13.0", torch: str = "CUDA 13.0", **more: str) -> Software:
    packages = {"torch": Package("2.13.0", torch)}
    if ort == "CPU build":
        packages["onnxruntime"] = Package("1.31.1", ort)
    else:
        packages["onnxruntime"] = Package(None, "not installed")
        packages["onnxruntime-gpu"] = Package("1.31.1", ort)
    packages |= {name.replace("_", "-"): Package(version) for name, version in more.items()}
    return Software("3.11.7", "~/v/bin/python", packages, {})


def on_arm(here: Machine) -> Machine:
    return replace(here, cpu=replace(here.cpu, architecture="aarch64"))


@pytest.mark.parametrize(
    ("ort", "torch", "driver", "release", "problem"),
    [
        ("CUDA 13.0", "CUDA 13.0", "13.0", "==1.31.1", None),
        ("CUDA 12.8", "CUDA 12.6", "12.4", "==1.31.1", None),
        ("CUDA 12.8", "CUDA 12.6", "13.1", "==1.31.1", None),
        ("CUDA 13.0", "CUDA 12.6", "13.0", ">=1.21,<1.27", "torch for CUDA 12"),
        ("CUDA 12.8", "CUDA 13.0", "13.0", ">=1.28", "torch for CUDA 13"),
        ("CUDA 13.0", "CUDA 13.0", "12.4", ">=1.21,<1.27", "this driver is for 12.4"),
        ("CUDA 13.0", "CUDA 12.6", "12.4", ">=1.21,<1.27", "this driver is for 12.4"),
        ("CPU build", "CUDA 13.0", "13.0", ">=1.28", None),
        ("CPU build", "CUDA 12.6", "13.0", ">=1.21,<1.27", None),
        ("CPU build", "CPU build", "12.4", ">=1.21,<1.27", None),
        ("CPU build", "CPU build", None, ">=1.28", None),
        ("CUDA 13.0", "CUDA 14.0", "14.0", "==1.31.1", "torch for CUDA 14"),
        ("CPU build", "CUDA 11.8", "13.0", ">=1.21,<1.27", None),
    ],
)
def test_the_release_that_suits_driver_and_torch(ort, torch, driver, release, problem) -> None:
    here, found = machine(driver), software(ort, torch)
    remedy = onnx_cuda.remedy(here, found)
    assert remedy.endswith(f"pip install 'onnxruntime-gpu[cuda,cudnn]{release}'")
    assert "uninstall -y onnxruntime onnxruntime-gpu; " in remedy
    said = onnx_cuda.disagreement(here, found)
    assert (said is None) if problem is None else problem in (said or "")


def test_a_card_that_cuda_13_has_no_code_for_gets_a_build_for_cuda_12() -> None:
    here = machine(card=replace(CARD, name="GTX 1080", compute_capability="6.1"))
    for found in (software(), software("CPU build")):
        assert onnx_cuda.remedy(here, found).endswith(">=1.21,<1.27'")
    why = refused(software(), here)
    assert why.code == "unsupported_device"
    assert "6.1" in why.message
    assert refused(software("CUDA 12.8", "CUDA 12.6"), here) is None


@pytest.mark.parametrize(
    ("driver", "torch", "release", "remedy"),
    [
        ("13.0", "CUDA 13.0", "6.8.0", "pip install 'onnxruntime-gpu[cuda,cudnn]>=1.29'"),
        ("13.0", "CUDA 12.6", "6.8.0", "pip install 'onnxruntime-gpu[cuda,cudnn]>=1.29'"),
        ("12.8", "CUDA 12.6", "6.8.0", "update the NVIDIA driver to 580 or later"),
        ("12.6", "CUDA 12.6", "5.15.0-tegra", "use torch on this GPU: PyPI has no"),
    ],
)
def test_arm_has_a_package_for_cuda_13_alone(driver, torch, release, remedy) -> None:
    here = on_arm(machine(driver))
    here = replace(here, os=replace(here.os, release=release))
    assert remedy in onnx_cuda.remedy(here, software("CPU build", torch))


def test_a_driver_older_than_every_release_has_to_be_updated() -> None:
    assert "update the NVIDIA driver" in onnx_cuda.remedy(machine("11.8"), software())


def refused(found: Software, here: Machine, mode: str | None = None, **changes: Any) -> Any:
    workload = catalog.load("infer_mlp")
    case = Case(
        **{
            "workload": "infer_mlp",
            "device": "cuda:0",
            "backend": "onnxruntime",
            "precision": "fp16",
            "batch": 1,
            "params": workload.values({}),
            "mode": mode,
            **changes,
        }
    )
    return beforehand(case, workload, here, found)


def test_what_cannot_work_is_refused_before_anything_starts() -> None:
    assert refused(software(), machine()) is None
    cpu_only = refused(software("CPU build"), machine())
    assert cpu_only.code == "cpu_only_onnxruntime"
    assert "pip install 'onnxruntime-gpu" in cpu_only.hint
    old = refused(software(), machine("12.4"))
    assert old.code == "driver_too_old"
    assert ">=1.21,<1.27" in old.hint
    assert refused(software(), machine("12.4"), backend="torch") is None


def test_tensorrt_is_tried_only_where_it_is_installed() -> None:
    missing = refused(software(), machine(), "tensorrt")
    assert missing.code == "no_tensorrt"
    assert "'tensorrt-cu13<11'" in missing.hint
    assert "use another --mode" in refused(software(), on_arm(machine()), "tensorrt").hint
    assert refused(software(tensorrt="10.9"), machine(), "tensorrt") is None
    assert refused(software(tensorrt_cu13="10.9"), machine(), "tensorrt") is None


@pytest.mark.parametrize("changes", [{"precision": "tf32"}, {"precision": "fp32", "mode": "tf32"}])
def test_a_card_without_tf32_does_not_pass_fp32_for_it(changes: dict[str, str]) -> None:
    turing = replace(CARD, compute_capability="7.5")
    found = refused(software(), machine(card=turing), **changes)
    assert found.code == "unsupported_precision"
    assert "7.5" in found.message
    assert refused(software(), machine(), **changes) is None
    unknown = replace(CARD, compute_capability=None)
    assert refused(software(), machine(card=unknown), **changes) is None


def test_a_gpu_that_is_not_there_is_refused() -> None:
    assert refused(software(), machine(), device="cuda:7").code == "no_device"


def test_on_a_simulated_gpu_nothing_is_refused() -> None:
    fake = replace(CARD, device="fake:0", simulated=True)
    here = machine(card=fake)
    assert refused(software("CPU build"), here, "tensorrt", device="fake:0") is None
