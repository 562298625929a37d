"""The functions next to a module define its training: loss, arguments, optimiser."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checking import fails_with
from own_training import (
    BATCH,
    FIXTURES,
    Answer,
    Stub,
    code_in,
    dropped,
    examined,
    supervised,
    task_of,
)
from torch import nn

from workbench.contract import Case, Setup, WorkloadError
from workbench.worker.code import Code
from workloads.own import training
from workloads.own.subject import subject_of
from workloads.own.training_parts import (
    HINT,
    NO_BUILDER,
    TrainingParts,
    called_with,
    maker_of,
)
from workloads.own.tree import Example


def test_the_loss_of_an_output_object_is_found(tmp_path: Path) -> None:
    one = Stub(Answer(), torch.randn(BATCH, 3))
    one.kwargs = {"labels": torch.tensor([0, 1, 0, 1])}
    assert examined(one, tmp_path)["data"] is None
    task = task_of(one, tmp_path)
    task.step()
    assert task.loss() == pytest.approx(one.module(*one.args, **one.kwargs).loss.item())


def test_dictionaries_are_passed_by_the_names_of_forward() -> None:
    parts = TrainingParts(Stub(Answer()))
    call = parts.arguments({"values": 1, "labels": 2, "index": 3})
    assert call.args == ()
    assert call.kwargs == {"values": 1, "labels": 2}


def test_tuples_are_passed_by_position_without_the_target() -> None:
    def loss(output: Any, batch: Any) -> None: ...

    judged, own = TrainingParts(Stub(Answer(), loss=loss)), TrainingParts(Stub(Answer()))
    assert judged.arguments((1, 2)).args == (1,)
    assert own.arguments([1, 2, 3]).args == (1, 2)
    assert own.arguments(1).args == (1,)


def test_a_loss_that_is_a_class_is_refused() -> None:
    with pytest.raises(WorkloadError, match="is the class CrossEntropyLoss") as caught:
        TrainingParts(Stub(Answer(), loss=nn.CrossEntropyLoss))
    assert caught.value.hint == "write CrossEntropyLoss()"


class Step(nn.Module):
    def forward(self, batch: Any) -> Any:
        return batch[0] - batch[1]


def test_a_forward_of_a_batch_that_returns_its_loss_gets_it_whole() -> None:
    for batch in ([1, 2], [1]):  # a data set without targets yields one entry
        assert TrainingParts(Stub(Step())).arguments(batch).args == (batch,)
    judged = TrainingParts(Stub(Step(), loss=nn.MSELoss()))
    assert judged.arguments([1, 2]).args == (1,)


def test_inputs_lose_what_forward_cannot_take() -> None:
    parts = TrainingParts(Stub(nn.Linear(3, 2)))
    found = parts.arguments(Example((1, 2), {"target": 3}))
    assert (found.args, found.kwargs) == ((1,), {})


def test_a_target_of_inputs_is_no_option_of_forward() -> None:
    def loss(output: Any, batch: Any) -> None: ...

    assert TrainingParts(Stub(Answer(), loss=loss)).arguments(Example((1, 2), {})).args == (1,)
    assert TrainingParts(Stub(Answer())).arguments(Example((1, 2), {})).args == (1, 2)
    both = TrainingParts(Stub(nn.Bilinear(2, 2, 2), loss=loss))
    assert both.arguments(Example((1, 2), {})).args == (1, 2), "forward needs it"


@pytest.mark.parametrize(
    ("loss", "code", "message"),
    [
        (None, "bad_input", r"its output gives a Tensor of shape \[4, 2\], not a scalar loss"),
        (lambda output: 3.0, "bad_input", "its loss function gives a float, not a scalar loss"),
        (lambda output: output.mean() / 0, "bad_input", "the loss of net:build is "),
        (lambda output: output.logits, "user_code", "net:build.* AttributeError"),
    ],
)
def test_a_broken_loss_is_one_line(loss: Any, code: str, message: str, tmp_path: Path) -> None:
    one = dropped()
    one.functions["loss"] = loss
    with fails_with(code, message) as caught:
        examined(one, tmp_path)
    if "not a scalar" in message:
        assert "def loss(output, batch)" in (caught.value.hint or "")


def test_a_module_with_a_training_step_needs_a_forward_that_calls_it(tmp_path: Path) -> None:
    one = dropped()
    one.functions["loss"] = None
    one.module.training_step = one.module.forward
    with fails_with("bad_input", "not a scalar", hint="returns `model.training_step"):
        examined(one, tmp_path)


def test_what_was_found_is_noted(tmp_path: Path) -> None:
    bare, full = examined(dropped(), tmp_path), examined(supervised(), tmp_path)
    assert any("AdamW" in note for note in bare["notes"])
    assert any("no dataset or loader" in note for note in bare["notes"])
    assert bare["impossible"] == {}
    assert bare["step_s"] > 0
    assert (bare["batch"], full["batch"]) == (None, 32)
    assert full["data"] == "dataset"
    assert len(full["notes"]) == 2  # one on the checks, one on the optimiser


def test_what_a_script_has_of_its_own_is_not_called_missing(tmp_path: Path) -> None:
    notes = training.examine(replace(code_in(tmp_path), target="train.py"), dropped())["notes"]
    assert len([note for note in notes if note.startswith("--train sees no")]) == 2
    assert not any("it defines no" in note for note in notes)


def test_an_optimizer_that_is_none_is_said(tmp_path: Path) -> None:
    notes = examined(supervised(optimizer="adam"), tmp_path)["notes"]
    assert any("its optimizer is a str" in note and "AdamW" in note for note in notes)


def test_a_frozen_module_cannot_be_trained(tmp_path: Path) -> None:
    one = supervised()
    one.module.requires_grad_(False)
    with pytest.raises(WorkloadError, match="no weights that require gradients"):
        examined(one, tmp_path)


def test_groups_of_weights_that_are_given_up_are_noted(tmp_path: Path) -> None:
    groups = [{"params": [nn.Parameter(torch.ones(1))], "weight_decay": decay} for decay in (0, 1)]
    grouped = examined(supervised(optimizer=torch.optim.SGD(groups, lr=0.1)), tmp_path / "grouped")
    assert training.ONE_GROUP in grouped["notes"]
    one = examined(supervised(optimizer=torch.optim.SGD(groups[:1], lr=0.1)), tmp_path / "one")
    assert training.ONE_GROUP not in one["notes"]


def test_a_saved_step_has_what_the_loss_takes(tmp_path: Path) -> None:
    code = Code("torch", "net:build", str(tmp_path), str(tmp_path), train=True)
    rows = torch.ones(2, 3)
    bare = Stub(nn.Linear(3, 1), rows, loss=lambda output, batch: (output - batch).sum())
    example, batch = called_with(code, bare, None)
    assert example.args == (rows,) and example.kwargs == {} and batch is rows
    example, batch = called_with(code, supervised(), BATCH)
    assert torch.equal(example.args[0], batch[0]) and len(batch) == 2


class Prepared(torch.optim.Optimizer):
    """A wrapper, as that of Accelerate."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer


def test_the_optimizer_inside_a_wrapper_is_made() -> None:
    module = nn.Linear(3, 1)
    made = maker_of(Prepared(torch.optim.SGD(module.parameters(), lr=0.3)))(module)
    assert type(made) is torch.optim.SGD and made.defaults["lr"] == 0.3


CROSS_ENTROPY = nn.functional.cross_entropy


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), CROSS_ENTROPY, partial(CROSS_ENTROPY, label_smoothing=0.1)],
    ids=["module", "function", "partial"],
)
def test_a_loss_of_torch_gets_the_target(loss: Any, tmp_path: Path) -> None:
    data = examined(supervised(loss=loss), tmp_path / "data")
    assert data["loss"] == "output, batch[-1]"
    inputs = Stub(nn.Linear(3, 2), torch.ones(BATCH, 3), torch.zeros(BATCH).long(), loss=loss)
    assert math.isfinite(task_of(inputs, tmp_path).check().value)
    inputs.args = inputs.args[:1]
    with pytest.raises(WorkloadError, match="takes a target, and a batch is a Tensor") as caught:
        examined(inputs, tmp_path / "without")
    assert "return the target too" in (caught.value.hint or "")


def test_the_weights_of_classes_in_a_loss_follow_the_module(tmp_path: Path) -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 2.0]))
    one = supervised(loss=loss)
    checked = task_of(one, tmp_path).check()
    assert "float64" in checked.reference
    assert TrainingParts(one).at(torch.device("meta")).loss.weight.is_meta
    assert loss.weight.tolist() == [0.5, 2.0], "the user's own stays"
    assert loss.weight.dtype == torch.float32


class Packaged(nn.Module):
    """A loss as MONAI and others have them."""

    __module__ = "pytest"  # an installed package

    def forward(self, output: Any, target: Any) -> Any:
        return CROSS_ENTROPY(output, target)


def test_a_loss_module_of_a_package_gets_the_target(tmp_path: Path) -> None:
    assert examined(supervised(loss=Packaged()), tmp_path)["loss"] == "output, batch[-1]"


def test_a_loss_of_torch_that_gets_another_output_has_a_remedy(tmp_path: Path) -> None:
    one = supervised(loss=CROSS_ENTROPY)
    one.module = nn.LSTM(3, 2)  # returns its state too
    with fails_with(
        "user_code", "^the loss of net:build: TypeError", hint="def loss(output, batch)"
    ):
        examined(one, tmp_path)


def test_a_loss_of_the_users_that_expects_the_target_is_explained(tmp_path: Path) -> None:
    def loss(output: Any, target: Any) -> Any:
        return CROSS_ENTROPY(output, target)

    with pytest.raises(WorkloadError, match=r"^the loss of .*: TypeError: .*py:\d+\)") as caught:
        examined(supervised(loss=loss), tmp_path)
    assert (caught.value.code, caught.value.hint) == ("user_code", HINT)


def test_a_dictionary_goes_to_what_forward_takes() -> None:
    class Wrapper(nn.Module):
        def forward(self, values: Any, **others: Any) -> Any: ...

    class Whole(nn.Module):
        def forward(self, batch: Any) -> Any: ...

    given = {"values": 1, "mask": 2}
    assert TrainingParts(Stub(Wrapper())).arguments(given).kwargs == given
    assert TrainingParts(Stub(Whole())).arguments(given).args == (given,)


def test_a_batch_by_names_that_forward_or_the_loss_cannot_take_is_refused(tmp_path: Path) -> None:
    rows = [{"image": torch.ones(3), "label": 1}] * BATCH
    with fails_with("user_code", "must be Tensor, not dict"):
        examined(supervised(dataset=lambda: rows), tmp_path)

    class Named(nn.Linear):
        def forward(self, image: Any) -> Any:
            return super().forward(image)

    one = Stub(Named(3, 2), dataset=lambda: rows, loss=nn.CrossEntropyLoss())
    with fails_with("bad_input", "a batch is a dict", hint="def loss(output, batch)"):
        examined(one, tmp_path)


@pytest.mark.parametrize(
    ("functions", "code", "message"),
    [
        ({"dataset": lambda: iter(())}, "user_code", r"has no len\(\)"),
        ({"dataset": list}, "bad_input", "dataset of net:build yields no batch of 32"),
        ({"dataset": lambda: 1 / 0}, "user_code", "dataset of net:build.* ZeroDivisionError"),
        ({"loader": lambda **_: []}, "bad_input", "loader of net:build yields no batch"),
        (
            {"loader": lambda: []},
            "bad_input",
            "loader of net:build returns a list, not a DataLoader",
        ),
        ({"loader": lambda: 1 / 0}, "user_code", "loader of net:build: ZeroDivisionError"),
        ({"optimizer": torch.optim.LBFGS}, "bad_input", "its optimizer LBFGS needs a closure"),
    ],
)
def test_parts_that_cannot_be_used_are_one_line(functions, code, message, tmp_path) -> None:
    with fails_with(code, message):
        examined(supervised(**functions), tmp_path)


def test_a_users_file_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # BF16 is beyond its limit with 21 of the 1000 weights that the builder may draw.
    monkeypatch.setattr(torch, "seed", lambda: 3)
    code = Code("torch", "trained:build", str(tmp_path), str(FIXTURES), train=True)
    setup = Setup(files={"code": code.as_text()})
    facts = training.examine(code, subject_of(code))
    assert facts["impossible"] == {}
    assert facts["data"] == "dataset"
    case = Case("own", "cpu", "torch", "bf16", None, 1, 8, {"batches": 2}, "fused", {"workers": 0})
    task = training.Training(case, setup, code, subject_of(code))
    task.activate()
    assert task.check().value <= task.check().limit
    task.step()
    assert 0 < (task.loss() or 0.0) < 2
    assert 0 < task.metrics()["waiting_fraction"] < 1
    assert isinstance(task.optimiser, torch.optim.SGD)
    task.close()


def test_an_optimizer_may_take_the_module_or_its_weights_that_train() -> None:
    def of_model(model: nn.Module) -> Any:
        return torch.optim.SGD([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}])

    one = supervised(optimizer=of_model)
    one.module.bias.requires_grad_(False)
    groups = TrainingParts(one).optimiser(one.module).param_groups
    assert [(group["params"], group["lr"]) for group in groups] == [
        ([one.module.weight], 0.5),
        ([one.module.bias], 0.001),
    ]
    plain = TrainingParts(supervised(optimizer=torch.optim.SGD)).optimiser(one.module)
    assert plain.param_groups[0]["params"] == [one.module.weight]


def test_an_optimizer_whose_parameters_python_does_not_know_is_called_with_the_weights() -> None:
    class Odd(torch.optim.SGD):
        __signature__ = "unknown"  # as with some functions of C, `inspect` raises an error

    parts = TrainingParts(supervised(optimizer=Odd))
    assert type(parts.optimiser(parts.subject.module)) is Odd
    with fails_with("unsupported", "its optimizer Odd has no fused form"):
        parts.optimiser(parts.subject.module, fused=True)


def test_a_module_that_torch_jit_has_compiled_is_refused() -> None:
    traced = torch.jit.trace(nn.Linear(3, 2), torch.ones(1, 3))
    with fails_with("bad_input", "net:build is compiled by torch.jit", hint=True):
        TrainingParts(Stub(traced))


def test_samples_of_any_sequence_and_an_optimiser_that_is_made_already_are_taken() -> None:
    samples = [(torch.ones(3), number % 2) for number in range(8)]
    held = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5, momentum=0.25)
    one = supervised(dataset=None)
    one.namespace = SimpleNamespace(dataset=samples, optimizer=held)
    parts = TrainingParts(one)
    assert parts.data == "dataset"
    assert parts.sample(BATCH, 0)[0].shape == (BATCH, 3)
    made = parts.optimiser(one.module)
    assert type(made) is torch.optim.SGD
    assert (made.defaults["lr"], made.defaults["momentum"]) == (0.5, 0.25)


def test_a_loss_that_is_missing_next_to_no_builder_names_one(tmp_path: Path) -> None:
    one = Stub(nn.Linear(3, 2), torch.ones(BATCH, 3))
    one.namespace = None
    with pytest.raises(WorkloadError) as caught:
        examined(one, tmp_path)
    assert caught.value.hint == NO_BUILDER
