"""Checks of each card: what is a fault, what is no complaint, and which is a straggler."""

import re
from typing import Any

import msgspec
import pytest
from builders import case, events, steady
from examined_machines import HEALTHY, ON_GPU, bad, examine, software, with_gpu

from workbench.advisor import doctor
from workbench.export.doctor import doctor_text
from workbench.machine.nvidia.driver_errors import nvml_text
from workbench.machine.nvidia.gpu_fields import with_reasons
from workbench.machine.nvidia.nvml import Links
from workbench.records.inspection import DoctorReport, Trial
from workbench.records.machine import Gpu, GpuProcess, Nvml, Os, Pcie
from workbench.records.reason import Reason
from workbench.report.report import Report

LAPTOP = "NVIDIA GeForce RTX 4060 Laptop GPU"
CUDA = software("CUDA 13.0", "CUDA 13.0")


def changed(**fields: Any) -> Gpu:
    """A healthy card but for these fields."""
    return msgspec.structs.replace(HEALTHY, **fields)


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"memory_used_bytes": 95}, "warn", "5 B of 100 B free"),
        ({"power_limit_w": 500.0}, "warn", "500 W, default 700 W"),
        ({"clock_event_reasons": ["hw_thermal_slowdown"]}, "warn", "hw thermal slowdown"),
        ({"ecc_uncorrected": 3}, "fail", "3 uncorrected memory errors since"),
        ({"ecc_uncorrected": 1}, "fail", "1 uncorrected memory error since"),
        ({"row_remap": "failed"}, "fail", "could not be replaced"),
        ({"row_remap": "pending"}, "warn", "waits for a reset"),
        ({"persistence": False}, "warn", "persistence"),
        ({"compute_mode": "exclusive_process"}, "warn", "one process at a time"),
        ({"pcie": Pcie(4, 8, 4, 16, 4)}, "warn", "8 of 16 lanes"),
        ({"pcie": Pcie(4, 16, 4, 16, 5)}, "warn", "PCIe 4.0, card supports 5.0"),
        ({"processes": [GpuProcess(1, None)]}, "warn", "another process"),
        ({"device": None, "visible": False}, "warn", "not used"),
        ({"device": None}, "warn", "cannot be used"),
    ],
)
def test_each_sign_of_a_card_that_is_not_as_it_should_be(changes, status, message) -> None:
    card = changed(**changes)
    found = examine(with_gpu(card), CUDA, ON_GPU)
    check = bad(found)[card.device or "gpu 0"]
    assert check.status == status and message in check.message and check.remedy


@pytest.mark.parametrize(
    "card",
    [
        changed(clock_event_reasons=["gpu_idle", "hw_slowdown"], pcie=Pcie(1, 8, 4, 16, 4)),
        # The links of cards without a slot.
        changed(name="NVIDIA GeForce RTX 3060 Laptop GPU", pcie=Pcie(4, 8, 4, 16, 4)),
        changed(name="NVIDIA GB10", pcie=Pcie(1, 1, 1, 16, 5)),
        changed(name="NVIDIA GB200", pcie=Pcie(5, 16, 5, 16, 6)),
        changed(name=LAPTOP, persistence=False),  # it may sleep
        Gpu(0, "cuda:0", "GPU-1", None, "NVIDIA GB10", compute_capability="12.1"),  # no readings
    ],
    ids=["idle", "3060", "GB10", "GB200", "sleeping", "unread"],
)
def test_what_a_healthy_card_shows_is_no_complaint(card: Gpu) -> None:
    assert bad(examine(with_gpu(card), CUDA, ON_GPU)) == {}


def test_the_power_limit_of_a_laptop_is_its_firmwares() -> None:
    card = changed(name=LAPTOP, power_limit_w=35.0, power_default_w=80.0)
    check = bad(examine(with_gpu(card), CUDA, ON_GPU))["cuda:0"]
    assert "35 W, default 80 W" in check.message
    assert "nvidia-smi" not in (check.remedy or "")


def test_a_card_of_which_nvml_has_read_nothing_is_not_called_healthy() -> None:
    lost = with_reasons(Gpu(0, None, None, None, None), "the process that asks NVML ended")
    known = msgspec.structs.replace(lost, device="cuda:0", uuid="GPU-1", name="NVIDIA H200")
    here = msgspec.structs.replace(with_gpu(known), nvml=Nvml(True, None, "580.65"))
    check = bad(examine(here, CUDA, ON_GPU))["cuda:0"]
    assert check.status == "warn" and "the process that asks NVML ended" in check.message
    assert "dmesg" in (check.remedy or "")


def test_a_card_with_links_that_are_down_is_found_next_to_its_equals() -> None:
    links = enumerate((18, 16, 0))  # the last has no bridge
    cards = [changed(index=n, device=f"cuda:{n}", uuid=f"GPU-{n}", nvlinks=up) for n, up in links]
    here = msgspec.structs.replace(with_gpu(), gpus=cards)
    (check,) = bad(examine(here, CUDA, ON_GPU)).values()
    assert (check.name, check.status) == ("cuda:1", "warn")
    assert check.message == "16 NVLinks are active, 18 on another card of its model"


def test_cards_that_one_setting_hides_are_one_finding() -> None:
    hidden = {"device": None, "visible": False, "unavailable": {"device": "hidden by it"}}
    cards = [changed(index=n, uuid=f"GPU-{n}", **(hidden if n else {})) for n in range(8)]
    here = msgspec.structs.replace(with_gpu(), gpus=cards)
    found = examine(here, CUDA, ON_GPU)
    assert [(c.name, c.status) for c in found.checks[-2:]] == [("cuda:0", "ok"), ("gpu 1", "warn")]
    assert "and 6 other GPUs are not used" in found.checks[-1].message
    notes = [level.note for level in found.stack if level.name == "GPU"]
    assert notes == ["cuda:0", *["hidden"] * 7]


@pytest.mark.parametrize(
    ("changes", "container"),
    [
        ({"persistence": False, "virtualization": "passthrough"}, None),
        ({"persistence": False}, "docker"),
        ({"pcie": Pcie(1, 4, 1, 16, 5), "virtualization": "vgpu"}, None),
    ],
)
def test_what_a_guest_cannot_know_or_change_is_no_complaint(changes, container) -> None:
    card = changed(**changes)
    guest = with_gpu(card, os=Os("Linux", "6.1", None, container))
    found = examine(guest, CUDA, ON_GPU)
    assert bad(found) == {}
    (said,) = (check.message for check in found.checks if check.name == "cuda:0")
    assert ("PCIe link cannot be judged" in said) == ("virtualization" in changes)


def test_a_gpu_of_other_jobs_is_not_yours_and_no_failure() -> None:
    why = {"name": f"{nvml_text(4)}; ask for access"}
    others = Gpu(1, None, None, None, None, unavailable=why)
    machine = msgspec.structs.replace(with_gpu(), gpus=[HEALTHY, others])
    found = examine(machine, CUDA, ON_GPU)
    assert not found.failed and bad(found) == {}
    (check,) = (check for check in found.checks if check.name == "gpu 1")
    assert check.message.startswith("not yours: no permission (NVML 4)")
    assert [level.note for level in found.stack if level.name == "GPU"] == ["cuda:0", "not yours"]
    hidden = {"device": "hidden by CUDA_VISIBLE_DEVICES=0 in a batch job"}
    other = changed(device=None, visible=False, unavailable=hidden)
    in_job = msgspec.structs.replace(with_gpu(), gpus=[HEALTHY, other])
    assert bad(examine(in_job, CUDA, ON_GPU)) == {}


def test_mps_shares_an_exclusive_card() -> None:
    card = changed(compute_mode="exclusive_process")
    found = examine(with_gpu(card, mps=True), CUDA, ON_GPU)
    assert bad(found) == {}


@pytest.mark.parametrize(
    ("changes", "name", "remedy"),
    [
        ({"compute_capability": "7.0"}, "torch on the GPU", "whl/cu126"),
        ({"compute_mode": "prohibited"}, "cuda:0", "-c DEFAULT"),
    ],
)
def test_a_card_that_torch_cannot_use_fails(changes, name, remedy) -> None:
    trial = Trial("2.13.0", {}, {"cpu": None, "cuda:0": "CUDA error: it cannot be used"})
    found = examine(with_gpu(changed(**changes)), CUDA, {**ON_GPU, "torch": trial})
    assert found.failed and remedy in (bad(found)[name].remedy or "")


def test_a_build_that_computes_has_code_for_the_card_whatever_its_version() -> None:
    newer = changed(compute_capability="12.0", name="NVIDIA GeForce RTX 5090")
    for_cuda_12 = software("CUDA 12.6", "CUDA 12.6")
    assert bad(examine(with_gpu(newer), for_cuda_12, ON_GPU)) == {}


def two_gpus(second_s: float, *, alike: bool = True) -> Report:
    a, b = case("cuda:0-a"), case("cuda:1-a")
    found = Report.of(events({a: steady(1.0), b: steady(second_s)}, gpus=["cuda:0", "cuda:1"]))
    if not alike:
        first, second = found.machine.gpus
        other = msgspec.structs.replace(second, name="Another GPU")
        found.machine = msgspec.structs.replace(found.machine, gpus=[first, other])
    return found


def test_of_equal_gpus_only_the_slower_one_is_named() -> None:
    slow = {check.name: check for check in doctor.stragglers(two_gpus(1.4))}
    assert slow["cuda:0 product"].status == "ok"
    assert slow["cuda:1 product"].status == "warn"
    assert "1.40x slower than cuda:0" in slow["cuda:1 product"].message
    assert {check.status for check in doctor.stragglers(two_gpus(1.01))} == {"ok"}
    assert {check.status for check in doctor.stragglers(two_gpus(1.4, alike=False))} == {"ok"}


def test_a_gpu_that_others_fill_is_not_called_faulty() -> None:
    full, faulty = case("cuda:0-a"), case("cuda:1-a")
    failed = {full: Reason("no_memory", "2 GiB"), faulty: Reason("gpu_faulty", "ECC")}
    found = Report.of(events({full: [], faulty: []}, gpus=["cuda:0", "cuda:1"], failed=failed))
    assert [check.status for check in doctor.stragglers(found)] == ["warn", "fail"]


def test_a_slow_gpu_is_found_next_to_one_of_a_faster_model() -> None:
    names = [f"cuda:{number}" for number in range(3)]
    steps_s = dict(zip(names, (0.3, 1.0, 1.4), strict=True))
    found = Report.of(events({case(f"{n}-a"): steady(s) for n, s in steps_s.items()}, gpus=names))
    first, *others = found.machine.gpus
    faster = msgspec.structs.replace(first, name="Another GPU")
    found.machine = msgspec.structs.replace(found.machine, gpus=[faster, *others])
    *fine, slow = doctor.stragglers(found)
    assert [check.status for check in fine] == ["ok", "ok"]
    assert slow.status == "warn" and "1.40x slower than cuda:1" in slow.message


def test_the_links_are_a_table() -> None:
    def compared(links: Links, *gpus: Gpu) -> DoctorReport:
        return examine(with_gpu(*gpus), CUDA, ON_GPU, None, (two_gpus(1.0), links))

    links = Links([["", "NVLink"], ["NVLink", ""]])
    text = doctor_text(compared(links, changed(device=None)))
    assert re.search(r"^GPU 0 +NVLink$", text, re.MULTILINE)
    text = doctor_text(compared(links, changed(device="cuda:1")))
    assert re.search(r"^cuda:1 +NVLink$", text, re.MULTILINE)
    unknown = compared(Links([], Reason("library_missing", "no NVML")))
    assert "not known: no NVML" in doctor_text(unknown)
