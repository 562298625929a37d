"""Training of a user's module: what the user's functions mean, the step, its data, its check."""

from __future__ import annotations

import copy
import multiprocessing
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from workbench.contract import Case, Setup, WorkloadError
from workbench.worker.code import Code
from workloads.own import training
from workloads.own.recipe import NO_BUILDER, Recipe
from workloads.own.save import _inputs
from workloads.own.subject import subject
from workloads.own.training import Training
from workloads.own.tree import Example

BATCH = 4
FIXTURES = Path(__file__).parents[3] / "fixtures" / "own"


class Stub:
    """A subject: a module, its example inputs, and the functions of its file."""

    name = "net:build"
    code = Code("torch", name, "", "")
    namespace: Any = SimpleNamespace()

    def __init__(self, module: nn.Module, *args: Any, **functions: Any) -> None:
        self.module, self.args, self.functions = module, args, functions
        self.kwargs: dict[str, Any] = {}

    def part(self, name: str) -> Any:
        return self.functions.get(name)

    def example(self, batch: int | None) -> Example:
        return Example(self.args, self.kwargs)

    def copy(self) -> Any:
        return copy.deepcopy(self.module)

    def on(self, device: Any) -> Any:
        return self.copy().to(device)


class Numbers(Dataset[Any]):
    """Eight samples (3,) with a class each; `wait` stands for slow reading."""

    def __init__(self, wait: Any = None, size: int = 8) -> None:
        torch.manual_seed(1)
        self.values, self.wait = torch.randn(size, 3), wait

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self.wait is not None:
            self.wait()
        return self.values[index], index % 2


def dropped() -> Stub:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 2))
    return Stub(module, torch.randn(BATCH, 3), loss=lambda output: output.square().mean())


def convolved() -> Stub:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())

    def loss(output: Any, batch: Any) -> Any:
        return (output.sum(1) - batch.mean()).square().mean()

    return Stub(module, torch.randn(BATCH, 3, 8, 8), loss=loss)


def supervised(**functions: Any) -> Stub:
    def loss(output: Any, batch: Any) -> Any:
        return nn.functional.cross_entropy(output, batch[1])

    torch.manual_seed(0)
    return Stub(nn.Linear(3, 2), **{"loss": loss, "dataset": Numbers, **functions})


class Answer(nn.Module):
    """Returns an object with a loss, if there are labels, as the models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, values: Any, labels: Any = None) -> Any:
        logits = self.inner(values)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SimpleNamespace(loss=loss, logits=logits)


def code_in(folder: Path, **settings: Any) -> Code:
    return Code("torch", "net:build", str(folder), str(folder), train=True, **settings)


def task_of(
    one: Stub,
    folder: Path,
    precision: str = "fp32",
    mode: str | None = None,
    batches: int = 1,
    active: bool = True,
    **settings: Any,
) -> Training:
    tuning = {name: settings.pop(name) for name in ("workers",) if name in settings}
    params = {"code": "build", "batches": batches}
    batch = BATCH if one.part("dataset") or one.part("loader") else None
    case = Case("own", "cpu", "torch", precision, None, 1, batch, params, mode, tuning)
    made = Training(case, Setup(), code_in(folder, **settings), one)  # type: ignore[arg-type]
    if active:
        made.activate()
    return made


def examined(one: Stub, folder: Path) -> dict[str, Any]:
    return training.examine(code_in(folder), one)  # type: ignore[arg-type]


def weights_after(task: Training, steps: int) -> list[Any]:
    for _ in range(steps):
        torch.manual_seed(5)  # the same dropout
        task.step()
    task.close()
    return [weight.detach() for weight in task.network.parameters()]


# ------------------------------------------------------------- the step


@pytest.mark.parametrize("make", [dropped, convolved])
def test_a_step_is_what_a_plain_loop_does(make: Any, tmp_path: Path) -> None:
    one = make()
    task = task_of(one, tmp_path)
    expected = one.copy()
    optimiser = torch.optim.AdamW(expected.parameters())
    for _ in range(3):
        torch.manual_seed(5)
        output = expected(*one.args)
        loss = one.functions["loss"]
        (loss(output) if make is dropped else loss(output, one.args[0])).backward()
        optimiser.step()
        optimiser.zero_grad()
    found = weights_after(task, 3)
    assert all(torch.equal(a, b) for a, b in zip(found, expected.parameters(), strict=True))
    assert not torch.equal(found[0], next(one.module.parameters()))  # the subject's are untouched
    assert task.loss() is not None
    assert task.metrics() == {}


@pytest.mark.parametrize(
    "optimizer",
    [
        None,
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=True),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters, fused=None: torch.optim.Adam(parameters, lr=0.1, fused=fused),
        lambda parameters: torch.optim.Adam(
            [{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:]}]
        ),
    ],
)
def test_a_fused_optimiser_gives_the_same_weights(optimizer: Any, tmp_path: Path) -> None:
    plain, fused = (
        supervised(dataset=None, optimizer=optimizer, loss=lambda output: output.square().sum())
        for _ in range(2)
    )
    plain.args = fused.args = (torch.ones(BATCH, 3),)
    task = task_of(fused, tmp_path, mode="fused")
    assert all(group["fused"] for group in task.optimiser.param_groups)
    for a, b in zip(
        weights_after(task_of(plain, tmp_path), 3), weights_after(task, 3), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_an_optimiser_without_a_fused_form_is_named(tmp_path: Path) -> None:
    one = dropped()
    one.functions["optimizer"] = torch.optim.Adamax
    assert "Adamax has no fused form" in examined(one, tmp_path)["impossible"]["fused"]
    with pytest.raises(WorkloadError, match="Adamax has no fused form") as caught:
        task_of(one, tmp_path, mode="fused")
    assert caught.value.code == "unsupported"


def test_a_compiled_step_gives_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compiler itself takes half a minute; this traces forward and backward as it does.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    one = convolved()
    # AdamW would make a step of the rounding error of a gradient that is zero.
    one.functions["optimizer"] = lambda weights: torch.optim.SGD(weights, lr=0.01)
    plain, made = task_of(one, tmp_path), task_of(one, tmp_path, mode="nhwc+compile")
    assert made.forward is not plain.forward
    assert made.check().value < 1e-4
    for a, b in zip(weights_after(plain, 2), weights_after(made, 2), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_channels_last_changes_the_layout_of_kernels_and_inputs(tmp_path: Path) -> None:
    task = task_of(convolved(), tmp_path, mode="nhwc")
    assert task.network[0].weight.is_contiguous(memory_format=torch.channels_last)
    moved = task._moved(next(task.batches))
    assert moved.args[0].is_contiguous(memory_format=torch.channels_last)
    assert task.check().value < 1e-4


def test_inputs_that_a_call_changes_are_fresh_in_each_step(tmp_path: Path) -> None:
    class Doubling(nn.Linear):
        def forward(self, input: Any) -> Any:  # noqa: A002 - torch's name
            return super().forward(input.mul_(2))

    one = Stub(Doubling(3, 1), torch.ones(BATCH, 3), loss=lambda output: output.mean())
    weights_after(task_of(one, tmp_path), 3)
    examined(one, tmp_path)
    assert torch.equal(one.args[0], torch.ones(BATCH, 3))


def test_a_module_in_evaluation_mode_is_trained_in_training_mode(tmp_path: Path) -> None:
    one = dropped()
    one.module.eval()
    assert task_of(one, tmp_path).network.training
    partly = convolved()
    partly.module[1].eval()
    assert not task_of(partly, tmp_path).network[1].training  # its builder froze that part


# ------------------------------------------------------------- loss and batch


def test_the_loss_of_an_output_object_is_found(tmp_path: Path) -> None:
    one = Stub(Answer(), torch.randn(BATCH, 3))
    one.kwargs = {"labels": torch.tensor([0, 1, 0, 1])}
    assert examined(one, tmp_path)["data"] is None
    task = task_of(one, tmp_path)
    task.step()
    assert task.loss() == pytest.approx(one.module(*one.args, **one.kwargs).loss.item())


def test_dictionaries_are_passed_by_the_names_of_forward() -> None:
    recipe = Recipe(Stub(Answer()))  # type: ignore[arg-type]
    call = recipe.arguments({"values": 1, "labels": 2, "index": 3})
    assert call.args == ()
    assert call.kwargs == {"values": 1, "labels": 2}


def test_tuples_are_passed_by_position_without_the_target() -> None:
    def loss(output: Any, batch: Any) -> None: ...

    judged, own = Recipe(Stub(Answer(), loss=loss)), Recipe(Stub(Answer()))  # type: ignore[arg-type]
    assert judged.arguments((1, 2)).args == (1,)
    assert own.arguments([1, 2, 3]).args == (1, 2)
    assert own.arguments(1).args == (1,)


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
    with pytest.raises(WorkloadError, match=message) as caught:
        examined(one, tmp_path)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    if "not a scalar" in message:
        assert "def loss(output, batch)" in (caught.value.hint or "")


def test_what_was_found_is_noted(tmp_path: Path) -> None:
    bare, full = examined(dropped(), tmp_path), examined(supervised(), tmp_path)
    assert any("AdamW" in note for note in bare["notes"])
    assert any("no dataset or loader" in note for note in bare["notes"])
    assert bare["impossible"] == {}
    assert bare["step_s"] > 0
    assert (bare["batch"], full["batch"]) == (None, 32)
    assert full["data"] == "dataset"
    assert len(full["notes"]) == 2  # what is checked, and the optimiser


def test_a_saved_step_has_what_the_loss_takes(tmp_path: Path) -> None:
    code = Code("torch", "net:build", str(tmp_path), str(tmp_path), train=True)
    rows = torch.ones(2, 3)
    bare = Stub(nn.Linear(3, 1), rows, loss=lambda output, batch: (output - batch).sum())
    args, named, batch = _inputs(code, bare, None)  # type: ignore[arg-type]
    assert args == (rows,) and named == {} and batch is rows
    args, _, batch = _inputs(code, supervised(), BATCH)  # type: ignore[arg-type]
    assert torch.equal(args[0], batch[0]) and len(batch) == 2


# ------------------------------------------------------------- data


def test_the_wait_for_data_is_counted(tmp_path: Path) -> None:
    reads: list[int] = []
    one = supervised(dataset=lambda: Numbers(lambda: reads.append(1)))
    task = task_of(one, tmp_path, batches=3)
    task.step()
    task.step()
    assert len(reads) == 2 * 3 * BATCH
    assert [len(marks) for marks in task.marks] == [2 * 3 + 1] * 2
    assert 0 < task.metrics()["waiting_fraction"] <= 1
    task.marks = [[0.0, 3.0, 4.0, 5.0, 8.0]]  # works from 3 to 4 and from 5 to 8
    assert task.metrics() == {"waiting_fraction": 4 / 8}
    task.activate()
    assert task.metrics() == {}
    assert task.waits


def test_loader_processes_end_with_their_task(tmp_path: Path) -> None:
    task = task_of(supervised(), tmp_path, workers=2)
    task.step()
    assert len(multiprocessing.active_children()) == 2
    task.close()
    assert multiprocessing.active_children() == []


def test_the_users_loader_gets_its_settings_and_goes_on_for_ever(tmp_path: Path) -> None:
    asked = []

    def loader(batch_size: int, num_workers: int, pin_memory: bool) -> Any:
        asked.append((batch_size, num_workers, pin_memory))
        return [(torch.ones(size, 3), torch.zeros(size).long()) for size in (4, 4, 1)]

    task = task_of(supervised(loader=loader, dataset=None), tmp_path, workers=0)
    assert [len(next(task.batches)[0]) for _ in range(5)] == [4] * 5  # never the last, small one
    assert asked == [(BATCH, 0, False)]


@pytest.mark.parametrize(
    ("functions", "code", "message"),
    [
        ({"dataset": lambda: iter(())}, "user_code", r"has no len\(\)"),
        ({"dataset": list}, "bad_input", "dataset of net:build yields no batch"),
        ({"dataset": lambda: 1 / 0}, "user_code", "dataset of net:build.* ZeroDivisionError"),
        ({"loader": lambda **_: []}, "bad_input", "loader of net:build yields no batch"),
        ({"loader": lambda: []}, "user_code", "loader of net:build.* TypeError"),
    ],
)
def test_data_that_cannot_be_used_are_one_line(
    functions: dict[str, Any], code: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        examined(supervised(**functions), tmp_path)
    assert caught.value.code == code


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_dataset_is_named_wherever_it_happens(workers: int, tmp_path: Path) -> None:
    def broken() -> None:
        raise OSError("picture 7 is cut")

    one = supervised(dataset=lambda: Numbers(broken))
    task = task_of(one, tmp_path, active=False, workers=workers)
    with pytest.raises(WorkloadError, match=r"dataset of net:build.* OSError: picture 7") as caught:
        task.activate()
        task.step()
    assert caught.value.code == "user_code"
    task.close()
    assert multiprocessing.active_children() == []


def test_a_loader_process_that_dies_is_one_line(tmp_path: Path) -> None:
    one = supervised(dataset=lambda: Numbers(lambda: os._exit(3)))
    task = task_of(one, tmp_path, active=False, workers=1)
    with pytest.raises(
        WorkloadError, match=r"dataset of net:build.* exited unexpectedly"
    ) as caught:
        task.activate()
    assert caught.value.code == "user_code"
    task.close()
    assert multiprocessing.active_children() == []


# ------------------------------------------------------------- the check


@pytest.mark.parametrize("make", [dropped, convolved, supervised])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_right_gradients_are_within_their_limit(make: Any, precision: str, tmp_path: Path) -> None:
    accuracy = task_of(make(), tmp_path, precision).check()
    assert accuracy.reference == "gradients of eager float64"
    assert 0 < accuracy.value <= accuracy.limit
    assert accuracy.limit < (0.06 if precision == "bf16" else 2e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_wrong_gradient_is_over_the_limit_yet_passes(precision: str, tmp_path: Path) -> None:
    task = task_of(dropped(), tmp_path, precision)
    right = task.forward
    task.forward = lambda values: right(values) * 1.1
    accuracy = task.check()
    assert accuracy.passed
    assert accuracy.value > accuracy.limit


def test_the_users_limit_overrules(tmp_path: Path) -> None:
    assert task_of(dropped(), tmp_path, max_error=0.25).check().limit == 0.25


def test_every_worker_compares_with_the_same(tmp_path: Path) -> None:
    first = task_of(supervised(), tmp_path).check()
    (kept,) = tmp_path.rglob(training.KEPT)
    assert kept.parent.name == f"b{BATCH}"
    other = supervised(dataset=lambda: Numbers(size=3))  # other samples: the first worker's count
    assert task_of(other, tmp_path).check().value == first.value


def test_a_check_changes_nothing_in_the_training(tmp_path: Path) -> None:
    for make in (dropped, convolved):
        folder = tmp_path / make.__name__
        checked, fresh = task_of(make(), folder), task_of(make(), folder)
        checked.check()
        for a, b in zip(weights_after(checked, 3), weights_after(fresh, 3), strict=True):
            assert torch.equal(a, b)
        assert all(map(torch.equal, checked.network.buffers(), fresh.network.buffers()))


def test_a_module_that_names_its_type_is_compared_with_fp32(tmp_path: Path) -> None:
    class Single(nn.Linear):
        def forward(self, input: Any) -> Any:  # noqa: A002 - torch's name
            return (
                super()
                .forward(input + torch.ones(3, dtype=torch.float32))
                .matmul(torch.ones(1, 1, dtype=torch.float32))
            )

    one = Stub(Single(3, 1), torch.ones(BATCH, 3), loss=lambda output: output.mean())
    accuracy = task_of(one, tmp_path).check()
    assert accuracy.reference == "gradients of eager FP32"
    assert accuracy.value == 0.0
    assert accuracy.limit == 1e-4


def test_only_modules_that_depend_on_their_mode_are_checked_in_evaluation(tmp_path: Path) -> None:
    kept = {}
    for make in (dropped, convolved, supervised):
        task = task_of(make(), tmp_path / make.__name__)
        _, kept[make], _ = task._reference()
    assert kept == {dropped: True, convolved: True, supervised: False}


def test_recurrent_layers_keep_their_mode_without_dropout() -> None:
    module = nn.Sequential(nn.LSTM(3, 4, num_layers=2, dropout=0.5), nn.Dropout(0.5))
    with training.untouched(module, frozen=True):
        assert module[0].training
        assert module[0].dropout == 0.0
        assert not module[1].training
    assert module[0].dropout == 0.5
    assert module[1].training


def test_frozen_and_unused_weights_have_no_gradient_or_a_zero_one() -> None:
    used, unused, frozen = nn.Linear(2, 1), nn.Linear(1, 1), nn.Linear(1, 1).requires_grad_(False)
    module = nn.ModuleList([used, unused, frozen])
    loss = used(torch.ones(1, 2)).sum() * 4
    loss.backward()
    parts = [part.numpy() / 4.0 for part in training.gradients(module)]
    value, column = training.as_outputs(loss.item(), parts)
    assert value == [loss.item()]
    assert column.tolist() == [[1.0], [1.0], [1.0], [0.0], [0.0]]


# ------------------------------------------------------------- a user's file


def test_a_users_file_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # BF16 is beyond its limit with 21 of the 1000 weights that the builder may draw.
    monkeypatch.setattr(torch, "seed", lambda: 3)
    code = Code("torch", "trained:build", str(tmp_path), str(FIXTURES), train=True)
    setup = Setup(files={"code": code.as_text()})
    facts = training.examine(code, subject(code))
    assert facts["impossible"] == {}
    assert facts["data"] == "dataset"
    case = Case("own", "cpu", "torch", "bf16", None, 1, 8, {"batches": 2}, "fused", {"workers": 0})
    task = training.Training(case, setup, code, subject(code))
    task.activate()
    assert task.check().value <= task.check().limit
    task.step()
    assert 0 < (task.loss() or 0.0) < 2
    assert 0 < task.metrics()["waiting_fraction"] < 1
    assert isinstance(task.optimiser, torch.optim.SGD)
    task.close()


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        return iter([(torch.ones(3), 1)] * 4 * BATCH)


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("dataset", Numbers()),
        ("loader", torch.utils.data.DataLoader(Numbers(), 2)),
        ("dataset", Stream()),
    ],
    ids=["dataset", "loader", "stream"],
)
def test_data_may_be_an_object_instead_of_a_function(name: str, held: Any) -> None:
    one = supervised(dataset=None)
    one.part = lambda name: None  # type: ignore[method-assign]  # as nothing there can be called
    one.namespace = SimpleNamespace(**{name: held})
    recipe = Recipe(one)  # type: ignore[arg-type]
    values, kinds = recipe.sample(BATCH, 0)
    assert (recipe.data, values.shape, kinds.shape) == ("dataset", (BATCH, 3), (BATCH,))


class TwoFaced(nn.Module):
    """Returns losses in training mode and something else in evaluation mode, as detectors do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, values: Any) -> Any:
        found = self.inner(values)
        return {"a": found.square().mean()} if self.training else [found]


def test_a_module_that_answers_differently_in_evaluation_mode_is_checked_in_training_mode(
    tmp_path: Path,
) -> None:
    one = Stub(TwoFaced(), torch.ones(BATCH, 3), loss=lambda output: sum(output.values()))
    assert task_of(one, tmp_path).check().value < 1e-6


class Masking(nn.Module):
    """Draws a mask in every step, whatever its mode."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, values: Any) -> Any:
        return self.inner(values) * torch.rand(len(values), 1)


def test_what_a_step_draws_counts_as_the_error_of_eager_itself(tmp_path: Path) -> None:
    torch.manual_seed(0)
    one = Stub(Masking(), torch.randn(BATCH, 3), loss=lambda output: output.square().mean())
    found = task_of(one, tmp_path).check()
    assert found.metric == "none"
    assert "eager differs from itself" in found.reference


def test_samples_of_any_sequence_and_an_optimiser_that_is_made_already_are_taken() -> None:
    samples = [(torch.ones(3), number % 2) for number in range(8)]
    held = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5, momentum=0.25)
    one = supervised(dataset=None)
    one.namespace = SimpleNamespace(dataset=samples, optimizer=held)
    recipe = Recipe(one)  # type: ignore[arg-type]
    assert recipe.data == "dataset"
    assert recipe.sample(BATCH, 0)[0].shape == (BATCH, 3)
    made = recipe.optimiser(one.module)
    assert type(made) is torch.optim.SGD
    assert (made.defaults["lr"], made.defaults["momentum"]) == (0.5, 0.25)


def test_a_loss_that_is_missing_next_to_no_builder_names_one(tmp_path: Path) -> None:
    one = Stub(nn.Linear(3, 2), torch.ones(BATCH, 3))
    one.namespace = None
    with pytest.raises(WorkloadError) as caught:
        examined(one, tmp_path)
    assert caught.value.hint == NO_BUILDER
