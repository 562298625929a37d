"""The lab with a scripted worker: the row that it opens."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab_bench import STATIC, Bench, failure, label, labels, variant
from lab_builders import answer

from workbench.engine import model_lab as labs
from workbench.engine.model_variants import LATE, NOT_USABLE
from workbench.planning.usage import UsageError
from workbench.records import events as ev

CUDA = {"providers": {"cuda": "CUDAExecutionProvider"}}


def static_alone(request: dict[str, Any]) -> Any:
    """The answer of a worker that can build no dynamic variant."""
    dynamic = request["recipe"]["method"] == "dynamic"
    return failure("bad_model", "no kernel for it") if dynamic else variant(request["recipe"])


def test_the_row_has_the_model_and_its_variants() -> None:
    bench = Bench()
    assert labels(bench.open_row()) == {"fp32/t4", "fp32/t1"}
    assert labels(bench.open()) == {
        "fp32/t4",
        "fp32/t1",
        f"{STATIC}/t4",
        f"{STATIC}-channel/t4",
        f"{STATIC}-products-channel/t4",
        "int8-dynamic/t4",
        "int8-dynamic-products/t4",
    }
    row, scenario = bench.row, bench.row.scenario
    assert (scenario.id, scenario.title, scenario.batch) == ("model", "net.onnx", 1)
    assert (scenario.objective, scenario.max_error) == ("latency", 0.02)
    assert scenario.precisions == ("fp32", "fp16", "int8")
    assert row.source is bench.search and row.refused is None
    inspected = next(e.facts for e in bench.events if isinstance(e, ev.ModelInspected))
    assert (inspected.multiply_adds, inspected.weights_bytes) == (500, 400)
    assert {built.recipe for built in bench.built()} == set(bench.child.recipes())
    assert "int8-static-s8s8" in bench.left_out


def test_the_row_keeps_the_prices_as_they_were_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text("[per_hour]\ncpu = 0.10\n")
    bench = Bench(price_file=str(file))
    file.write_text("half a li")
    bench.open_row()
    assert bench.row.prices == {"cpu": 0.1}
    bench.child.answers["inspect"] = failure("worker_died")
    bench.open_row()
    assert bench.row.prices == {"cpu": 0.1}


def test_the_worker_gets_files_and_options() -> None:
    inputs = {"inputs": "data.npz", "shapes": ("x=1,4",)}
    bench = Bench.opened(question=inputs, batch=(3,), seed=7)
    inspect = bench.child.asked[0]
    assert Path(inspect["model"]).is_absolute() and inspect["model"].endswith("some/net.onnx")
    assert Path(inspect["inputs"]).is_absolute()
    assert (inspect["shapes"], inspect["batch"], inspect["seed"]) == ({"x": [1, 4]}, 3, 7)
    assert all(request["folder"] == "scratch" for request in bench.child.asked)
    assert max(bench.child.deadlines) <= 0.4 * 30
    assert inspect["seconds"] == bench.child.deadlines[0] == 0.4 * 30


def test_each_case_runs_the_file_of_its_variant() -> None:
    bench = Bench(question={"min_agreement": 0.9})
    for case in bench.open():
        files = bench.search.files(case)
        assert (files["folder"], files["metric"]) == ("scratch", "disagreement")
        if case.quantization is None:
            assert files["model"].endswith("some/net.onnx")
        else:
            assert files["model"] == f"int8-{case.quantization}.onnx"


def test_a_variant_that_cannot_be_built_does_not_race() -> None:
    bench = Bench({"build": static_alone})
    assert not any("dynamic" in label(case) for case in bench.open())
    reasons = {b.recipe: b.reason.message for b in bench.built() if b.reason}
    dynamic = ("int8-dynamic", "int8-dynamic-products")
    assert reasons == dict.fromkeys(dynamic, "no kernel for it")
    assert labels(bench.cases) >= {"fp32/t4", f"{STATIC}/t4"}


def test_without_any_variant_the_model_races_alone() -> None:
    bench = Bench({"build": failure("worker_died", "it died")})
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert len(bench.child.recipes()) == len(set(bench.child.recipes()))  # none is tried again


@pytest.mark.parametrize(
    ("message", "hint", "said"),
    [
        ("it is no model", "export it again", "some/net.onnx: it is no model (export it again)"),
        ("it is no model", None, "some/net.onnx: it is no model"),
        ("/a/net.onnx does not exist", None, "/a/net.onnx does not exist"),
    ],
)
@pytest.mark.parametrize("code", NOT_USABLE)
def test_a_model_that_cannot_be_used_is_refused_in_one_line(code, message, hint, said) -> None:
    bench = Bench({"inspect": failure(code, message, hint)})
    with pytest.raises(UsageError) as refused:
        bench.open()
    assert str(refused.value) == said
    assert bench.events == []


@pytest.mark.parametrize("code", ["worker_died", "timeout", "internal_error"])
def test_a_worker_that_dies_of_the_model_refuses_the_row(code: str) -> None:
    bench = Bench({"inspect": failure(code, "killed by SIGKILL")})
    (case,) = bench.open_row()
    assert label(case) == "fp32/t4"
    assert bench.row.refused.code == code
    assert bench.row.refused.hint == (labs.SLOW if code == "timeout" else "mend it")


def test_a_preparation_that_fails_costs_the_variants_only() -> None:
    bench = Bench({"prepare": failure("timeout", "no answer within 8 s")})
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert "no answer within 8 s - mend it" in bench.left_out["int8"]
    facts = bench.search.space.facts
    assert facts.steps[-1].reason is not None
    assert bench.child.recipes() == []


def test_after_a_failed_preparation_no_build_is_tried() -> None:
    answers = {
        "inspect": answer("branching"),
        "providers": {"cuda": "cuda", "tensorrt": "tensorrt"},
    }
    answers["prepare"] = failure("timeout", "no answer within 8 s")
    bench = Bench(answers, gpus=["cuda:0"])
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1", "fp32", "fp32/tf32"}
    assert bench.child.recipes() == []
    why = "it could not be prepared: no answer within 8 s - mend it"
    assert bench.left_out == {"int8": why, "fp16": why}


def test_a_spent_budget_leaves_variants_out_with_the_reason() -> None:
    bench = Bench(budget_s=10.0)
    bench.open_row()
    assert len(bench.join([], left_s=5.0)) == 1  # one at a time
    assert bench.join([], left_s=1.0) == []
    assert bench.search.gap().endswith(" and 1 more")
    late = {name for name, why in bench.left_out.items() if why == LATE}
    assert len(late) == 4
    assert not labels(bench.cases) & {f"{name}/t4" for name in late}


@pytest.mark.parametrize(
    ("error", "thorough", "is_built"),
    [(0.05, False, False), (0.05, True, True), (0.03, False, True)],
)
def test_scales_per_tensor_are_not_built_where_those_per_channel_are_far_above_the_limit(
    error: float, thorough: bool, is_built: bool
) -> None:
    bench = Bench(thorough=thorough)
    bench.open_row()
    while f"{STATIC}-products-channel/t4" not in labels(bench.cases):
        measured = bench.measured(
            lambda _: 1e-3, errors=lambda case: error * (case.quantization is not None)
        )
        assert bench.join(measured, left_s=200.0)
    assert (f"{STATIC}/t4" in labels(bench.cases)) == is_built
    assert (STATIC not in bench.left_out) == is_built


def test_a_variant_that_was_built_is_not_left_out() -> None:
    bench = Bench({"build": static_alone}, thorough=True)
    bench.open_row()
    while not any(case.threads == 2 for case in bench.cases if case.quantization):
        assert bench.join([], left_s=200.0)
    assert bench.search.gap() == ""  # other threads and options of most still wait
    assert LATE not in bench.left_out.values()


def test_a_variant_that_was_built_at_a_second_try_is_not_left_out() -> None:
    bench = Bench(thorough=True)

    def build(request: dict[str, Any]):
        if len(bench.child.recipes()) != 2:
            return variant(request["recipe"])
        bench.clock.at_s += 150.0
        return failure("bad_model", "no kernel")

    bench.child.answers["build"] = build
    bench.open_row()
    while LATE not in bench.left_out.values():
        assert bench.join([], left_s=200.0)
    while bench.join([], left_s=200.0):
        pass
    assert f"{STATIC}-products/t2" in labels(bench.cases)
    assert LATE not in bench.left_out.values()


def test_after_a_build_that_took_too_long_no_other_starts() -> None:
    bench = Bench({"build": failure("timeout", "no answer within 10 s")})
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert len(bench.child.recipes()) == 1
    assert list(bench.left_out.values()).count(LATE) == 4


def test_filters_that_leave_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="no variant"):
        Bench(precisions=("fp64",)).open()


def test_only_a_requested_precision_is_built() -> None:
    bench = Bench(precisions=("fp32",))
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert bench.child.recipes() == []


def test_a_gpu_needs_an_onnxruntime_that_can_use_it() -> None:
    without = Bench(gpus=["cuda:0"])
    without.open()
    assert "pip install 'onnxruntime-gpu[cuda,cudnn]>=1.28'" in without.left_out["cuda:0"]
    with_it = Bench(CUDA, gpus=["cuda:0"])
    on_gpu = [case for case in with_it.open() if case.device == "cuda:0"]
    assert {case.precision for case in on_gpu} == {"fp32", "fp16"}
    assert {with_it.lab.provider(case) for case in on_gpu} == {"CUDAExecutionProvider"}


def test_a_gpu_that_onnx_runtime_cannot_use_is_not_raced_as_another() -> None:
    devices = ("cpu", "cuda:0", "xpu:0")
    for answers, gpus in ((CUDA, {"cuda:0"}), ({}, set())):
        bench = Bench(answers, gpus=["cuda:0", "xpu:0"], devices=devices)
        assert {case.device for case in bench.open()} == {"cpu", *gpus}
        assert bench.left_out["xpu:0"] == "the lab runs models on NVIDIA GPUs only"


def test_providers_that_cannot_be_listed_are_left_out() -> None:
    bench = Bench.opened({"providers": failure("worker_died", "it died")})
    assert bench.left_out["other providers"] == "it died"


def test_energy_is_an_objective_where_it_can_be_measured(monkeypatch) -> None:
    monkeypatch.setattr(labs, "package_energy_j", lambda: (None, "only root may read it"))
    bench = Bench(question={"objective": "energy"})
    with pytest.raises(UsageError, match="only root may read it"):
        bench.open()
    assert bench.child.asked == []
    monkeypatch.setattr(labs, "package_energy_j", lambda: (1.0, ""))
    assert {case.device for case in Bench(question={"objective": "energy"}).open()} == {"cpu"}


@pytest.mark.parametrize("objective", ["energy", "memory"])
def test_no_gpu_races_for_what_is_compared_on_the_cpu_only(objective: str, monkeypatch) -> None:
    monkeypatch.setattr(labs, "package_energy_j", lambda: (1.0, ""))
    bench = Bench(CUDA, {"objective": objective}, ["cuda:0"])
    assert {case.device for case in bench.open()} == {"cpu"}
    assert bench.left_out["cuda:0"] == f"only the {objective} of candidates on the CPU is compared"


@pytest.mark.parametrize(
    ("mode", "keeps"), [(None, False), ("no-spin", False), ("bf16", True), ("tf32", True)]
)
def test_the_model_as_given_keeps_the_limit_only_where_it_is_rounded(mode, keeps) -> None:
    bench = Bench()
    bench.open_row()
    files = bench.lab.variants.files(replace(bench.cases[0], mode=mode))
    assert ("limit" in files) is keeps


def test_a_quick_run_that_a_slow_gpu_lengthened_has_its_reserved_time_to_save() -> None:
    bench = Bench({"save": {"size_bytes": 300, "difference": 0.0}}, quick=True)
    bench.open_row()
    bench.child.longest_gpu_start_s = 12.0
    bench.clock.at_s = bench.lab.context.end_s - bench.lab.reserved_s
    assert bench.clock.at_s > bench.lab.context.request.budget
    bench.lab.variants.save(bench.cases[0], Path("best.onnx"))
    assert bench.child.deadlines[-1] >= bench.lab.reserved_s
