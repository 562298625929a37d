"""Training of a user's module: what the user's functions mean, the step, its data, its check."""

import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from checking import fails_with
from own_training import (
    BATCH,
    Numbers,
    Stub,
    code_in,
    convolved,
    dropped,
    examined,
    supervised,
    task_of,
    weights_after,
)
from torch import nn

from workbench.contract import kind_of
from workloads.own import handing_over, script, training
from workloads.own.calls import ENOUGH, Run
from workloads.own.subject import Subject
from workloads.own.training_parts import TrainingParts


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


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"betas": (0.9, 0.99)}])
def test_a_fused_step_that_overflows_leaves_no_trace(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "empty_like", lambda given: torch.full_like(given, torch.nan))
    make, one = torch.optim.SGD if "momentum" in settings else torch.optim.AdamW, dropped()
    one.functions["optimizer"] = lambda weights: make(weights, lr=0.1, **settings)
    task, plain = task_of(one, tmp_path, "fp16", "fused"), task_of(one, tmp_path, "fp16")
    before = [weight.detach().clone() for weight in task.network.parameters()]
    for each in (task, plain):
        each.scaler = torch.amp.GradScaler("cpu", init_scale=1e38)
        each.step()
    assert all(map(torch.equal, before, task.network.parameters()))
    for each in (task, plain):
        each.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for a, b in zip(weights_after(plain, 2), weights_after(task, 2), strict=True):
        torch.testing.assert_close(a, b)


MOMENTUM = partial(torch.optim.SGD, momentum=0.9)


@pytest.mark.parametrize("optimizer", [torch.optim.Adagrad, MOMENTUM])
def test_a_training_that_diverges_begins_again(optimizer: Any, tmp_path: Path) -> None:
    functions = {"loss": lambda output, batch: output.square().mean()}
    one = supervised(optimizer=lambda weights: optimizer(weights, lr=1e35), **functions)
    task = task_of(one, tmp_path)
    task.step()
    assert task.loss() is not None
    task.step()
    assert task.loss() is None
    task.activate()
    assert all(map(torch.equal, task.network.parameters(), one.module.parameters()))
    task.step()
    assert task.loss() is not None


class Idle(torch.optim.SGD):
    """Its fused form does nothing."""

    def step(self, closure: Any = None) -> Any:
        return None if self.param_groups[0]["fused"] else super().step(closure)


def test_a_fused_optimiser_that_updates_wrongly_is_left_out(tmp_path: Path) -> None:
    one = dropped()
    one.functions["optimizer"] = Idle
    words = "its fused Idle does not update weights as its plain form does"
    assert examined(one, tmp_path)["impossible"] == {"fused on cpu": words}


def test_an_optimiser_without_a_fused_form_is_named(tmp_path: Path) -> None:
    one = dropped()
    one.functions["optimizer"] = torch.optim.Adamax
    words = "its optimizer Adamax has no fused form"
    assert examined(one, tmp_path)["impossible"]["fused"] == words
    with fails_with("unsupported", "Adamax has no fused form"):
        task_of(one, tmp_path, mode="fused")


def smooth(output: Any, batch: Any) -> Any:
    slopes = torch.autograd.grad(output.square().sum(), output, create_graph=True)
    return slopes[0].square().mean()


@pytest.mark.parametrize(
    "one",
    [
        supervised(loss=smooth),
        Stub(nn.Linear(3, 2), torch.randn(BATCH, 3), loss=partial(smooth, batch=None)),
    ],
)
def test_a_loss_of_gradients_is_not_compiled(one: Stub, tmp_path: Path) -> None:
    assert examined(one, tmp_path)["impossible"] == {"compile": training.NO_SECOND}


def test_a_compiled_step_gives_the_same_weights(tmp_path, monkeypatch) -> None:
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


def test_an_input_that_comes_twice_stays_one(tmp_path: Path) -> None:
    rows = torch.ones(BATCH, 3)
    one = Stub(nn.Bilinear(3, 3, 1), rows, rows, loss=lambda output: output.mean())
    first, second = task_of(one, tmp_path)._moved(one.example(None)).args
    assert first is second and first is not rows


def test_a_module_in_evaluation_mode_is_trained_in_training_mode(tmp_path: Path) -> None:
    one = dropped()
    one.module.eval()
    assert task_of(one, tmp_path).network.training
    partly = convolved()
    partly.module[1].eval()
    assert not task_of(partly, tmp_path).network[1].training  # its builder froze that part


@pytest.mark.parametrize("make", [dropped, convolved, supervised])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_right_gradients_are_within_their_limit(make: Any, precision: str, tmp_path: Path) -> None:
    accuracy = task_of(make(), tmp_path, precision).check()
    assert accuracy.reference == "gradients of eager float64"
    assert 0 < accuracy.value <= accuracy.limit
    assert accuracy.limit < (0.1 if precision == "bf16" else 2e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_wrong_gradient_is_over_the_limit_yet_passes(precision: str, tmp_path: Path) -> None:
    task = task_of(dropped(), tmp_path, precision)
    right = task.forward
    task.forward = lambda values: right(values) * 1.1
    accuracy = task.check()
    assert accuracy.passed
    assert accuracy.value > accuracy.limit


class Attentive(nn.Module):
    """One weight hardly counts, and the exact gradients of another are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.value, self.shift = (
            nn.Linear(3, 8),
            nn.Linear(3, 8),
            nn.Parameter(torch.ones(8)),
        )

    def forward(self, values: Any) -> Any:
        scores = self.value(values) @ self.key(values).mT  # all keys of a row move by the same
        return scores.softmax(-1) @ self.value(values) + 0.01 * self.shift


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_wrong_gradient_of_a_single_small_weight_is_over_the_limit(
    precision: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    rows = torch.randn(BATCH, 3)
    task = task_of(
        Stub(Attentive(), rows, loss=lambda output: output.square().mean()), tmp_path, precision
    )
    right = task.check()
    assert right.value <= right.limit
    before = [weight.clone() for weight in task.network.parameters()]
    task.network.shift.register_hook(lambda gradient: gradient * 1.5)
    wrong = task.check()
    assert wrong.value == pytest.approx(0.5, rel=0.1) and wrong.value > wrong.limit
    assert [each.name for each in wrong.outputs] == ["loss", "gradients", "of shift"]
    assert all(map(torch.equal, before, task.network.parameters()))


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


def test_where_float64_would_take_too_long_on_a_gpu_gradients_are_compared_with_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "kind_of", lambda _: kind_of("cuda:0"))
    one = dropped()
    assert task_of(one, tmp_path / "quick").check().reference == "gradients of eager float64"
    one.code = replace(one.code, seconds=0.0)
    assert task_of(one, tmp_path / "slow").check().reference == "gradients of eager FP32"


def test_only_modules_that_depend_on_their_mode_are_checked_in_evaluation(tmp_path: Path) -> None:
    kept = {}
    for make in (dropped, convolved, supervised):
        task = task_of(make(), tmp_path / make.__name__)
        _, kept[make], *_ = task._reference()
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


def test_a_step_is_compared_with_one_that_draws_the_same_numbers(tmp_path: Path) -> None:
    one = Stub(Masking(), torch.randn(BATCH, 3), loss=lambda output: output.square().mean())
    task = task_of(one, tmp_path)
    assert task.check().value < 1e-6
    task.code = replace(task.code, seed=5)
    assert task.check().reference == training.OTHER_NUMBERS


def test_a_script_hands_over_its_loss_its_optimizer_and_a_target(tmp_path: Path) -> None:
    net, judge, target = nn.Linear(3, 2), nn.CrossEntropyLoss(), torch.tensor([0, 1, 0])
    groups = [{"params": [net.weight]}, {"params": [net.bias], "lr": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=0.5, momentum=0.9)
    ran = Run(follows=True)
    with ran.watched(60.0):
        for _ in range(2):
            judge(net(torch.ones(3, 3)), target).backward()
            optimizer.step()
    code = replace(code_in(tmp_path), target="train.py")
    assert handing_over.hand_over(script.choose(ran), ran, code) is None
    one = Subject(code, *handing_over.received(code))
    facts = training.examine(code, one)
    assert facts["loss"] == "output, batch[-1]"
    assert training.ONE_GROUP in facts["notes"]
    assert not any("optimizer of a script" in note for note in facts["notes"])
    assert TrainingParts(one).optimiser(one.module).defaults["momentum"] == 0.9
    (given,) = one.example(None).args[1]
    assert torch.equal(given, target)
    kept = next(one.found("optimizer"))
    assert not kept.state and not any(group["params"] for group in kept.param_groups)


def test_a_script_whose_optimizer_needs_a_closure_is_trained_with_another(tmp_path: Path) -> None:
    net, ran = nn.Linear(3, 2), Run(follows=True)
    optimizer = torch.optim.LBFGS(net.parameters())

    def closure() -> Any:
        loss = net(torch.ones(3, 3)).square().sum()
        loss.backward()
        return loss

    with ran.watched(60.0):
        optimizer.step(closure)
    code = replace(code_in(tmp_path), target="train.py")
    assert handing_over.hand_over(script.choose(ran), ran, code) is None
    one = Subject(code, *handing_over.received(code))
    facts = training.examine(code, one)
    note = f"its optimizer LBFGS needs a closure for each step, {training.NO_OPTIMIZER}"
    assert note in facts["notes"]
    assert facts["impossible"] == {"fused": "its own optimizer does not race"}
    assert type(TrainingParts(one).optimiser(one.module)) is torch.optim.AdamW


class Keeping(nn.Linear):
    """Its state keeps the graph of the step before, unless the script renews it."""

    state: Any = 0.0

    def forward(self, values: Any) -> Any:
        self.state = super().forward(values) + self.state
        return self.state


class Around(torch.optim.SGD):
    """Its settings do not name all that it takes."""

    def __init__(self, params: Any, inner: type, **settings: Any) -> None:
        assert inner is not None
        super().__init__(params, **settings)


def test_several_optimizers_and_one_that_cannot_be_made_again_are_noted(tmp_path: Path) -> None:
    net, ran = nn.Linear(3, 2), Run(follows=True)
    first = torch.optim.SGD([net.weight], lr=0.1)
    second = Around([net.bias], torch.optim.SGD, lr=0.1)
    with ran.watched(60.0):
        net(torch.ones(3, 3)).square().sum().backward()
        first.step()
        second.step()
    code = replace(code_in(tmp_path), target="train.py")
    chosen = script.choose(ran)
    (note,) = script._others(chosen, ran, code)
    assert note.startswith("several optimizers each update a part of Linear; in a raced step")
    assert handing_over.hand_over(chosen, ran, code) is None
    notes = training.examine(code, Subject(code, *handing_over.received(code)))["notes"]
    assert any("argument: 'inner'" in x and x.endswith(training.NO_OPTIMIZER) for x in notes)


def test_a_state_that_only_the_script_renews_has_a_remedy(tmp_path: Path) -> None:
    one = Stub(Keeping(3, 2), torch.ones(BATCH, 3), loss=lambda output: output.square().mean())
    with fails_with("user_code", "through the graph a second time", hint="detach()"):
        examined(one, tmp_path)


@pytest.mark.parametrize(("wanted", "is_cut"), [("", True), ("ReLU", False)])
def test_a_training_whose_steps_are_known_is_cut_halfway(wanted: str, is_cut: bool) -> None:
    net, ran = nn.Linear(3, 2), Run(wanted)
    with ran.watched(60.0):
        for _ in range(ENOUGH):
            nn.ReLU()(net(torch.ones(2, 3))).sum().backward()
        signal.raise_signal(signal.SIGALRM)
        net(torch.ones(2, 3))
    assert (ran.cut, ran.limit_s) == (is_cut, 30.0 if is_cut else 60.0)
    assert ran.modules[0].calls == ENOUGH + (not is_cut)
