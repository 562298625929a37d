"""The lab beside a child that answers as told: what opens the row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab_bench import STATIC, Bench, failure, form, label, labels

from workbench.engine import model_lab as labs
from workbench.engine.model_child import NOT_USABLE, Refused
from workbench.planning.usage import UsageError
from workbench.records import events as ev
from workbench.records.model import Advice

# ------------------------------------------------------------------ the row


def test_the_row_holds_the_model_and_its_forms() -> None:
    bench = Bench()
    row = bench.lab.open()
    assert labels(row.cases) == {"fp32/t4", "fp32/t1"}
    assert labels(bench.open()) == {
        "fp32/t4",
        "fp32/t1",
        f"{STATIC}/t4",
        f"{STATIC}-channel/t4",
        f"{STATIC}-products-channel/t4",
        "int8-dynamic/t4",
        "int8-dynamic-products/t4",
    }
    scenario = row.scenario
    assert (scenario.id, scenario.title, scenario.batch) == ("model", "net.onnx", 1)
    assert (scenario.objective, scenario.max_error) == ("latency", 0.02)
    assert scenario.precisions == ("fp32", "fp16", "int8")
    assert row.source is bench.lab
    inspected = next(e.facts for e in bench.told if isinstance(e, ev.ModelInspected))
    assert (inspected.multiply_adds, inspected.weights_bytes) == (500, 400)
    assert {built.recipe for built in bench.built()} == set(bench.child.recipes())
    assert "int8-static-s8s8" in bench.lab.left_out


def test_the_row_keeps_the_prices_as_they_were_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text("[per_hour]\ncpu = 0.10\n")
    bench = Bench(price_file=str(file))
    file.write_text("half a li")
    assert bench.lab.open().prices == {"cpu": 0.1}
    assert bench.lab.refused().prices == {"cpu": 0.1}


def test_the_child_is_told_where_files_are_and_what_was_asked() -> None:
    inputs = {"inputs": "data.npz", "shapes": ("x=1,4",)}
    bench = Bench(question=inputs, batch=(3,), seed=7)
    bench.open()
    inspect = bench.child.asked[0]
    assert Path(inspect["model"]).is_absolute() and inspect["model"].endswith("some/net.onnx")
    assert Path(inspect["inputs"]).is_absolute()
    assert (inspect["shapes"], inspect["batch"], inspect["seed"]) == ({"x": [1, 4]}, 3, 7)
    assert all(request["folder"] == "scratch" for request in bench.child.asked)
    assert max(bench.child.deadlines) <= 0.4 * 30


def test_each_case_runs_the_file_of_its_form() -> None:
    bench = Bench(question={"min_agreement": 0.9})
    for case in bench.open():
        files = bench.lab.files(case)
        assert (files["folder"], files["metric"]) == ("scratch", "disagreement")
        if case.quantization is None:
            assert files["model"].endswith("some/net.onnx")
        else:
            assert files["model"] == f"int8-{case.quantization}.onnx"


def test_a_form_that_cannot_be_built_is_told_and_does_not_race() -> None:
    def build(request: dict[str, Any]):
        dynamic = request["recipe"]["method"] == "dynamic"
        return failure("bad_model", "no kernel for it") if dynamic else form(request["recipe"])

    bench = Bench({"build": build})
    assert not any("dynamic" in label(case) for case in bench.open())
    reasons = {b.recipe: b.reason.message for b in bench.built() if b.reason}
    assert reasons == {
        "int8-dynamic": "no kernel for it",
        "int8-dynamic-products": "no kernel for it",
    }
    assert labels(bench.cases) >= {"fp32/t4", f"{STATIC}/t4"}


def test_without_any_form_the_model_races_alone() -> None:
    bench = Bench({"build": failure("worker_died", "it died")})
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert len(bench.child.recipes()) == len(set(bench.child.recipes()))  # none is tried again


@pytest.mark.parametrize("code", [*NOT_USABLE, "missing_package", "no_memory"])
def test_a_model_that_cannot_be_used_is_refused_in_one_line(code: str) -> None:
    bench = Bench({"inspect": failure(code, "it is no ONNX model", "export it again")})
    with pytest.raises(UsageError) as refused:
        bench.open()
    assert str(refused.value) == "some/net.onnx: it is no ONNX model (export it again)"
    assert bench.told == []


def test_without_a_hint_there_are_no_parentheses() -> None:
    with pytest.raises(UsageError, match=r"^some/net\.onnx: it is no ONNX model$"):
        Bench({"inspect": failure("bad_model", "it is no ONNX model", None)}).open()


def test_a_message_that_names_the_file_stands_for_itself() -> None:
    with pytest.raises(UsageError, match=r"^/a/net\.onnx does not exist$"):
        Bench({"inspect": failure("bad_model", "/a/net.onnx does not exist", None)}).open()


@pytest.mark.parametrize("code", ["worker_died", "timeout", "internal_error"])
def test_a_child_that_dies_of_it_is_an_outcome(code: str) -> None:
    bench = Bench({"inspect": failure(code, "killed by SIGKILL")})
    with pytest.raises(Refused) as refused:
        bench.open()
    assert refused.value.reason.code == code
    (case,) = bench.lab.refused().cases
    assert label(case) == "fp32/t4"


def test_a_preparation_that_fails_costs_the_forms_only() -> None:
    bench = Bench({"prepare": failure("timeout", "no answer within 8 s")})
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert "no answer within 8 s" in bench.lab.left_out["int8"]
    facts = bench.lab.facts
    assert facts is not None and facts.forms[-1].reason is not None
    assert bench.child.recipes() == []


def test_a_spent_budget_leaves_forms_out_with_the_reason() -> None:
    bench = Bench(budget_s=10.0)
    bench.cases = list(bench.lab.open().cases)
    assert len(bench.join([], left_s=5.0)) == 1  # one at a time
    assert bench.join([], left_s=1.0) == []
    bench.lab.advise(Advice([], "", None))
    late = {name for name, why in bench.lab.left_out.items() if why == labs.NO_TIME}
    assert len(late) == 4
    assert not labels(bench.cases) & {f"{name}/t4" for name in late}


def test_a_form_that_was_built_is_not_told_as_left_out() -> None:
    def build(request: dict[str, Any]):
        dynamic = request["recipe"]["method"] == "dynamic"
        return failure("bad_model", "no kernel") if dynamic else form(request["recipe"])

    bench = Bench({"build": build}, thorough=True)
    bench.cases = list(bench.lab.open().cases)
    while not any(case.threads == 2 for case in bench.cases if case.quantization):
        assert bench.join([], left_s=200.0)
    bench.lab.advise(Advice([], "", None))  # other threads and options of most still wait
    assert labs.NO_TIME not in bench.lab.left_out.values()


def test_a_form_that_was_built_at_a_second_try_is_not_left_out() -> None:
    bench = Bench(thorough=True)

    def build(request: dict[str, Any]):
        if len(bench.child.recipes()) != 2:
            return form(request["recipe"])
        bench.clock.at_s += 150.0
        return failure("bad_model", "no kernel")

    bench.child.said["build"] = build
    bench.cases = list(bench.lab.open().cases)
    while labs.NO_TIME not in bench.lab.left_out.values():
        assert bench.join([], left_s=200.0)
    while bench.join([], left_s=200.0):
        pass
    assert f"{STATIC}-products/t2" in labels(bench.cases)
    assert labs.NO_TIME not in bench.lab.left_out.values()


def test_after_a_build_that_took_too_long_no_other_is_begun() -> None:
    bench = Bench({"build": failure("timeout", "no answer within 10 s")})
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert len(bench.child.recipes()) == 1
    assert list(bench.lab.left_out.values()).count(labs.NO_TIME) == 4


def test_filters_that_leave_nothing_are_told() -> None:
    with pytest.raises(UsageError, match="no form of the model is left with these filters"):
        Bench(precisions=("fp64",)).open()


def test_a_precision_asked_for_is_all_that_is_built() -> None:
    bench = Bench(precisions=("fp32",))
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert bench.child.recipes() == []


def test_a_gpu_needs_an_onnxruntime_that_can_use_it() -> None:
    without = Bench(gpus=["cuda:0"])
    without.open()
    assert "install onnxruntime-gpu" in without.lab.left_out["cuda:0"]
    with_it = Bench({"providers": {"cuda": "CUDAExecutionProvider"}}, gpus=["cuda:0"])
    on_gpu = [case for case in with_it.open() if case.device == "cuda:0"]
    assert {case.precision for case in on_gpu} == {"fp32", "fp16"}
    assert {with_it.lab.provider(case) for case in on_gpu} == {"CUDAExecutionProvider"}


def test_providers_that_cannot_be_asked_for_are_left_out() -> None:
    bench = Bench({"providers": failure("worker_died", "it died")})
    bench.open()
    assert bench.lab.left_out["other providers"] == "it died"


def test_energy_is_asked_for_where_it_can_be_read(monkeypatch) -> None:
    monkeypatch.setattr(labs, "package_energy_j", lambda: (None, "only root may read it"))
    bench = Bench(question={"objective": "energy"})
    with pytest.raises(UsageError, match="only root may read it; latency counts without it"):
        bench.open()
    assert bench.child.asked == []
    monkeypatch.setattr(labs, "package_energy_j", lambda: (1.0, ""))
    bench = Bench(
        {"providers": {"cuda": "CUDAExecutionProvider"}}, {"objective": "energy"}, ["cuda:0"]
    )
    assert {case.device for case in bench.open()} == {"cpu"}
    assert "only the processors' energy" in bench.lab.left_out["cuda:0"]
