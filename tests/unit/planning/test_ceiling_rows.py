"""The rows that measure ceilings, as planned for a machine."""

from typing import Any

import msgspec
from builders import machine

from workbench.contract import Case
from workbench.planning import ceiling_rows
from workbench.planning.request import Request
from workbench.records.machine import Cache, Machine

LLC = Cache(3, "unified", 1 << 25, 1)
HERE = msgspec.structs.replace(machine(), cpu=msgspec.structs.replace(machine().cpu, caches=[LLC]))


def planned(here: Machine, **options: Any) -> dict[str, list[Case]]:
    rows = ceiling_rows.requested_rows(Request(**options), here)
    return {row.scenario.id: row.cases for row in rows}


def test_the_plan_covers_devices_precisions_and_caches() -> None:
    rows = planned(HERE)
    assert "transfer" not in rows  # nothing to transfer to
    assert {"fp32", "bf16", "fp64", "fp16", "int8"} <= {c.precision for c in rows["matmul"]}
    assert {c.threads for c in rows["matmul"]} == {8}
    sizes = {c.params["mib"] for c in rows["bandwidth"]}
    assert sizes == {128.0, 4.0}
    both = planned(msgspec.structs.replace(HERE, gpus=machine("cuda:0").gpus), threads=(2,))
    assert {c.device for c in both["transfer"]} == {"cuda:0"}
    on_gpu = [c for c in both["bandwidth"] if c.device == "cuda:0"]
    assert {c.params["mib"] for c in on_gpu} == {128.0}, "its cache is not known"
    kinds = [c.precision for c in both["matmul"] if c.device == "cuda:0"]
    assert kinds == ["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp64"]
    assert both["matmul"][0].device == "cuda:0"
    ids = [c.id for cases in both.values() for c in cases]
    assert len(ids) == len(set(ids))


def test_a_gpu_has_a_ceiling_for_its_l2_cache() -> None:
    gpu = msgspec.structs.replace(machine("cuda:0").gpus[0], l2_cache_bytes=50 << 20)
    rows = planned(msgspec.structs.replace(HERE, gpus=[gpu]))
    on_gpu = [c for c in rows["bandwidth"] if c.device == "cuda:0"]
    assert {(c.params["kernel"], c.params["mib"]) for c in on_gpu} == {
        ("copy", 200.0), ("triad", 200.0), ("triad", 12.5),
    }  # fmt: skip
    assert {c.params["mib"] for c in rows["bandwidth"] if c.device == "cpu"} == {128.0, 4.0}


def test_two_cores_of_a_large_machine_reach_two_of_its_caches() -> None:
    """A container with 2 GiB could not even hold arrays as large as all twelve of them."""
    twelve = msgspec.structs.replace(LLC, size_bytes=96 << 20, instances=12)
    cpu = msgspec.structs.replace(HERE.cpu, caches=[twelve], logical_cores=192, affinity_cores=2)
    _, brief = ceiling_rows.requested_rows(
        Request(), msgspec.structs.replace(HERE, cpu=cpu), brief=True
    )
    assert max(case.params["mib"] for case in brief.cases) == 192.0


def test_arrays_out_of_cache_outgrow_a_large_cache() -> None:
    large = msgspec.structs.replace(LLC, size_bytes=1 << 29)
    big = msgspec.structs.replace(HERE, cpu=msgspec.structs.replace(HERE.cpu, caches=[large]))
    rows = planned(big)
    assert max(c.params["mib"] for c in rows["bandwidth"]) == 2048.0
    _, brief = ceiling_rows.requested_rows(Request(), big, brief=True)
    assert {c.params["mib"] for c in brief.cases} == {768.0, 64.0}
    many = msgspec.structs.replace(LLC, size_bytes=32 << 20, instances=12)
    cpu = msgspec.structs.replace(HERE.cpu, caches=[many], logical_cores=96, affinity_cores=96)
    rows = planned(msgspec.structs.replace(HERE, cpu=cpu))
    assert max(c.params["mib"] for c in rows["bandwidth"]) == 384.0
