"""Joining NVML's rows with CUDA's devices: by identity, never by position."""

import getpass
import os
from pathlib import Path

import pytest
from builders import machine as build_machine
from hypothesis import given, strategies as st
from msgspec.structs import replace
from trees import written

from workbench.machine.nvidia.cuda_driver import CudaAnswer, CudaDevice
from workbench.machine.nvidia.gpu_fields import gpu_process, with_reasons
from workbench.machine.nvidia.gpus import as_detected, join, no_gpu, on_the_bus, without_driver
from workbench.records.machine import CudaDriver, Gpu, GpuReading, Machine, Nvml
from workbench.records.reason import Reason

NVML = Nvml(available=True)


def uuid(number: int) -> str:
    return f"{number:08x}-1111-2222-3333-444444444444"


def bus(number: int) -> str:
    return f"0000:{0x18 + number:02x}:00.0"


def row(number: int, *, identified: bool = True) -> Gpu:
    if not identified:
        return with_reasons(Gpu(number, None, None, None, None), "the GPU is lost")
    known = Gpu(number, None, f"GPU-{uuid(number)}", bus(number), "H200", 150, 5, "9.0")
    return with_reasons(known, "not supported")


def device(ordinal: int, number: int) -> CudaDevice:
    identity = uuid(number), uuid(number), bus(number), "H200", 140, "9.0"
    return CudaDevice(ordinal, *identity, integrated=False, l2_cache_bytes=50 << 20)


def answer(*devices: CudaDevice, reason: Reason | None = None) -> CudaAnswer:
    driver = CudaDriver(bool(devices), len(devices), reason, "13.0")
    return CudaAnswer(driver, list(devices))


@given(st.permutations(range(6)), st.integers(0, 6), st.sampled_from(["uuid", "bus", "both"]))
def test_every_order_and_subset_is_joined_by_identity(order, offered, known) -> None:
    devices = [device(ordinal, number) for ordinal, number in enumerate(order[:offered])]
    if known == "uuid":
        devices = [replace(d, pci_bus_id=None) for d in devices]
    elif known == "bus":
        devices = [replace(d, uuid=None, gpu_uuid=None) for d in devices]
    gpus = join([row(n) for n in range(6)], NVML, answer(*devices), "some")
    assert len(gpus) == 6
    for number, gpu in enumerate(gpus):
        if number in order[:offered]:
            assert gpu.device == f"cuda:{order.index(number)}"
            assert gpu.visible and "device" not in gpu.unavailable
            assert gpu.l2_cache_bytes == 50 << 20
        else:
            assert gpu.device is None and not gpu.visible
            assert "CUDA_VISIBLE_DEVICES=some" in gpu.unavailable["device"]


def test_a_hidden_gpu_without_any_device_left() -> None:
    hidden = Reason("hidden", "CUDA finds no GPU with CUDA_VISIBLE_DEVICES=''")
    [gpu] = join([row(0)], NVML, answer(reason=hidden), "")
    assert (gpu.device, gpu.visible) == (None, False)


def test_nvml_without_cuda_is_not_called_hidden() -> None:
    missing = Reason("library_missing", "libcuda.so.1 is not installed")
    [gpu] = join([row(0)], NVML, answer(reason=missing), "0")
    assert (gpu.device, gpu.visible) == (None, True)
    assert "libcuda.so.1" in gpu.unavailable["device"]


def test_what_cuda_says_is_not_introduced_twice() -> None:
    none = Reason("no_device", "CUDA finds no GPU (CUDA 100)")
    [gpu] = join([row(0)], NVML, answer(reason=none), None)
    assert gpu.unavailable["device"] == none.message
    reason = no_gpu(machine([], Nvml(False, MISSING), CudaDriver(False, 0, none)))
    assert reason.message.endswith("(NVML: not installed; CUDA finds no GPU (CUDA 100))")


def test_cuda_without_nvml_gives_rows_with_nvmls_reason() -> None:
    nvml = Nvml(available=False, reason=Reason("library_missing", "no libnvidia-ml.so.1"))
    [gpu] = join([], nvml, answer(device(0, 4)), None)
    assert (gpu.index, gpu.device, gpu.uuid) == (None, "cuda:0", f"GPU-{uuid(4)}")
    assert (gpu.name, gpu.memory_total_bytes, gpu.compute_capability) == ("H200", 140, "9.0")
    assert gpu.unavailable["power_w"] == "NVML: no libnvidia-ml.so.1"
    assert "name" not in gpu.unavailable


def test_one_unreadable_row_is_matched_by_elimination() -> None:
    rows = [row(0), row(1, identified=False), row(2)]
    gpus = join(rows, NVML, answer(device(0, 2), device(1, 1), device(2, 0)), None)
    assert [gpu.device for gpu in gpus] == ["cuda:2", "cuda:1", "cuda:0"]
    assert gpus[1].uuid == f"GPU-{uuid(1)}"
    assert gpus[1].name == "H200" and "name" not in gpus[1].unavailable
    assert gpus[1].unavailable["power_w"] == "the GPU is lost"


def test_as_many_unreadable_rows_as_devices_are_these_without_a_number() -> None:
    rows = [row(0), row(1, identified=False), row(2, identified=False)]
    gpus = join(rows, NVML, answer(device(0, 2), device(1, 0), device(2, 1)), None)
    found = [(gpu.index, gpu.device) for gpu in gpus]
    assert found == [(0, "cuda:1"), (None, "cuda:0"), (None, "cuda:2")]
    assert gpus[1].name == "H200" and gpus[1].unavailable["power_w"] == "the GPU is lost"


LOST = [row(0, identified=False), row(1, identified=False)]


@pytest.mark.parametrize(("rows", "devices"), [(LOST, [device(0, 1)]), ([row(0)], [device(0, 5)])])
def test_nothing_else_is_guessed_at(rows: list[Gpu], devices: list[CudaDevice]) -> None:
    gpus = join(rows, NVML, answer(*devices), None)
    added = [f"cuda:{each.ordinal}" for each in devices]
    assert [gpu.device for gpu in gpus] == [*[None] * len(rows), *added]


def test_a_jetson_is_matched_although_its_uuids_differ() -> None:
    shared = replace(
        row(0), pci_bus_id=None, unavailable={"memory_total_bytes": "it is the system's"}
    )
    orin = replace(device(0, 9), integrated=True)
    [gpu] = join([shared], NVML, answer(orin), None)
    assert gpu.device == "cuda:0"
    assert gpu.memory_total_bytes == 150  # the stand-in stays, with its note
    assert "memory_total_bytes" in gpu.unavailable


def test_system_memory_never_stands_in_for_a_card_with_its_own() -> None:
    shared = replace(row(0), unavailable={"memory_total_bytes": "the system's"})
    [gpu] = join([shared], NVML, answer(device(0, 0)), None)
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (140, None)
    assert set(gpu.unavailable) == {"memory_used_bytes"}
    [seen] = as_detected([GpuReading(0, memory_used_bytes=9, power_w=70.0)], [gpu])
    assert (seen.memory_used_bytes, seen.power_w) == (None, 70.0)
    assert seen.unavailable == gpu.unavailable


def test_a_mig_instance_shows_its_own_size() -> None:
    instance = replace(device(0, 0), uuid=uuid(77), name="H200 MIG 1g.18gb", memory_total_bytes=18)
    [gpu] = join([row(0)], NVML, answer(instance), None)
    assert (gpu.device, gpu.uuid) == ("cuda:0", f"MIG-{uuid(77)}")
    assert (gpu.name, gpu.memory_total_bytes) == ("H200 MIG 1g.18gb", 18)
    assert (gpu.memory_used_bytes, gpu.power_w) == (None, None)
    assert gpu.processes is None, "those of other instances are no intruders"
    assert all("whole GPU" in gpu.unavailable[f] for f in ("memory_used_bytes", "power_w"))


def pci(root: Path, **devices: tuple[str, str]) -> Path:
    for name, (vendor, kind) in devices.items():
        folder = root / "sys/bus/pci/devices" / name.replace("_", ":")
        written(folder, {"vendor": f"{vendor}\n", "class": f"{kind}\n"})
    return root


def test_gpus_without_a_driver_are_seen_on_the_bus(tmp_path: Path) -> None:
    root = pci(
        tmp_path,
        **{
            "0000_18_00.0": ("0x10de", "0x030200"),
            "0000_18_00.1": ("0x10de", "0x040300"),  # its audio function
            "0000_19_00.0": ("0x8086", "0x030000"),
        },
    )
    assert on_the_bus(root) == ["0000:18:00.0"]
    absent = Nvml(available=False, reason=Reason("library_missing", "no library", "install it"))
    reason = without_driver(absent, root).reason
    assert reason.code == "gpu_without_driver"
    assert "0000:18:00.0" in reason.message and reason.hint == "install it"
    assert without_driver(absent, tmp_path / "elsewhere") == absent
    assert without_driver(NVML, root) == NVML


def machine(gpus: list[Gpu], nvml: Nvml, cuda: CudaDriver) -> Machine:
    return replace(build_machine(), gpus=gpus, nvml=nvml, cuda=cuda)


MISSING = Reason("library_missing", "not installed")
CRASHED = Reason("nvml_crashed", "died of SIGSEGV", "reboot")
HIDDEN = Reason("hidden", "hidden", "unset it")


@pytest.mark.parametrize(
    ("nvml", "cuda", "expected"),
    [
        (MISSING, MISSING, "no_gpu"),
        (Reason("driver_not_loaded", "x"), Reason("no_device", "x"), "no_gpu"),
        (CRASHED, MISSING, "gpu_unknown"),
        (MISSING, HIDDEN, "gpu_unknown"),
        (Reason("gpu_without_driver", "x"), MISSING, "gpu_without_driver"),
    ],
)
def test_no_gpu_is_said_only_when_both_say_so(nvml: Reason, cuda: Reason, expected: str) -> None:
    reason = no_gpu(machine([], Nvml(False, nvml), CudaDriver(False, 0, cuda)))
    assert reason.code == expected


def test_a_usable_gpu_leaves_no_reason_and_hidden_ones_are_unusable() -> None:
    usable = join([row(0)], NVML, answer(device(0, 0)), None)
    assert no_gpu(machine(usable, NVML, CudaDriver(True, 1))) is None
    hidden = join([row(0)], NVML, answer(reason=HIDDEN), "")
    reason = no_gpu(machine(hidden, NVML, CudaDriver(False, 0, HIDDEN)))
    assert (reason.code, reason.hint) == ("gpu_unusable", "unset it")


def test_a_process_of_this_machine_has_a_name_and_a_user_and_one_of_elsewhere_neither(
    tmp_path: Path,
) -> None:
    found = gpu_process(os.getpid(), 5)
    assert (found.pid, found.used_memory_bytes) == (os.getpid(), 5)
    assert found.name and found.user == getpass.getuser()
    found = gpu_process(4711, None, tmp_path)
    assert (found.name, found.user) == (None, None)
    written(tmp_path, {"proc/4711/comm": "\x1b[31mred\n"})
    assert gpu_process(4711, None, tmp_path).name == r"\x1b[31mred"
