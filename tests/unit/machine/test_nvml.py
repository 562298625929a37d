"""NVML through the real ctypes path, against a C stub, in the real child process."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import stub_driver
from hypothesis import given, settings, strategies as st
from stub_driver import StubDriver

from workbench.machine.host.memory import system_memory
from workbench.machine.nvidia import nvml_fields, probe_client
from workbench.machine.nvidia.driver_errors import nvml_text
from workbench.machine.nvidia.gpu_fields import with_reasons
from workbench.machine.nvidia.probe_client import GpuProbes, nvml_answer, start_probe
from workbench.process.line_process import Ended, QueryProcess
from workbench.records.machine import Gpu, GpuProcess, Nvml


def ask_nvml(stub: StubDriver, library: str = "nvml", **settings: str) -> tuple[Nvml, list[Gpu]]:
    with stub.loaded(library, **settings):
        return nvml_answer(start_probe("nvml"), 30.0)


def assert_complete(gpu: Gpu) -> None:
    """Every absence has its reason."""
    assert with_reasons(gpu, "none is given") == gpu


def test_a_healthy_gpu_is_read_completely(stub: StubDriver) -> None:
    nvml, [gpu] = ask_nvml(stub)
    assert nvml == Nvml(True, None, "580.159.04", "13.580.159.04")
    assert gpu.unavailable == {}
    assert (gpu.index, gpu.name) == (0, "NVIDIA H200")
    assert gpu.uuid == "GPU-00000000-1111-2222-3333-444444444444"
    assert gpu.pci_bus_id == "0000:18:00.0"
    assert gpu.memory_total_bytes == 150754820096
    assert gpu.memory_used_bytes == 512  # v2 leaves the driver's reserve out, v1 says 1024
    assert (gpu.compute_capability, gpu.driver_version) == ("9.0", "580.159.04")
    assert (gpu.pcie.generation, gpu.pcie.width) == (1, 16)
    assert (gpu.pcie.max_generation, gpu.pcie.max_width) == (5, 16)
    assert (gpu.power_w, gpu.power_limit_w) == (76.5, 700.0)
    assert (gpu.temperature_c, gpu.utilization_percent) == (32.0, 37.0)
    assert (gpu.sm_clock_mhz, gpu.max_sm_clock_mhz) == (345.0, 1980.0)
    assert gpu.clock_event_reasons == ["gpu_idle", "sw_power_cap", "bit_0x800"]
    assert (gpu.ecc, gpu.mig, gpu.persistence) == (True, False, True)
    assert gpu.compute_mode == "default"
    assert [(p.pid, p.used_memory_bytes) for p in gpu.processes] == [(4711, 2048), (4712, None)]


@pytest.mark.parametrize(
    ("mode", "expected"), [("1", "exclusive_process"), ("2", "prohibited"), ("7", "mode_7")]
)
def test_who_may_use_a_gpu(stub: StubDriver, mode: str, expected: str) -> None:
    _, [gpu] = ask_nvml(stub, NVML_STUB_COMPUTE_MODE=mode)
    assert gpu.compute_mode == expected


@pytest.mark.parametrize("expected", ["none", "pending", "failed"])
def test_whether_spare_rows_replaced_faulty_memory(stub: StubDriver, expected: str) -> None:
    _, [gpu] = ask_nvml(stub, NVML_STUB_ROW_REMAP=expected)
    assert gpu.row_remap == expected


@pytest.mark.parametrize("expected", ["none", "pending"])
def test_whether_a_card_before_ampere_has_to_retire_pages(stub: StubDriver, expected: str) -> None:
    turing = "nvmlDeviceGetRemappedRows=3"
    _, [gpu] = ask_nvml(stub, NVML_STUB=turing, NVML_STUB_ROW_REMAP=expected)
    assert gpu.row_remap == expected and gpu.unavailable == {}


def test_more_nvlinks_than_todays_header_knows(stub: StubDriver) -> None:
    _, [gpu] = ask_nvml(stub, NVML_STUB_NVLINKS="37")
    assert gpu.nvlinks == 36


def test_sixteen_gpus(stub: StubDriver) -> None:
    _, gpus = ask_nvml(stub, NVML_STUB_GPUS="16")
    assert [gpu.index for gpu in gpus] == list(range(16))
    assert len({gpu.uuid for gpu in gpus}) == 16


@pytest.mark.parametrize(
    ("code", "expected", "remedy"),
    [
        (4, "no_permission", None),
        (9, "driver_not_loaded", "modprobe nvidia"),
        (18, "version_mismatch", "reboot"),
        (77, "nvml_error_77", None),
    ],
)
def test_each_failure_of_init_is_named(stub, code: int, expected: str, remedy: str | None) -> None:
    nvml, gpus = ask_nvml(stub, NVML_STUB=f"nvmlInitWithFlags={code}")
    assert not nvml.available and gpus == []
    assert nvml.reason.code == expected
    assert str(code) in nvml.reason.message
    assert remedy is None or remedy in str(nvml.reason.hint)


def test_no_library_for_the_child(stub: StubDriver) -> None:
    nvml, gpus = ask_nvml(stub, library="nothing")
    assert nvml.reason.code == "library_missing"
    assert gpus == []


def test_no_gpu_at_all(stub: StubDriver) -> None:
    nvml, gpus = ask_nvml(stub, NVML_STUB_GPUS="0")
    assert nvml.available and gpus == []
    assert nvml.reason.code == "no_gpu"


def test_an_old_driver_is_read_by_the_older_calls(stub: StubDriver) -> None:
    _, [gpu] = ask_nvml(stub, library="old_nvml")
    assert gpu.memory_used_bytes == 1024  # v1
    assert gpu.temperature_c == 31
    assert gpu.power_limit_w == 690
    assert gpu.clock_event_reasons == ["gpu_idle", "sw_power_cap", "bit_0x800"]
    assert gpu.processes is not None and len(gpu.processes) == 2
    lacking = "this driver lacks the function (NVML 13)"
    assert gpu.unavailable == {"mig": lacking, "pcie.gpu_max_generation": lacking}


@pytest.mark.parametrize(
    "faults",
    ["nvmlDeviceGetMemoryInfo_v2=3;nvmlDeviceGetMemoryInfo=3", "nvmlDeviceGetMemoryInfo_v2=zero"],
)
def test_shared_memory_is_the_systems_and_says_so(stub: StubDriver, faults: str) -> None:
    _, [gpu] = ask_nvml(stub, NVML_STUB=faults)
    system = system_memory()
    assert gpu.memory_total_bytes == system[0]
    assert gpu.memory_used_bytes is not None
    assert "system memory" in gpu.unavailable["memory_total_bytes"]
    assert "system memory" in gpu.unavailable["memory_used_bytes"]


def test_memory_without_permission_stays_unknown(stub: StubDriver) -> None:
    _, [gpu] = ask_nvml(stub, NVML_STUB="nvmlDeviceGetMemoryInfo_v2=4")
    assert gpu.memory_total_bytes is None
    assert gpu.unavailable["memory_total_bytes"] == "no permission (NVML 4)"


def test_a_name_that_is_not_utf8_costs_only_the_name(stub: StubDriver) -> None:
    _, [gpu] = ask_nvml(stub, NVML_STUB="nvmlDeviceGetName=badutf8")
    assert gpu.name is None and "UTF-8" in gpu.unavailable["name"]
    assert set(gpu.unavailable) == {"name"}


def test_nvmls_own_word_for_no_value_is_no_reading(stub: StubDriver) -> None:
    _, [gpu] = ask_nvml(stub, NVML_STUB="nvmlDeviceGetMaxPcieLinkWidth=novalue")
    assert gpu.pcie.max_width is None
    assert gpu.unavailable == {"pcie.max_width": "NVML gives no value"}


@pytest.mark.parametrize("code", [3, 13, 25, 26])
def test_a_refused_new_form_falls_back_to_the_older(stub: StubDriver, code: int) -> None:
    faults = f"nvmlDeviceGetTemperatureV={code};nvmlDeviceGetMemoryInfo_v2={code}"
    _, [gpu] = ask_nvml(stub, NVML_STUB=faults)
    assert (gpu.temperature_c, gpu.memory_used_bytes) == (31, 1024)
    assert gpu.unavailable == {}


def test_the_more_telling_of_two_failures_is_told(stub: StubDriver) -> None:
    faults = "nvmlDeviceGetTemperatureV=4;nvmlDeviceGetEnforcedPowerLimit=13"
    _, [gpu] = ask_nvml(stub, NVML_STUB=faults + ";nvmlDeviceGetPowerManagementLimit=3")
    assert gpu.unavailable == {
        "temperature_c": "no permission (NVML 4)",
        "power_limit_w": "not supported by this GPU or driver (NVML 3)",
    }


READINGS = [
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetName",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetPersistenceMode",
]


def test_each_reading_fails_by_itself(stub: StubDriver) -> None:
    """GPU number i lacks reading i, and nothing else."""
    faults = ";".join(f"{name}@{gpu}=3" for gpu, name in enumerate(READINGS))
    count = str(len(READINGS))
    _, gpus = ask_nvml(stub, NVML_STUB=faults, NVML_STUB_GPUS=count)
    assert len(gpus) == len(READINGS)
    for gpu in gpus:
        assert len(gpu.unavailable) == 1, gpu
        assert_complete(gpu)
        assert "not supported" in next(iter(gpu.unavailable.values()))


def test_a_lost_gpu_keeps_its_row_with_reasons(stub: StubDriver) -> None:
    faults = "nvmlDeviceGetHandleByIndex_v2@1=15"
    nvml, gpus = ask_nvml(stub, NVML_STUB=faults, NVML_STUB_GPUS="3")
    assert nvml.available
    assert [gpu.name for gpu in gpus] == ["NVIDIA H200", None, "NVIDIA H200"]
    assert gpus[1].unavailable["name"] == nvml_text(15), "its remedy is the warning's"
    assert gpus[1].driver_version == "580.159.04"
    for gpu in gpus:
        assert_complete(gpu)


@pytest.mark.parametrize(("fault", "signal"), [("segv", "SIGSEGV"), ("abort", "SIGABRT")])
def test_a_crash_keeps_the_rows_before_it(stub: StubDriver, fault: str, signal: str) -> None:
    faults = f"nvmlDeviceGetPowerUsage@1={fault}"
    nvml, gpus = ask_nvml(stub, NVML_STUB=faults, NVML_STUB_GPUS="3")
    assert nvml.available
    assert [gpu.name for gpu in gpus] == ["NVIDIA H200", None, None]
    assert all(signal in gpu.unavailable["power_w"] for gpu in gpus[1:])
    for gpu in gpus:
        assert_complete(gpu)


def test_a_crash_at_init_is_a_reason(stub: StubDriver) -> None:
    nvml, gpus = ask_nvml(stub, NVML_STUB="nvmlInitWithFlags=segv")
    assert gpus == []
    assert nvml.reason.code == "nvml_crashed"
    assert "SIGSEGV" in nvml.reason.message


def test_a_hang_is_ended_by_the_deadline(stub: StubDriver) -> None:
    with stub.loaded("nvml", NVML_STUB="nvmlInitWithFlags=hang"):
        nvml, gpus = nvml_answer(start_probe("nvml"), deadline_s=0.3)
    assert gpus == []
    assert nvml.reason.code == "nvml_hung"
    assert "0.3 s" in nvml.reason.message


class Script(QueryProcess):
    """A child that answers as written down, so that a hang takes no time."""

    def __init__(self, *lines: bytes | Ended) -> None:
        self._script = list(lines)

    def line(self, deadline_s: float, *, since_start: bool = False) -> bytes | Ended:
        return self._script.pop(0)

    def close(self) -> None: ...


HEADER = b'{"nvml": {"available": true}, "count": 3}'
ROW = b'{"index": 0, "device": null, "uuid": "GPU-0", "pci_bus_id": null, "name": "A"}'


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(Ended("silent", "gave no answer within 30 s"), "no answer"), (b"garbage", "unreadable")],
)
def test_rows_after_a_failure(failure: bytes | Ended, reason: str) -> None:
    _, gpus = nvml_answer(Script(HEADER, ROW, failure), 30.0)
    assert [gpu.name for gpu in gpus] == ["A", None, None]
    assert all(reason in gpu.unavailable["name"] for gpu in gpus[1:])


def test_an_interpreter_that_cannot_start_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    nvml, gpus = nvml_answer(start_probe("nvml"), 30.0)
    assert gpus == []
    assert nvml.reason.code == "nvml_not_started"


class Hung(QueryProcess):
    """A child that never answers; a wait for it lasts on the clock of the test alone."""

    def __init__(self, clock: list[float]) -> None:
        self._clock, self._began = clock, clock[0]

    def line(self, deadline_s: float, *, since_start: bool = False) -> bytes | Ended:
        now = self._clock[0]
        self._clock[0] = max(now, deadline_s + (self._began if since_start else now))
        return Ended("silent", f"gave no answer within {deadline_s:g} s")

    def close(self) -> None: ...


def test_a_lost_gpu_on_which_both_hang_costs_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(probe_client, "missing", lambda _: None)
    monkeypatch.setattr(probe_client, "start_probe", lambda _: Hung(clock))
    monkeypatch.setattr(probe_client.time, "monotonic", lambda: clock[0])
    nvml, gpus, cuda = GpuProbes().collect(30.0)
    assert clock == [130.0] and gpus == []
    assert nvml.reason.code == "nvml_hung" and cuda.driver.reason.code == "cuda_hung"
    assert "within 30 s" in cuda.driver.reason.message


def test_cuda_has_its_own_deadline_where_nvml_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    children = {"nvml": Script(b'{"nvml": {"available": true}, "count": 0}'), "cuda": Hung(clock)}
    monkeypatch.setattr(probe_client, "missing", lambda _: None)
    monkeypatch.setattr(probe_client, "start_probe", children.__getitem__)
    monkeypatch.setattr(probe_client.time, "monotonic", lambda: clock[0])
    probes = GpuProbes()
    nvml, _, cuda = probes.collect(30.0)
    assert nvml.available and not cuda.driver.available
    assert clock == [130.0]


def test_how_the_gpus_are_linked(stub: StubDriver) -> None:
    with stub.loaded("nvml", NVML_STUB_GPUS="5"):
        found = probe_client.gpu_links()
    assert found.reason is None
    assert found.matrix[0] == ["", "NVLink", "SYS", "SYS", "SYS"]
    assert found.matrix[2] == ["SYS", "SYS", "", "PIX+P2P", "SYS"]


def test_the_server_of_mps_is_no_user_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts with our own first worker, which would then seem to have a neighbour."""
    names = {4711: "python", 4712: "nvidia-cuda-mps", 4713: None}
    monkeypatch.setattr(
        nvml_fields, "gpu_process", lambda pid, used: GpuProcess(pid, used, names[pid])
    )
    listed = [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in names]
    assert [process.pid for process in nvml_fields._users(listed)] == [4711, 4713]


def test_two_lost_gpus_are_not_one_and_the_same(stub: StubDriver) -> None:
    lost = "nvmlDeviceGetHandleByIndex_v2=15"
    with stub.loaded("nvml", NVML_STUB_GPUS="2", NVML_STUB=lost):
        assert probe_client.gpu_links().matrix == [["", "?"], ["?", ""]]


def test_links_that_cannot_be_asked(stub: StubDriver) -> None:
    refused = "nvmlDeviceGetP2PStatus=3;nvmlDeviceGetTopologyCommonAncestor=3"
    with stub.loaded("nvml", NVML_STUB_GPUS="2", NVML_STUB=refused):
        found = probe_client.gpu_links()
    assert found.matrix == [["", "?"], ["?", ""]]
    with stub.loaded("nvml", NVML_STUB="nvmlInitWithFlags=segv"):
        crashed = probe_client.gpu_links()
    assert crashed.reason.code == "nvml_crashed"


SOURCE = (Path(stub_driver.__file__).parent / "nvml.c").read_text()
FUNCTIONS = sorted(set(re.findall(r"\bnvmlDeviceGet\w+", SOURCE)) - {"nvmlDeviceGetCount_v2"})


@settings(max_examples=12)
@given(
    st.dictionaries(
        st.sampled_from(FUNCTIONS), st.sampled_from(["3", "4", "13", "15", "999", "novalue"])
    )
)
def test_any_readings_may_fail_together_and_each_absence_is_explained(stub, faults) -> None:
    listed = ";".join(f"{function}={fault}" for function, fault in faults.items())
    nvml, [gpu] = ask_nvml(stub, NVML_STUB=listed)
    assert nvml.available
    assert_complete(gpu)
    assert msgspec.json.decode(msgspec.json.encode(gpu), type=Gpu) == gpu
