"""The checks of `doctor --all-gpus`: GPUs slower than their equals, and the links."""

import re

import msgspec
from builders import case, events, steady

from workbench.advisor import doctor
from workbench.advisor.doctor import Examination
from workbench.export.doctor import doctor_text
from workbench.machine.nvidia.nvml import Links
from workbench.records.machine import Gpu
from workbench.records.reason import Reason
from workbench.report.report import Report


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
    found = Examination([], [])
    joined = Links([["", "NVLink"], ["NVLink", ""]])
    links = found.with_all_gpus(two_gpus(1.0), joined)
    text = doctor_text(links)
    assert re.search(r"^GPU 0 +NVLink$", text, re.MULTILINE)
    names = [Gpu(0, "cuda:1", None, None, None)]
    assert re.search(r"^cuda:1 +NVLink$", doctor_text(links, names), re.MULTILINE)
    unknown = Links([], Reason("library_missing", "no NVML"))
    assert "not known: no NVML" in doctor_text(found.with_all_gpus(two_gpus(1.0), unknown))
