"""The candidates of a training: which start, which follow the leader, and why others do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import machines
import msgspec

from workbench.advisor.own.candidates import Proposal
from workbench.advisor.own.training import (
    TrainingSpace,
    after,
    batches,
    candidates,
    workers,
)
from workbench.planning.request import Request
from workbench.records.code import CodeFacts
from workbench.records.machine import Cpu, Isa
from workbench.records.reason import Reason

OLD = Isa(avx2=True, avx512_bf16=False, amx_bf16=False)


def facts(**changes: Any) -> CodeFacts:
    given = CodeFacts(kind="torch", name="net:build", code_sha256="", inputs_sha256="")
    return msgspec.structs.replace(given, **changes)


def cpu(**changes: Any) -> Cpu:
    return msgspec.structs.replace(machines.epyc(), **changes)


def space(**changes: Any) -> TrainingSpace:
    usual: dict[str, Any] = {
        "facts": facts(),
        "cpu": cpu(),
        "threads": (16, 8, 1),
        "gpus": (),
        "request": changes.pop("request", Request()),
        "compilers": ("cpu", "gpu"),
    }
    return TrainingSpace(**{**usual, **changes})


def labels(found: list[Proposal]) -> list[str]:
    def label(each: Proposal) -> str:
        settings = ",".join(f"{name}={value}" for name, value in each.tuning.items())
        parts = (each.device, each.precision, each.mode, each.threads, settings)
        return "/".join(str(part) for part in parts if part)

    return [label(each) for each in found]


def test_a_start_on_a_cpu_with_bf16() -> None:
    found, left_out = candidates(space())
    assert labels(found) == [
        "cpu/fp32/16",
        "cpu/fp32/8",
        "cpu/fp32/1",
        "cpu/bf16/16",
        "cpu/fp32/fused/16",
        "cpu/fp32/compile/16",
    ]
    assert left_out == {}


def test_what_cannot_help_or_work_is_left_out_with_its_reason() -> None:
    found, left_out = candidates(
        space(cpu=cpu(isa=OLD), compilers=(), impossible={"fused": "Adamax has no fused form"})
    )
    assert labels(found) == ["cpu/fp32/16", "cpu/fp32/8", "cpu/fp32/1"]
    assert left_out == {
        "fused": "Adamax has no fused form",
        "cpu/bf16": "this CPU has no AVX512-BF16 or AMX, so BF16 would be emulated",
        "cpu/compile": "torch.compile finds no compiler for the CPU",
        "gpu/compile": "torch.compile finds no compiler for the GPU",
    }


def test_an_unknown_extension_counts_as_missing() -> None:
    found, left_out = candidates(space(cpu=cpu(isa=Isa())))
    assert "cpu/bf16/16" not in labels(found)
    assert "no known BF16 extension" in left_out["cpu/bf16"]


def test_a_gpu_starts_with_every_precision_and_compiling_comes_last() -> None:
    found, _ = candidates(
        space(gpus=("cuda:0",), request=Request(devices=("cuda",)), facts=facts(convolves=True))
    )
    assert labels(found) == [
        "cuda:0/fp32",
        "cuda:0/tf32",
        "cuda:0/bf16",
        "cuda:0/fp16",
        "cuda:0/bf16/fused",
        "cuda:0/bf16/nhwc",
        "cuda:0/bf16/compile",
    ]
    both, _ = candidates(space(gpus=("cuda:0",)))
    assert labels(both)[-2:] == ["cpu/fp32/compile/16", "cuda:0/bf16/compile"]


def test_layouts_race_only_where_there_are_convolutions() -> None:
    assert not any("nhwc" in label for label in labels(candidates(space())[0]))
    found, _ = candidates(space(facts=facts(convolves=True)))
    assert "cpu/fp32/nhwc/16" in labels(found)


def test_weights_in_another_precision_are_trained_as_they_are() -> None:
    found, _ = candidates(space(facts=facts(precision="bf16"), gpus=("cuda:0",)))
    assert {each.precision for each in found} == {"bf16"}


def test_a_module_that_needs_a_gpu_has_no_candidate_on_the_cpu() -> None:
    needs = facts(needs_gpu=Reason("needs_gpu", "its forward calls .cuda()", None))
    found, _ = candidates(space(facts=needs, gpus=("cuda:0",)))
    assert {each.device for each in found} == {"cuda:0"}


def test_modes_join_the_leader_in_one_order() -> None:
    leader = Proposal("cpu", "bf16", "compile", 16)
    found = after(leader, space(facts=facts(convolves=True)))
    assert labels(found) == ["cpu/bf16/compile+fused/16", "cpu/bf16/nhwc+compile/16"]
    assert after(replace(leader, mode="nhwc+compile+fused"), space()) == []


def test_loaders_follow_the_leader_only_while_it_waits() -> None:
    leader = Proposal("cpu", "fp32", "fused", 8, {"workers": 0})
    waits, idle = (after(leader, space(loader=True, compilers=()), w) for w in (0.5, 0.01))
    assert labels(waits) == [f"cpu/fp32/fused/8/workers={n}" for n in (2, 4, 16)]
    assert idle == []
    assert after(leader, space(compilers=())) == []  # no data, no loaders


def test_a_start_with_data_has_no_loader_processes() -> None:
    found, _ = candidates(space(loader=True, gpus=("cuda:0", "fake:0")))
    tunings = {each.device: dict(each.tuning) for each in found}
    assert tunings == {
        "cpu": {"workers": 0},
        "cuda:0": {"workers": 0, "pin": 0},
        "fake:0": {"workers": 0},
    }


def test_pinning_and_numbers_of_loaders_are_changed_one_at_a_time() -> None:
    leader = Proposal("cuda:0", "bf16", "fused", None, {"workers": 0, "pin": 0})
    found = after(leader, space(loader=True, gpus=("cuda:0",), compilers=()))
    assert [dict(each.tuning) for each in found] == [
        {"workers": 2, "pin": 0},
        {"workers": 4, "pin": 0},
        {"workers": 16, "pin": 0},
        {"workers": 0, "pin": 1},
    ]


def test_the_start_is_tried_again_with_loaders_that_lead() -> None:
    leader = Proposal("cpu", "fp32", None, 16, {"workers": 4})
    found = after(leader, space(loader=True, compilers=("cpu",)), waiting=0.0)
    assert labels(found) == [
        "cpu/fp32/fused/16/workers=4",
        "cpu/fp32/8/workers=4",
        "cpu/fp32/1/workers=4",
        "cpu/bf16/16/workers=4",
        "cpu/fp32/compile/16/workers=4",
    ]


def test_numbers_of_loaders_are_powers_of_two_within_cores_and_time() -> None:
    def counts(cores: int, step_s: float = 0.0) -> list[int]:
        return workers(space(cpu=cpu(effective_cores=cores), step_s=step_s, loader=True))

    assert counts(1) == [0, 1]
    assert counts(2) == [0, 2]
    assert counts(6) == [0, 2, 4]
    assert counts(12) == [0, 2, 4, 8]
    assert counts(192) == [0, 2, 4, 16]
    assert counts(192, step_s=0.4) == [0, 2, 4]
    assert counts(192, step_s=30.0) == [0, 2]


def test_a_timed_step_holds_a_whole_round_of_every_number_of_loaders() -> None:
    for cores in range(1, 40):
        one = space(cpu=cpu(effective_cores=cores), loader=True)
        assert all(batches(one) % count == 0 for count in workers(one) if count)
    assert batches(space()) == 1


def test_the_filters_of_the_request_hold() -> None:
    request = Request(precisions=("bf16",))
    assert labels(candidates(space(request=request))[0]) == ["cpu/bf16/16"]
