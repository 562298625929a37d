"""The ways to call a module that race: what the facts, the machine and the filters leave."""

from dataclasses import replace
from functools import partial
from typing import Any

import machines
import msgspec
import pytest
from hypothesis import given, strategies as st

from workbench.advisor.own.candidates import (
    COMPILE,
    GRAPH,
    REDUCE,
    UNKNOWN,
    CodeSpace,
    as_written,
    command_cases,
    compile_s,
    compiled,
    function_cases,
    quick_changes,
    way,
)
from workbench.contract import Case
from workbench.planning.questions import OwnQuestion
from workbench.planning.request import Request
from workbench.records.code import CodeFacts
from workbench.records.machine import Isa
from workbench.records.reason import Reason
from workbench.worker.code import command_words

GPU = "cuda:0"


def space(
    *, isa: Isa | None = None, gpus: tuple[str, ...] = (), request: Any = None, **facts: Any
) -> CodeSpace:
    found = CodeFacts(kind="torch", name="net:build", code_sha256="", inputs_sha256="", **facts)
    cpu = msgspec.structs.replace(machines.epyc(), isa=isa or Isa())
    return CodeSpace(found, cpu, (4, 2, 1), gpus, request or Request())


def labels(found: list[Case]) -> list[str]:
    return [
        "/".join(str(part) for part in (p.device, p.precision, p.mode, p.threads) if part)
        for p in found
    ]


def test_the_code_as_written_runs_with_each_number_of_threads_and_on_each_gpu() -> None:
    found = as_written(space(gpus=(GPU, "cuda:1")))
    assert labels(found) == ["cpu/fp32/4", "cpu/fp32/2", "cpu/fp32/1", "cuda:0/fp32", "cuda:1/fp32"]
    assert labels(as_written(space(precision="bf16"))) == ["cpu/bf16/4", "cpu/bf16/2", "cpu/bf16/1"]


def test_the_number_of_threads_that_the_code_sets_comes_first() -> None:
    assert [each.threads for each in as_written(space(threads=1))] == [1, 4, 2]
    assert [each.threads for each in as_written(space(threads=3))] == [3, 4, 2, 1]
    asked = Request(threads=(4, 2, 1))
    assert [each.threads for each in as_written(space(threads=3, request=asked))] == [4, 2, 1]


def test_code_that_sets_no_threads_has_one_per_core_as_torch_starts() -> None:
    found = space()
    cpu = msgspec.structs.replace(found.cpu, usable_physical_cores=2, effective_cores=4)
    assert [each.threads for each in as_written(replace(found, cpu=cpu))] == [2, 4, 1]


def test_an_exported_module_keeps_its_precision_except_in_openvino() -> None:
    double = space(precision="fp64")
    found = [double.exported_precision(name) for name in ("onnxruntime", "openvino")]
    assert found == ["fp64", "fp32"]


@pytest.mark.parametrize(
    ("isa", "precisions"),
    [
        (Isa(avx2=True, avx512f=True), set()),
        (Isa(avx512_bf16=True), {"bf16"}),
        (Isa(avx512_fp16=True), {"fp16"}),
        (Isa(amx_bf16=True, avx512_fp16=True), {"bf16", "fp16"}),
    ],
)
def test_a_reduced_precision_needs_native_support_on_the_cpu(isa: Isa, precisions: set) -> None:
    found = quick_changes(space(isa=isa))
    assert {each.precision for each in found} == precisions
    assert quick_changes(space(isa=isa, precision="fp64")) == []


@pytest.mark.parametrize(
    ("isa", "found"), [(Isa(avx2=True), ["cpu/fp32/4"]), (Isa(amx_bf16=True), [])]
)
def test_weights_of_16_bits_race_in_fp32_where_the_cpu_lacks_instructions(isa: Isa, found) -> None:
    assert labels(quick_changes(space(isa=isa, precision="bf16"))) == found


def test_convolutions_race_in_both_layouts() -> None:
    reduced = Isa(avx512_bf16=True)
    assert labels(quick_changes(space(isa=reduced, convolves=True))) == [
        "cpu/fp32/nhwc/4",
        "cpu/bf16/4",
        "cpu/bf16/nhwc/4",
    ]
    assert labels(quick_changes(space(isa=reduced))) == ["cpu/bf16/4"]


def test_a_gpu_races_every_precision_and_its_cuda_graph() -> None:
    found = quick_changes(space(gpus=(GPU,), request=Request(devices=("gpu",))))
    plain = {"cuda:0/tf32", "cuda:0/fp16", "cuda:0/bf16"}  # fp32 starts
    graphs = {f"cuda:0/{precision}/graph" for precision in ("fp32", "tf32", "fp16", "bf16")}
    assert sorted(labels(found)) == sorted(plain | graphs)
    assert [each.mode for each in found] == [None] * 3 + [GRAPH] * 4, "those take a worker each"


@pytest.mark.parametrize("facts", [{"stateful": True}, {"mutated": ["0"]}])
def test_no_cuda_graph_replays_a_call_that_changes_something(facts: dict[str, Any]) -> None:
    found = quick_changes(space(gpus=(GPU,), **facts))
    assert found and GRAPH not in {each.mode for each in found}


def test_a_simulated_gpu_has_no_cuda_graph() -> None:
    found = quick_changes(space(gpus=("fake:0",)))
    assert found and GRAPH not in {each.mode for each in found}


def test_a_module_that_needs_a_gpu_has_no_candidate_on_the_cpu() -> None:
    needs = Reason("needs_gpu", "its forward calls .cuda()")
    one = space(isa=Isa(avx512_bf16=True), gpus=(GPU,), needs_gpu=needs)
    assert {each.device for each in as_written(one) + quick_changes(one)} == {GPU}


def test_the_best_of_each_device_is_compiled() -> None:
    best = [way("cpu", "bf16", None, 2), way(GPU, "tf32")]
    found = compiled(space(gpus=(GPU,)), best)
    assert labels(found) == [
        f"cpu/bf16/{COMPILE}/2",
        f"cuda:0/tf32/{COMPILE}",
        f"cuda:0/tf32/{REDUCE}",
    ]


@pytest.mark.parametrize(
    ("request_", "admitted"),
    [
        (Request(), [True, True, True]),
        (Request(precisions=("fp32",)), [True, False, True]),
        (Request(modes=("plain",)), [True, True, False]),
        (Request(modes=("nhwc",)), [False, False, True]),
        (Request(backends=("onnxruntime",)), [False, True, False]),
    ],
)
def test_filters_leave_candidates_out(request_: Request, admitted: list[bool]) -> None:
    cases = [
        way("cpu", "fp32"),
        replace(way("cpu", "int8"), backend="onnxruntime"),
        way("cpu", "fp32", "nhwc"),
    ]
    one = space(request=request_)
    assert [one.request.admits(each) for each in cases] == admitted


def test_filters_hold_for_every_source() -> None:
    one = space(isa=Isa(avx512_bf16=True), convolves=True, request=Request(modes=("nhwc",)))
    assert as_written(one) == []
    assert labels(quick_changes(one)) == ["cpu/fp32/nhwc/4", "cpu/bf16/nhwc/4"]
    assert compiled(one, [way("cpu", "fp32", threads=4)]) == []


def test_compiling_takes_longer_with_operations_convolutions_gradients_and_without_a_cache() -> (
    None
):
    warm = partial(compile_s, cold=False)
    assert warm(0, 0) < warm(100, 0) < warm(1000, 0)
    assert warm(100, 0) < warm(100, 50)
    assert warm(100, 0) < compile_s(100, 0, cold=True)
    assert 2 * warm(100, 0) < warm(100, 0, trains=True)
    assert warm(*UNKNOWN) > warm(100, 10)  # not a small one
    assert warm(100, 0, import_s=0.5) == warm(100, 0) < warm(100, 0, import_s=2.0)


WORK = CodeFacts("function", "mod:work", "", "", precision="", batch=1)
FUNCTION = OwnQuestion("function", "pkg/mod.py:work")
TRAIN = "python train.py --device {device} --workers {workers}"


def _function(
    facts: CodeFacts = WORK, request: Request | None = None, size: int | None = None
) -> list[str]:
    one = CodeSpace(facts, machines.epyc(), (8, 4, 1), (GPU,), request or Request())
    scenario = msgspec.structs.replace(FUNCTION.scenario(), batch=size)
    return [case.id for case in function_cases(one, scenario)]


def _command(*over: str, command: str = TRAIN, request: Request | None = None):
    return command_cases(space(request=request), OwnQuestion("command", command, over=over))


def test_a_function_runs_with_each_number_of_threads() -> None:
    name = "own[batch=1,code=mod.py:work]"
    assert _function(size=1) == [f"{name}/cpu/python/t{threads}" for threads in (8, 4, 1)]


def test_a_function_that_takes_a_device_runs_on_gpus() -> None:
    facts = CodeFacts("function", "mod:work", "", "", takes_device=True)
    assert _function(facts)[-1] == "own[code=mod.py:work]/cuda:0/python"
    assert len(_function(facts, Request(devices=("gpu",)))) == 1


def test_a_function_that_fails_without_a_gpu_runs_on_gpus_alone() -> None:
    needs = msgspec.structs.replace(WORK, needs_gpu=Reason("needs_gpu", "No CUDA GPUs"))
    assert _function(needs, size=1) == ["own[batch=1,code=mod.py:work]/cuda:0/python"]


def test_a_size_is_that_of_the_row() -> None:
    assert "batch=64" in _function(size=64)[0]


def test_a_command_runs_with_every_combination() -> None:
    found = _command("device=cpu,cuda", "workers=0,2")
    assert [case.id for case in found] == [
        "own[]/cpu/command/device=cpu,workers=0",
        "own[]/cpu/command/device=cpu,workers=2",
        "own[]/cuda:0/command/device=cuda,workers=0",
        "own[]/cuda:0/command/device=cuda,workers=2",
    ]
    assert found[0].tuning == {"device": "cpu", "workers": "0"}
    assert {case.threads for case in found} == {None}
    only = _command("device=cpu,cuda", "workers=0", request=Request(devices=("gpu",)))
    assert [case.device for case in only] == ["cuda:0"]


def test_doubled_braces_are_no_placeholder() -> None:
    command = "awk '{{print}}' {file}"
    (found,) = _command("file=log", command=command)
    assert command_words(command, found.tuning) == ["awk", "{print}", "log"]


def test_a_placeholder_may_stand_in_braces_of_its_own_and_values_keep_theirs() -> None:
    (found,) = _command("n={{x}}", command="""train --cfg '{"n":{n}, "k": {{2}}}'""")
    words = command_words("""train --cfg '{"n":{n}, "k": {{2}}}'""", found.tuning)
    assert words == ["train", "--cfg", '{"n":{{x}}, "k": {{2}}}']


def test_a_command_without_placeholders_is_one_case() -> None:
    assert [case.label for case in _command(command="make bench")] == ["cpu/command"]


@pytest.mark.parametrize(
    ("value", "device"),
    [
        *[("cpu", "cpu"), ("gpu", "cuda:0"), ("cuda", "cuda:0"), ("cuda:3", "cuda:3")],
        *[
            ("npu", "cpu"),
            ("tpu", "tpu:0"),
            ("1", "cuda:1"),
            ("xpu", "xpu:0"),
            ("mps", "mps:0"),
            ("fake:0", "cpu"),
        ],
        ("-1", "cpu"),  # CUDA_VISIBLE_DEVICES={device}, without any
    ],
)
def test_the_axis_called_device_decides_the_device(value: str, device: str) -> None:
    (found,) = _command(f"device={value}", command="run {device}")
    assert (found.device, found.tuning) == (device, {"device": value})


@given(st.lists(st.text("ab=,/0.5 {}", max_size=9), max_size=3), st.text("ab {}'", max_size=9))
def test_any_text_gives_distinct_cases_or_one_sentence(over: list[str], command: str) -> None:
    question = OwnQuestion("command", command, over=tuple(over))
    try:
        found = command_cases(space(), question)
    except ValueError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert 1 <= len(found) == len({case.id for case in found}) <= 64
