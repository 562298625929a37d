"""The candidates of a training: which start, which follow the leader, and why others do not."""

from dataclasses import replace
from typing import Any

import machines
import msgspec
import pytest

from workbench.advisor.own.candidates import CodeSpace, way
from workbench.advisor.own.training import after, start, steps_per_sample, workers
from workbench.contract import Case
from workbench.planning.request import Request
from workbench.records.code import CodeFacts
from workbench.records.machine import Cpu, Isa
from workbench.records.reason import Reason

OLD = Isa(avx2=True, avx512_bf16=False, amx_bf16=False)


def cpu(**changes: Any) -> Cpu:
    return msgspec.structs.replace(machines.epyc(), **changes)


def space(
    *,
    on: Cpu | None = None,
    gpus: tuple[str, ...] = (),
    request: Request | None = None,
    **facts: Any,
) -> CodeSpace:
    found = CodeFacts(kind="torch", name="net:build", code_sha256="", inputs_sha256="", **facts)
    return CodeSpace(found, on or cpu(), (16, 8, 1), gpus, request or Request())


def labels(found: list[Case]) -> list[str]:
    def label(each: Case) -> str:
        settings = ",".join(f"{name}={value}" for name, value in each.tuning.items())
        parts = (each.device, each.precision, each.mode, each.threads, settings)
        return "/".join(str(part) for part in parts if part)

    return [label(each) for each in found]


def test_a_start_on_a_cpu() -> None:
    assert labels(start(space())) == [
        "cpu/fp32/16",
        "cpu/fp32/8",
        "cpu/fp32/1",
        "cpu/bf16/16",
        "cpu/fp32/fused/16",
    ]


@pytest.mark.parametrize(
    ("asked", "facts", "trains"),
    [((), {}, set()), (("fp16",), {}, {"fp16"}), ((), {"precision": "fp16"}, {"fp16"})],
)
def test_fp16_trains_on_a_cpu_only_if_it_is_asked_for_or_the_code_has_it(
    asked, facts, trains
) -> None:
    able = cpu(isa=Isa(avx512_fp16=True))
    found = start(space(on=able, request=Request(precisions=asked), **facts))
    assert {each.precision for each in found} - {"fp32"} == trains


def test_weights_of_16_bits_are_trained_as_they_are() -> None:
    found = start(space(on=cpu(isa=OLD), precision="bf16"))
    assert {each.precision for each in found} == {"bf16"}


def test_what_cannot_help_or_work_does_not_start() -> None:
    found = start(space(on=cpu(isa=OLD), impossible={"fused": "Adamax has no fused form"}))
    assert labels(found) == ["cpu/fp32/16", "cpu/fp32/8", "cpu/fp32/1"]
    leader = way("cpu", "fp32", None, 16)
    found = after(leader, space(impossible={"fused": "Adamax has no fused form"}), 32, 0.0)
    assert labels(found) == ["cpu/fp32/compile/16"]


def test_a_mode_that_is_impossible_on_one_device_starts_on_others() -> None:
    both = space(gpus=("cuda:0",), precision="bf16", impossible={"fused on cpu": "no update"})
    assert [x for x in labels(start(both)) if "fused" in x] == ["cuda:0/bf16/fused"]
    assert labels(after(way("cpu", "bf16", None, 16), both, 32, 0.0)) == ["cpu/bf16/compile/16"]


def test_a_gpu_starts_with_every_precision_and_layout_but_no_cuda_graph() -> None:
    found = start(space(gpus=("cuda:0",), request=Request(devices=("cuda",)), convolves=True))
    assert labels(found) == [
        "cuda:0/fp32",
        *(
            f"cuda:0/{each}"
            for each in ("fp32/nhwc", "tf32", "tf32/nhwc", "fp16", "fp16/nhwc", "bf16", "bf16/nhwc")
        ),
        "cuda:0/fp32/fused",
    ]


def test_weights_in_another_precision_are_trained_as_they_are() -> None:
    found = start(space(precision="bf16", gpus=("cuda:0",)))
    assert {each.precision for each in found} == {"bf16"}


def test_a_module_that_needs_a_gpu_has_no_candidate_on_the_cpu() -> None:
    needs = Reason("needs_gpu", "its forward calls .cuda()", None)
    found = start(space(needs_gpu=needs, gpus=("cuda:0",)))
    assert {each.device for each in found} == {"cuda:0"}


def test_modes_join_the_leader_in_one_order() -> None:
    leader = way("cpu", "bf16", "compile", 16)
    found = after(leader, space(convolves=True), 32, 0.0)
    assert labels(found) == ["cpu/bf16/nhwc+compile/16", "cpu/bf16/compile+fused/16"]
    assert after(replace(leader, mode="nhwc+compile+fused"), space(), 32, 0.0) == []
    assert "nhwc" not in "".join(labels(after(leader, space(), 32, 0.0)))  # without convolutions


def test_loaders_follow_the_leader_only_while_it_waits() -> None:
    leader = replace(way("cpu", "fp32", "fused+compile", 8), tuning={"workers": 0})
    waits, idle = (after(leader, space(data="dataset"), 32, w) for w in (0.5, 0.01))
    assert labels(waits) == [f"cpu/fp32/fused+compile/8/workers={n}" for n in (0, 2, 4, 8, 16)]
    assert idle == []
    assert after(leader, space(), 32, 0.5) == []  # no data, no loaders


def test_a_start_with_data_has_no_loader_processes() -> None:
    found = start(space(data="loader", gpus=("cuda:0", "fake:0")))
    tunings = {each.device: dict(each.tuning) for each in found}
    assert tunings == {
        "cpu": {"workers": 0},
        "cuda:0": {"workers": 0, "pin": 0},
        "fake:0": {"workers": 0},
    }


def test_pinning_and_numbers_of_loaders_are_changed_one_at_a_time() -> None:
    leader = replace(way("cuda:0", "bf16", "fused+compile", None), tuning={"workers": 2, "pin": 0})
    found = after(leader, space(data="dataset", gpus=("cuda:0",)), 32, 0.5)
    changed = [dict(each.tuning) for each in found if each.mode == leader.mode]
    assert changed == [
        {"workers": 0, "pin": 0},
        {"workers": 2, "pin": 0},
        {"workers": 4, "pin": 0},
        {"workers": 8, "pin": 0},
        {"workers": 16, "pin": 0},
        {"workers": 2, "pin": 1},
    ]


def test_the_start_is_tried_again_with_loaders_that_lead() -> None:
    leader = replace(way("cpu", "fp32", None, 16), tuning={"workers": 4})
    found = after(leader, space(data="dataset"), 32, 0.0)
    assert labels(found) == [
        "cpu/fp32/compile/16/workers=4",
        "cpu/fp32/fused/16/workers=4",
        "cpu/fp32/16/workers=4",
        "cpu/fp32/8/workers=4",
        "cpu/fp32/1/workers=4",
        "cpu/bf16/16/workers=4",
        "cpu/fp32/fused/16/workers=4",
    ]


def test_numbers_of_loaders_are_powers_of_two_within_cores_and_time() -> None:
    def counts(cores: int, step_s: float = 0.0, device: str = "cpu", **more: Any) -> list[int]:
        return workers(space(on=cpu(effective_cores=cores), step_s=step_s, **more), 32, device)

    assert counts(1) == [0, 1]
    assert counts(2) == [0, 2]
    assert counts(6) == [0, 2, 4]
    assert counts(12) == [0, 2, 4, 8]
    assert counts(192) == [0, 2, 4, 8, 16]
    assert counts(192, step_s=0.4) == [0, 2, 4]
    assert counts(192, step_s=30.0) == [0, 2]
    for_gpu = counts(192, step_s=30.0, device="cuda:0")
    assert for_gpu == [0, 2, 4, 8, 16], "a step on the CPU says nothing about one on a GPU"
    alone = Request(devices=("gpu",))
    assert counts(192, step_s=30.0, device="cuda:0", request=alone) == [0, 2], "it ran there"


def test_a_timed_step_holds_a_whole_round_of_every_number_of_loaders() -> None:
    for cores in range(1, 40):
        one = space(on=cpu(effective_cores=cores), data="dataset")
        steps, counts = (each(one, 32, "cpu") for each in (steps_per_sample, workers))
        assert all(steps % count == 0 for count in counts if count)
    assert steps_per_sample(space(), 32, "cpu") == 1
