"""The loss of a script, followed from the output of its module to `backward()`."""

import itertools
import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
import torch
from checking import fails_with
from own_training import code_in
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from workloads.own import handing_over, losses, script
from workloads.own.calls import Called, Run
from workloads.own.losses import FollowedLoss
from workloads.own.training import gradients

CLASSES = torch.tensor([0, 1, 2, 1])
MATRIX = torch.arange(8).reshape(4, 2) % 3


class Pair(nn.Module):
    """Returns two tensors in a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 6)

    def forward(self, x: Any) -> Any:
        return self.inner(x), x.sum()


class Policy(nn.Module):
    """Returns a distribution and a value, as actors with a critic do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 6)

    def forward(self, x: Any) -> Any:
        found = self.inner(x)
        return torch.distributions.Categorical(logits=found), found.sum(1)


class Judged(nn.Module):
    """Returns its loss after its output, as small GPTs do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 6)

    def forward(self, x: Any, y: Any = None) -> Any:
        found = self.inner(x)
        return found, functional.cross_entropy(found, y)


class Focal(nn.Module):
    """A loss of the script's own."""

    def forward(self, output: Any, target: Any) -> Any:
        error = functional.cross_entropy(output, target, reduction="none")
        return ((1 - (-error).exp()) ** 2 * error).mean()


def masked(output: Any) -> Any:
    shifted = output * 2
    shifted[CLASSES == 1] = 0
    return shifted.square().sum()


def in_place(output: Any) -> Any:
    total = torch.zeros(1)
    for row in output:
        total += row.exp().sum()
    return total / len(output)


def advantage(output: Any) -> Any:
    policy, value = output
    return (policy.log_prob(CLASSES) * value.detach()).mean() + value.square().mean()


def without_gradients(output: Any) -> Any:
    with torch.no_grad():
        weight = output.softmax(1)
    best, place = output.max(1)
    return (weight * output).sum() + best.sum() * place.shape[0]


LOSSES: dict[str, tuple[Any, Any]] = {
    "function": (nn.Linear(5, 6), lambda output: functional.cross_entropy(output, CLASSES)),
    "module": (nn.Linear(5, 6), lambda output: nn.CrossEntropyLoss()(output, CLASSES)),
    "weighted": (
        nn.Linear(5, 6),
        lambda output: nn.CrossEntropyLoss(torch.arange(1.0, 7.0))(output, CLASSES),
    ),
    "log": (
        nn.Linear(5, 6),
        lambda output: functional.nll_loss(functional.log_softmax(output, dim=1), CLASSES),
    ),
    "own": (nn.Linear(5, 6), lambda output: Focal()(output, CLASSES)),
    "flat": (
        nn.Linear(5, 6),
        lambda output: functional.cross_entropy(output.view(-1, 3), MATRIX.view(-1)),
    ),
    "turned": (
        nn.Linear(5, 6),
        lambda output: functional.cross_entropy(output.view(4, 2, 3).transpose(1, 2), MATRIX),
    ),
    "property": (nn.Linear(5, 6), lambda output: functional.cross_entropy(output.T.mT, CLASSES)),
    "first": (Pair(), lambda output: functional.cross_entropy(output[0], CLASSES)),
    "returned": (Judged(), lambda output: output[1] / 4),
    "arithmetic": (nn.Linear(5, 6), lambda output: 1 - (output - 2.0).square().mean()),
    "several": (nn.Linear(5, 6), lambda output: sum(torch.stack(output.chunk(3, 1)).mean((1, 2)))),
    "relu": (nn.Linear(5, 6), lambda output: nn.ReLU(inplace=True)(output).sum()),
    "masked": (nn.Linear(5, 6), masked),
    "in_place": (nn.Linear(5, 6), in_place),
    "no_grad": (nn.Linear(5, 6), without_gradients),
    "distribution": (Policy(), advantage),
}


def trained(net: Any, loss: Any, *, scaler: Any = None) -> tuple[Called, float]:
    """The recording of a script that makes one training step, and the loss of that step."""
    ran, inputs = Run(follows=True), torch.randn(4, 5)
    with ran.watched(60.0):
        output = net(inputs, CLASSES) if isinstance(net, Judged) else net(inputs)
        found = loss(output)
        (found if scaler is None else scaler.scale(found)).backward()
    assert not _get_current_function_mode_stack()
    return ran.modules[0], found.item()


@pytest.mark.parametrize("name", LOSSES)
def test_a_followed_loss_and_its_gradients_are_those_of_the_script(name: str) -> None:
    torch.manual_seed(0)
    net, loss = LOSSES[name]
    net.zero_grad()
    called, value = trained(net, loss)
    assert called.joined is None
    assert not called.loss.is_returned
    expected = gradients(net)
    again, given = pickle.loads(cloudpickle.dumps((called.loss, called.given)))
    assert isinstance(again, FollowedLoss)
    net.zero_grad()
    found = again(net(*called.example.args), given)
    found.backward()
    assert found.item() == pytest.approx(value)
    assert any(each.any() for each in expected)
    assert all(torch.allclose(a, b) for a, b in zip(gradients(net), expected, strict=True))


def test_a_loss_that_the_module_returns_needs_nothing_more() -> None:
    called, _ = trained(nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)), lambda output: output.sum())
    assert not called.loss.is_returned

    class Output(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(5, 1)

        def forward(self, x: Any) -> Any:
            return {"logits": x, "loss": self.inner(x).mean()}

    called, _ = trained(Output(), lambda output: output["loss"])
    assert called.loss.is_returned and not called.given


def test_the_scale_of_a_grad_scaler_is_no_part_of_the_loss() -> None:
    net = nn.Linear(5, 6)
    called, value = trained(net, LOSSES["function"][1], scaler=torch.amp.GradScaler("cpu"))
    assert called.loss(net(*called.example.args), called.given).item() == pytest.approx(value)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2


def triplet(net: Any) -> Any:
    others = torch.randn(8, 5).split(4)
    return nn.TripletMarginLoss()(net(torch.randn(4, 5))[0], *(net(each)[0] for each in others))


def second(net: Any) -> Any:
    net(torch.randn(4, 5))  # a script may log this output
    return net(torch.randn(4, 5))[0].square().mean()


def regularised(net: Any) -> Any:
    return net(torch.randn(4, 5))[0].mean() + sum(each.abs().sum() for each in net.parameters())


def recurrent(net: Any) -> Any:
    return net(net(torch.randn(4, 5))[0][:, :5])[0].mean()


def unrolled(net: Any) -> Any:
    hidden = torch.zeros(4, 5)
    for _ in range(12):
        hidden = net(hidden + 1)[0][:, :5].tanh()
    return hidden.mean()


def by_two(net: Any) -> Any:
    inputs = torch.randn(4, 5)
    return net(inputs)[0].mean() + nn.Bilinear(5, 5, 1)(inputs, input2=inputs).mean()


def by_another(net: Any) -> Any:
    return nn.Bilinear(6, 6, 1)(*[net(torch.randn(4, 5))[0]] * 2).mean()


def scaled(net: Any) -> Any:
    mean, spread = net(torch.randn(4, 5))[0], nn.Parameter(torch.ones(6))
    return -torch.distributions.Normal(mean, spread.exp()).log_prob(torch.ones(6)).sum()


def penalised(net: Any) -> Any:
    """The loss of a critic with a gradient penalty."""
    fake = net(torch.randn(4, 5))[0][:, :5].detach()
    mixed = (fake / 2 + torch.randn(4, 5)).requires_grad_()
    output = net(mixed)[0]
    (found,) = torch.autograd.grad(output, mixed, torch.ones_like(output), create_graph=True)
    return net(fake)[0].mean() + (found.norm(dim=1) - 1).square().mean()


def physical(net: Any) -> Any:
    """The residual of a differential equation, whose arguments the script joins itself."""
    place, time = (torch.rand(4, size, requires_grad=True) for size in (2, 3))
    value = net(torch.cat([place, time], 1))[0].tanh().sum()
    first = torch.autograd.grad(value, time, create_graph=True)[0]
    second = torch.autograd.grad(first.square().sum(), place, create_graph=True)[0]
    return first.square().mean() + second.square().mean()


def attacked(net: Any) -> Any:
    return net(torch.randn(4, 5, requires_grad=True))[0].square().mean()


@pytest.mark.parametrize(
    ("loss", "calls"),
    [
        (penalised, 2),
        (physical, 1),
        (attacked, 1),
        (second, 1),
        (triplet, 3),
        (regularised, 1),
        (recurrent, 2),
        (unrolled, 12),
        (scaled, 1),
        (by_two, 2),
        (by_another, 2),
    ],
)
def test_a_loss_of_several_calls_or_single_weights_has_a_step_that_computes_it(
    loss: Any, calls: int, tmp_path: Any
) -> None:
    torch.manual_seed(0)
    ran, net = Run(follows=True), Pair()
    with ran.watched(60.0):
        Doubled.apply(net(torch.randn(4, 5))[0]).sum().backward()  # not followed
        torch.optim.SGD(net.parameters(), lr=0.0).step()
        net.zero_grad()
        value = loss(net)
        value.backward()
    called = ran.modules[0]
    assert all(each.loss for each in ran.modules if each.module.state_dict())
    expected = gradients(called.raced)
    handed = handing_over.given(called, ran, code_in(tmp_path))
    module, example, parts = pickle.loads(cloudpickle.dumps(handed))
    assert vars(parts).get("calls", 1) == calls
    *inputs, last = example.args
    is_one = called.joined is None
    found = parts.loss(module(*inputs), last) if is_one else module(*inputs, last)
    found.backward()
    assert found.item() == pytest.approx(value.item())
    assert all(torch.allclose(a, b) for a, b in zip(gradients(module), expected, strict=True))


class Filling(nn.Module):
    """It puts what it computes into its inputs, as the losses of Sentence Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 6)

    def forward(self, features: dict[str, Any]) -> Any:
        features["embedding"] = self.inner(features["values"])
        return features["embedding"].mean()


def test_what_a_call_puts_into_its_inputs_is_not_what_it_depends_on() -> None:
    ran, net = Run(follows=True), Filling()
    with ran.watched(60.0):
        net({"values": torch.ones(4, 5)}).backward()
    assert ran.modules[0].loss.is_returned
    assert list(ran.modules[0].example.args[0]) == ["values"]


def repeated(net: Any, inputs: Any) -> Any:
    return sum(net(inputs + number).mean() for number in range(losses.MOST_CALLS + 1))


def hidden(net: Any, inputs: Any) -> Any:
    return Hidden()(SimpleNamespace(x=net(inputs))).mean()


def adapted(net: Any, inputs: Any) -> Any:
    weights = {name: each * 2 for name, each in net.named_parameters()}
    return torch.func.functional_call(net, weights, inputs).mean()


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 1)

    def forward(self, graph: Any) -> Any:
        return self.inner(graph.x)


@pytest.mark.parametrize(
    "loss", [repeated, hidden, adapted, lambda net, inputs: Doubled.apply(net(inputs)).sum()]
)
def test_a_loss_that_cannot_be_followed_is_refused_with_the_reason(
    loss: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    ran, net = Run(follows=True), nn.Linear(5, 6)
    with ran.watched(60.0):
        loss(net, torch.randn(4, 5)).backward()
    assert ran.modules[0].loss is None
    ran.modules[0].seconds = 1e3
    monkeypatch.setattr(script, "run", lambda code: ran)
    code = replace(code_in(tmp_path), target="train.py")
    why = "--train cannot follow the script from Linear to its loss"
    with fails_with("bad_input", why, hint="of a module whose forward returns that loss"):
        script.opened(code)


def test_the_graphs_of_many_calls_may_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = itertools.count(step=2 * losses.MOST_BYTES)
    monkeypatch.setattr(losses, "held_bytes", lambda: next(taken))
    for calls, is_followed in ((losses.FEW_CALLS, True), (losses.FEW_CALLS + 1, False)):
        ran, net = Run(follows=True), nn.Linear(5, 6)
        with ran.watched(60.0):
            sum(net(torch.randn(4, 5)).mean() for _ in range(calls)).backward()
        assert (ran.modules[0].loss is not None) == is_followed


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_categorical_loss_computes_in_other_precisions_as_well(kind: Any) -> None:
    def loss(logits: Any) -> Any:
        return -torch.distributions.Categorical(logits=logits).entropy().mean()

    net = nn.Linear(5, 6)
    called, value = trained(net, loss)
    with torch.autocast("cpu", kind):
        found = called.loss(net(*called.example.args), called.given)
    assert found.item() == pytest.approx(value, rel=0.05)


class Counting(TorchFunctionMode):
    """A mode of the script's own."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


def test_modes_of_the_script_are_those_that_it_entered() -> None:
    ran, net, own = Run(follows=True), nn.Linear(5, 6), Counting()
    with ran.watched(60.0):
        with torch.device("cpu"), own:
            for _ in range(losses.EARLY):
                net(torch.ones(4, 5)).sum().backward()
            assert _get_current_function_mode_stack()[-1] is own
        net(torch.ones(2, 5))
        assert not _get_current_function_mode_stack()
    assert ran.modules[0].loss is not None


def test_the_default_device_of_a_script_may_change_while_it_is_followed() -> None:
    ran, net = Run(follows=True), nn.Linear(5, 6)
    with ran.watched(60.0):
        torch.set_default_device("cpu")
        output = net(torch.ones(4, 5))
        torch.set_default_device(None)
        output.sum().backward()
        output = net(torch.ones(2, 5))
        torch.set_default_device("cpu")
        torch.set_default_device(None)
    assert ran.modules[0].loss is not None
    assert not _get_current_function_mode_stack()


def test_a_script_that_is_not_trained_here_is_not_followed() -> None:
    ran, net = Run(), nn.Linear(5, 6)
    with ran.watched(60.0):
        net(torch.ones(4, 5)).sum().backward()
    assert ran.modules[0].loss is None
