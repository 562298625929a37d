"""The vendors' numbers are complete and are shown next to the measured ones."""

from builders import ceilings as build_ceilings, machine
from examined_machines import examine
from msgspec.structs import replace

from workbench.contract import PRECISIONS
from workbench.export.view.ceilings import ceilings_text
from workbench.machine import datasheets
from workbench.records.document import Ceilings
from workbench.records.machine import Software


def of_card(name: str, peak: float, bandwidth: float) -> Ceilings:
    found = build_ceilings("cuda:0", peak=peak, bandwidth=bandwidth)
    [device] = found.devices
    return replace(found, devices=[replace(device, name=name)])


def test_every_card_is_described_with_its_source() -> None:
    sheets = datasheets.load()
    assert len(sheets) >= 10
    for name, sheet in sheets.items():
        assert set(sheet.peak_ops_per_s) <= set(PRECISIONS), name
        assert all(1e12 < peak < 1e16 for peak in sheet.peak_ops_per_s.values()), name
        assert 1e11 < sheet.memory_bytes_per_s < 1e13 and 30 < sheet.power_w < 2000, name
        assert sheet.source and sheet.quoted_by


def test_each_card_with_a_name_has_rates() -> None:
    assert all(sheet.peak_ops_per_s for sheet in datasheets.load().values())


def test_impossible_rates_of_an_l4_are_bounded_in_every_precision_but_fp64() -> None:
    assert {*PRECISIONS} - {*datasheets.load()["NVIDIA L4"].peak_ops_per_s} == {"fp64"}


def test_a_narrower_type_is_never_slower() -> None:
    for name, sheet in datasheets.load().items():
        peaks = sheet.peak_ops_per_s
        known = [peaks[p] for p in ("fp64", "fp32", "tf32", "fp16", "fp8", "int8") if p in peaks]
        assert known == sorted(known), name


def test_the_table_has_the_datasheet_beside_the_card() -> None:
    text = ceilings_text(of_card("NVIDIA L40S", 8e13, 7e11))
    assert "cuda:0 datasheet" in text
    [fp32] = [line for line in text.splitlines() if line.startswith("FP32")]
    assert "80.0 TFLOP/s" in fp32 and "91.6 TFLOP/s" in fp32


def test_a_card_far_below_its_kind_is_told_by_the_doctor_and_a_good_one_is_not() -> None:
    slow, good = of_card("NVIDIA L40S", 2e13, 7e11), of_card("NVIDIA L40S", 8e13, 7e11)
    assert list(datasheets.shortfalls(slow)) == [
        ("cuda:0", "fp32 products reach 22% of the datasheet"),
        ("cuda:0", "bf16 products reach 11% of the datasheet"),
    ]
    found = examine(machine(), Software("3.11", "python", {}, {}), {}, slow).checks
    assert [c.status for c in found if c.name == "cuda:0 ceilings"] == ["warn", "warn"]
    assert ("cuda:0", "fp32") not in [(d, w[:4]) for d, w in datasheets.shortfalls(good)]
    healthy = of_card("NVIDIA L40S", 4.5e13, 7e11)  # one reached 46.9 TFLOP/s
    assert not any(text.startswith("fp32") for _, text in datasheets.shortfalls(healthy))


def test_a_card_of_70_w_is_measured_by_what_its_power_limit_allows() -> None:
    limited = of_card("Tesla T4", 1.0, 250e9)
    [device] = limited.devices
    for share, found in ((0.4, []), (0.25, ["fp16 products reach 25% of the datasheet"])):
        peaks = {"fp16": share * 65e12}
        slow = replace(device, peak_ops_per_s=peaks)
        slow = replace(limited, devices=[slow])
        assert [text for _, text in datasheets.shortfalls(slow)] == found
    dim = replace(device, peak_ops_per_s={}, memory_bytes_per_s=128e9)
    dim = replace(limited, devices=[dim])
    assert [text for _, text in datasheets.shortfalls(dim)] == [
        "memory bandwidth reaches 40% of the datasheet"
    ]


def test_the_cards_of_common_servers_are_described() -> None:
    assert {
        "NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA GH200 480GB",
        "NVIDIA GH200 144G HBM3e",
        "NVIDIA B200", "NVIDIA A10", "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB",
        "NVIDIA RTX A6000", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 5090",
    } <= set(datasheets.load())  # fmt: skip


def test_a_card_that_nobody_describes_is_no_shortfall() -> None:
    assert list(datasheets.shortfalls(of_card("Some GPU", 1.0, 1.0))) == []
