"""The checks of a user's module and of its candidates."""

import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from own_tasks import facts_of, task_of

from workbench.contract import WorkloadError
from workbench.worker.block import time_sample
from workbench.worker.code import Code
from workloads.own.examine import _consequence
from workloads.own.reference import (
    DRAWN,
    OTHER_NUMBERS,
    Reference,
    affords_float64,
    reference,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "own"


def test_a_distribution_is_compared_by_the_tensors_inside(examined) -> None:
    code, facts = examined("distribution", "outputs")
    assert reference(code, 4, facts["guard"]).names == ["loc", "scale"]
    accuracy = task_of(code, "bf16").check()
    assert accuracy.passed and accuracy.value > 0


@pytest.mark.parametrize(
    ("home", "capability", "affords"),
    [
        ("cpu", None, True),
        ("cuda:0", (9, 0), True),
        ("cuda:0", (8, 9), False),
        ("xpu:0", None, False),
    ],
)
def test_float64_takes_far_longer_on_most_gpus(monkeypatch, home, capability, affords) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    code = Code("torch", "m:build", "", "", home=home, seconds=20.0)
    assert affords_float64(code, call_s=0.5) == affords
    assert affords_float64(code, call_s=0.1)
    assert not affords_float64(code, call_s=2.0)


@pytest.mark.parametrize("mode", [None, "nhwc"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("batch", [4, 7])
def test_every_way_passes_its_check(examined, precision, mode, batch) -> None:
    code, _ = examined("picture")
    task = task_of(code, precision, mode, batch)
    accuracy = task.check()
    assert (
        accuracy.value
        <= accuracy.limit
        == pytest.approx(0.02 if precision == "bf16" else 1e-4, rel=0.1)
    )
    assert {each.name for each in accuracy.outputs} == {"logits", "features"}
    assert time_sample(task, 2).host_s > 0


def test_ways_without_state_share_their_weights(examined) -> None:
    code, _ = examined("picture")
    weights = [task_of(code, *way).model.head.weight for way in ((), ("bf16",), ("fp32", "nhwc"))]
    assert weights[0] is weights[1] and weights[0] is not weights[2]


def test_a_wrong_answer_is_over_its_limit(examined) -> None:
    code, _ = examined("picture")
    found = reference(code, 4, "inference_mode")
    wrong = [output * 1.01 for output in found.outputs]
    accuracy = found.judge(code, "fp32", wrong)
    assert accuracy.passed and accuracy.value == pytest.approx(0.01) and accuracy.limit < 2e-4
    assert found.judge(code, "bf16", wrong).limit > accuracy.value
    with pytest.raises(WorkloadError, match="returns 1 tensors where eager returns 2"):
        found.judge(code, "fp32", wrong[:1])


def test_the_users_limit_overrules_the_rule(examined) -> None:
    code, _ = examined("picture", max_error=0.5)
    found = Reference(["y"], [np.ones(4)], [0.0], "by hand")
    assert found.judge(code, "int8", [np.ones(4) * 1.3]).limit == 0.5


def test_small_outputs_and_reduced_precision_get_the_larger_multiple(examined) -> None:
    code, _ = examined("picture")
    large, small = np.ones(2000), np.ones(10)
    limits = {
        (size, precision): Reference(["y"], [values], [0.01], "")
        .judge(code, precision, [values])
        .limit
        for size, values in (("large", large), ("small", small))
        for precision in ("fp32", "tf32", "bf16")
    }
    assert limits["large", "fp32"] == pytest.approx(0.0201)
    assert limits["small", "fp32"] == pytest.approx(0.0301)
    assert limits["large", "bf16"] == limits["small", "bf16"] == pytest.approx(0.05)
    assert limits["large", "tf32"] == limits["large", "bf16"], "it reads no more bits than FP16"


def test_the_users_own_check_counts(examined, monkeypatch) -> None:
    code, _ = examined("picture")
    task = task_of(code)
    seen = []
    task.check_output = lambda output: seen.append(sorted(output))
    task.check()
    assert seen == [["features", "logits"]]
    task.check_output = lambda output: output["logits"].sub_(1.0) is not None
    assert task.check().value < 1e-6, "it may change what it is shown"
    task.check_output = lambda output: False
    with pytest.raises(WorkloadError, match="rejects it"):
        task.check()


def test_an_output_of_nan_alone_is_refused(written) -> None:
    text = "import torch\nbuild = lambda: (torch.nn.ReLU(), (torch.full((2, 3), torch.nan),))\n"
    with pytest.raises(WorkloadError, match=r"^its output holds only NaN"):
        facts_of(written("nan_net", text))


def test_nan_in_some_places_leaves_the_others_compared(examined) -> None:
    code, facts = examined("holed", "outputs")
    assert "NaN in its outputs (output) is not compared" in facts["notes"]
    found = reference(code, 2, "inference_mode")
    assert found.judge(code, "fp32", found.outputs).value == 0.0
    assert found.judge(code, "fp32", [found.outputs[0] * 1.5]).value == pytest.approx(0.5)


def test_complex_outputs_are_compared_as_numbers(examined) -> None:
    code, facts = examined("spectrum")
    assert facts["floor"] < 1e-5
    found = reference(code, 2, "inference_mode")
    assert found.judge(code, "fp32", [found.outputs[0] * 1.5]).value == pytest.approx(0.5)


def test_quantised_layers_have_weights(examined) -> None:
    code, facts = examined("quantised")
    assert (facts["precision"], facts["parameters"]) == ("int8", 6 * 5 + 5 * 3)
    assert task_of(code, "int8").check().value == 0.0
    assert "its weights of the type Packed count as FP32" in examined("packed")[1]["notes"]


def test_short_weights_race_in_fp32_too(examined) -> None:
    code, facts = examined("short_weights")
    assert facts["precision"] == "bf16"
    short, wide = task_of(code, "bf16"), task_of(code, "fp32")
    found = wide.check()
    assert found.value < short.check().value and found.value < 1e-6
    assert (short._answer().dtype, wide._answer().dtype) == (torch.bfloat16, torch.float32)


def test_random_outputs_are_compared_between_calls_that_draw_the_same(examined) -> None:
    code, facts = examined("chance")
    assert facts["reference"] == DRAWN
    counts = "so output counts only in calls that draw the same numbers"
    assert f"two fresh copies differ, {counts}" in facts["notes"]
    assert any("training=self.training" in note for note in facts["notes"])
    accuracy = task_of(code, batch=2).check()
    assert (accuracy.metric, accuracy.value) == ("relative_error", 0.0)
    other = reference(code, 2, "no_grad").judge(code, "fp32", [np.ones((2, 3), np.float32)])
    assert (other.metric, other.reference) == ("none", OTHER_NUMBERS)


def test_what_no_seed_repeats_is_not_checked(written) -> None:
    text = """
        import secrets, torch

        class Chance(torch.nn.Module):
            def forward(self, x):
                return x + secrets.randbelow(1000)

        def build():
            return Chance(), (torch.zeros(2, 3),)
        """
    code = written("chance_net", textwrap.dedent(text))
    facts = facts_of(code)
    assert facts["reference"] == "", "it is compared with nothing"
    assert "two fresh copies differ, so that output cannot be compared" in facts["notes"]
    accuracy = task_of(code, batch=2).check()
    assert accuracy.reference.startswith("not checked: eager differs from itself")
    assert (accuracy.metric, accuracy.value) == ("none", 0.0)


def test_one_random_output_leaves_the_others_checked() -> None:
    steady, noise = np.ones(9, np.float32), np.zeros(9, np.float32)
    found = Reference(["mean", "sample"], [steady, noise + 1], [0.0, 0.5], "eager")
    code = Code("torch", "m:build", "", "")
    assert _consequence(found) == "so that sample cannot be compared"
    assert found.judge(code, "fp32", [steady, noise]).value == 0.0
    assert found.judge(code, "fp32", [1.5 * steady, noise]).value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("outputs", "checks"),
    [
        ([np.zeros((0, 4), np.float32), np.zeros(0, np.int64)], False),  # a detector finds nothing
        ([np.zeros((2, 4), np.float32)], False),
        ([np.zeros((2, 4), np.float32), np.zeros(2, np.int64)], True),  # a class is never void
    ],
)
def test_outputs_without_a_value_check_nothing(outputs: list, checks: bool) -> None:
    names = [str(place) for place in range(len(outputs))]
    found = Reference(names, outputs, [0.0] * len(names), "eager")
    reference = found.judge(Code("torch", "m:build", "", ""), "int8", outputs).reference
    assert reference == ("eager" if checks else "not checked: its outputs are empty or zero")


def test_each_case_keeps_its_own_cache_and_shares_weights(examined) -> None:
    code, _ = examined("caching", "states")
    first, second = task_of(code, batch=2), task_of(code, "bf16", batch=2)
    first.check()
    assert second.model.table is None
    assert first.model.line.weight is second.model.line.weight
    assert second.check().value < 0.02


def test_the_users_check_rejects_in_torch(tmp_path: Path) -> None:
    code = Code("torch", "named:net", str(tmp_path), str(FIXTURES))
    facts = facts_of(code)
    assert facts["checks"]
    with pytest.raises(WorkloadError, match="rejects it"):
        task_of(code, batch=1).check()
