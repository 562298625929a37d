"""libcuda through the real ctypes path, against a C stub, in the real child process."""

import pytest
from stub_driver import StubDriver

from workbench.machine.nvidia import driver_errors, probe_client
from workbench.machine.nvidia.cuda_driver import CudaAnswer, CudaDevice
from workbench.machine.nvidia.probe_client import cuda_answer, start_probe


def ask_cuda(stub: StubDriver, **settings: str) -> CudaAnswer:
    with stub.loaded("cuda", **settings):
        return cuda_answer(start_probe("cuda"), 30.0)


def test_cuda_lists_its_devices_in_its_own_order(stub: StubDriver) -> None:
    answer = ask_cuda(stub, CUDA_STUB_DEVICES="3,1")
    assert answer.driver.available and answer.driver.device_count == 2
    assert answer.driver.api_version == "13.0"
    first = answer.devices[0]
    assert (first.ordinal, first.uuid) == (0, "00000003-1111-2222-3333-444444444444")
    assert (first.pci_bus_id, first.name) == ("0000:1b:00.0", "NVIDIA H200")
    assert (first.memory_total_bytes, first.compute_capability) == (150121545728, "9.0")
    assert first.integrated is False
    assert first.l2_cache_bytes == 60 << 20


def test_a_driver_without_the_newer_uuid_call(stub: StubDriver) -> None:
    [device] = ask_cuda(stub, CUDA_STUB="cuDeviceGetUuid_v2=1").devices
    assert device.uuid == device.gpu_uuid == "00000000-1111-2222-3333-444444444444"


def test_a_device_that_answers_nothing_keeps_its_ordinal(stub: StubDriver) -> None:
    answer = ask_cuda(stub, CUDA_STUB="cuDeviceGet@1=101", CUDA_STUB_DEVICES="0,1")
    assert answer.devices[1] == CudaDevice(1)


@pytest.mark.parametrize(
    ("code", "expected", "remedy"),
    [
        (34, "stub_library", "stubs"),
        (100, "no_device", None),
        (802, "system_not_ready", "fabricmanager"),
        (805, "mps_unreachable", "mps"),
        (5, "cuda_error_5", None),
    ],
)
def test_each_failure_of_cuinit_is_named(stub, code, expected, remedy) -> None:
    driver = ask_cuda(stub, CUDA_STUB=f"cuInit={code}").driver
    assert not driver.available and driver.device_count == 0
    assert driver.reason.code == expected
    assert remedy is None or remedy in str(driver.reason.hint)
    assert driver.api_version == "13.0"


def test_cuda_with_every_gpu_hidden_names_the_variable(stub: StubDriver) -> None:
    driver = ask_cuda(stub, CUDA_STUB="cuInit=100", CUDA_VISIBLE_DEVICES="").driver
    assert driver.reason.code == "hidden"
    assert "CUDA_VISIBLE_DEVICES=''" in driver.reason.message


def test_cuda_that_offers_nothing_says_no_device(stub: StubDriver) -> None:
    driver = ask_cuda(stub, CUDA_STUB_DEVICES="").driver
    assert driver.reason.code == "no_device"


def test_a_crash_in_libcuda_is_a_reason(stub: StubDriver) -> None:
    driver = ask_cuda(stub, CUDA_STUB="cuInit=segv").driver
    assert driver.reason.code == "cuda_crashed"


def test_a_library_without_the_api_is_broken(stub, tmp_path, monkeypatch) -> None:
    nvml = stub.folder / "nvml" / "libnvidia-ml.so.1"
    (tmp_path / "libcuda.so.1").symlink_to(nvml)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    driver = cuda_answer(start_probe("cuda"), 30.0).driver
    assert driver.reason.code == "library_broken"


def test_a_corrupt_library_is_told_from_a_missing_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    broken = tmp_path / "libcuda.so.1"
    broken.write_bytes(b"not a library")
    reason = probe_client.missing(str(broken))
    assert reason.code == "library_broken"
    absent = probe_client.missing("libcuda-of-nobody.so.1")
    assert absent.code == "library_missing"
    assert "nvidia.com/gpu: 1" in str(absent.hint)


@pytest.mark.parametrize(
    ("kind", "release", "remedy"),
    [
        ("apptainer", "6.8.0", "--nv"),
        ("docker", "5.15.90.1-microsoft-standard-WSL2", "--gpus all"),
        (None, "5.15.90.1-microsoft-standard-WSL2", "driver of Windows"),
        (None, "6.8.0", "install the NVIDIA driver"),
        (None, "5.10.192-tegra", "NVML since version 6"),
    ],
)
def test_a_missing_library_has_the_remedy_of_its_place(monkeypatch, kind, release, remedy) -> None:
    monkeypatch.setattr(driver_errors, "container", lambda: kind)
    monkeypatch.setattr(driver_errors.platform, "release", lambda: release)
    absent = probe_client.missing("libcuda-of-nobody.so.1")
    assert remedy in str(absent.hint)


def test_a_job_without_a_gpu_asks_for_one(stub: StubDriver) -> None:
    settings = {"CUDA_VISIBLE_DEVICES": "NoDevFiles", "SLURM_JOB_ID": "7"}
    reason = ask_cuda(stub, CUDA_STUB="cuInit=100", **settings).driver.reason
    assert "--gres=gpu:1" in str(reason.hint)
