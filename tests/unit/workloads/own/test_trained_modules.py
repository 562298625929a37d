"""The module or training step of a script that races under `--train`."""

import pickle
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import MethodType
from typing import Any

import cloudpickle
import pytest
import torch
from checking import fails_with
from own_training import code_in
from torch import nn
from torch.nn import functional

from workbench.contract import WorkloadError
from workloads.own import handing_over, script
from workloads.own.calls import Called, Run
from workloads.own.losses import MOST_CALLS
from workloads.own.subject import copied
from workloads.own.training import gradients


def opening(
    ran: Run, folder: Any, monkeypatch: pytest.MonkeyPatch, target: str = "train.py"
) -> None:
    monkeypatch.setattr(script, "run", lambda code: ran)
    script.opened(replace(code_in(folder), target=target))


def evaluated(net: Any, **ended: Any) -> Run:
    """The run of a script that calls a module and does not train it."""
    ran = Run(follows=True)
    with ran.watched(60.0):
        net(torch.ones(1, 5))
    return replace(ran, limit_s=10.0, **ended)


def test_a_script_that_ends_before_it_trains_says_so(monkeypatch: Any, tmp_path: Any) -> None:
    single = nn.Linear(5, 1)  # its output must not be taken for a loss
    with fails_with("bad_input", "cut after 10 s, before it trained Linear", hint="--budget"):
        opening(evaluated(single, cut=True), tmp_path, monkeypatch)
    failure = WorkloadError("raised KeyError: 'lr'", code="user_code", hint="remedy")
    with fails_with("user_code", "raised KeyError: 'lr' before it trained", hint="remedy"):
        opening(evaluated(single, failure=failure), tmp_path, monkeypatch)
    text = "the script has no optimizer and no backward pass for Linear"
    with fails_with("bad_input", text, hint="package.module:build"):
        opening(evaluated(single), tmp_path, monkeypatch)


def test_a_script_that_is_cut_before_its_inputs_are_copied_needs_more_time() -> None:
    ran = Run(cut=True, limit_s=20.0, modules=[Called("Net", nn.Linear(5, 1), calls=1)])
    with fails_with("bad_input", "cut after 20 s, in its first call of Net", hint="--budget"):
        script.choose(ran)
    ran.modules[0].calls = 2
    with fails_with("unsupported", "the inputs of Net cannot be copied"):
        script.choose(ran)


def test_a_module_without_a_loss_names_one_that_has_one(monkeypatch: Any, tmp_path: Any) -> None:
    ran, judge, maker = Run(follows=True), nn.Linear(5, 1), nn.Sequential(nn.Linear(2, 5))
    with ran.watched(60.0):
        judge(maker(torch.ones(4, 2)).detach()).mean().backward()
        sum(maker(torch.ones(4, 2)).mean() for _ in range(MOST_CALLS + 1)).backward()
    ran.modules[0].seconds = 1e3
    with fails_with("bad_input", "from Sequential to its loss", hint="train.py::Linear, or"):
        opening(ran, tmp_path, monkeypatch, "train.py::Sequential")
    chosen, code = script.choose(ran), replace(code_in(tmp_path), target="train.py")
    assert chosen.name == "Linear"
    slower = script._others(chosen, ran, code)[-1]
    assert slower.endswith("as Linear; train.py::Sequential races it without --train")


class Whole(nn.Module):
    """Its step calls one part after the other, as that of Lightning does."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(5, 2), nn.Sequential(nn.Linear(2, 5))

    def training_step(self, batch: Any, number: int, *, scale: float = 1.0) -> Any:
        return {"loss": self.error(batch * scale)}

    def error(self, batch: Any) -> Any:
        return functional.mse_loss(self.decoder(self.encoder(batch)).T.T, batch)

    def predict(self, batch: Any) -> Any:
        return self(batch)

    def forward(self, batch: Any) -> Any:
        return self.encoder(batch)


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(5, 2)

    def training_step(self, batch: Any) -> Any:
        return self.net(batch).mean()


def test_a_part_of_a_module_is_not_taken_for_the_whole() -> None:
    ran = Run()
    with ran.watched(60.0):
        Whole().error(torch.ones(4, 5)).backward()
        Whole().predict(torch.ones(4, 5))
        Around().training_step(torch.ones(4, 5)).backward()
    encoder, decoder, whole, inner = ran.modules
    start = "the script calls Whole.error, of which only"
    assert encoder.part == [f"{start} Linear races: name a builder to race all of it"]
    assert decoder.part[0].startswith(start)
    assert whole.part == inner.part == []


def test_the_modules_of_a_loss_race_together(tmp_path: Any) -> None:
    ran, net = Run(follows=True), Whole()
    with ran.watched(60.0):
        for rows in (4, 3, 4):
            net.zero_grad()
            net.training_step(torch.ones(rows, 5), 7, scale=2.0)["loss"].backward()
            torch.optim.SGD(net.parameters(), lr=0.0).step()
    expected = gradients(net)
    chosen = script.choose(ran)
    assert len({each.joined for each in ran.modules}) == 1
    assert chosen.part == []
    code = replace(code_in(tmp_path), target="train.py")
    note = "a loss comes from 2 calls of Linear and Sequential, which a raced step makes"
    assert script._others(chosen, ran, code) == [note]
    handed = handing_over.given(chosen, ran, code)
    module, example, parts = pickle.loads(cloudpickle.dumps(handed))
    assert {each.shape for each in example.args} == {(4, 5)}
    assert sorted(vars(parts)) == ["calls", "optimizer"]
    module = copied(module)
    assert torch._dynamo.explain(module)(*example.args).graph_break_count == 0
    module(*example.args).backward()
    assert all(torch.equal(a, b) for a, b in zip(gradients(module), expected, strict=True))


def test_a_trained_tensor_that_no_module_holds_is_a_constant_with_a_note(tmp_path: Any) -> None:
    ran, net, scale = Run(follows=True), nn.Linear(5, 2), torch.ones((), requires_grad=True)
    with ran.watched(60.0):
        (net(torch.ones(4, 5)) * scale.exp()).mean().backward()
        torch.optim.SGD([*net.parameters(), scale], lr=0.0).step()
    chosen, code = script.choose(ran), replace(code_in(tmp_path), target="train.py")
    assert chosen.joined is not None
    note = "the script trains tensors outside of modules, which stay as they are here"
    assert note in script._others(chosen, ran, code)


def test_a_weight_that_comes_before_the_first_call_is_followed_from_the_second_step() -> None:
    ran, net, scale = Run(follows=True), nn.Linear(5, 2), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([*net.parameters(), scale], lr=0.0)
    with ran.watched(60.0):
        for _ in range(2):
            optimizer.zero_grad()
            (scale.exp() * net(torch.ones(4, 5))).mean().backward()
            optimizer.step()
    chosen, expected = script.choose(ran), gradients(net)
    scale.grad = net.weight.grad = net.bias.grad = None
    chosen.joined(*chosen.example.args).backward()
    assert scale.grad is not None
    assert all(torch.equal(a, b) for a, b in zip(gradients(net), expected, strict=True))
    assert not ran._thread.tape._alive, "nothing stays in memory"


@pytest.mark.parametrize("judges_first", [False, True])
def test_two_that_train_against_each_other_have_a_step_each(
    judges_first: bool, tmp_path: Any
) -> None:
    ran, maker, judge = Run(follows=True), nn.Sequential(nn.Linear(2, 5)), nn.Linear(5, 1)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (maker, judge)]

    def judges(made: Any) -> None:
        (judge(torch.ones(4, 5)) - judge(made.detach())).mean().backward()
        optimizers[1].step()

    def makes(made: Any) -> None:
        judge(made).mean().backward()
        optimizers[0].step()

    with ran.watched(60.0):
        for _ in range(3):
            made = maker(torch.ones(4, 2))
            for train in (judges, makes) if judges_first else (makes, judges):
                train(made)
        assert not ran._thread.tape._alive, "nothing stays in memory"
    assert ran.passes == []
    chosen = script.choose(ran, "Sequential")
    code = replace(code_in(tmp_path), target="gan.py::Sequential")
    joins, *apart, several = script._others(chosen, ran, code)
    assert "2 calls of Sequential and Linear" in joins
    assert apart == ["the script trains Linear in other steps, which do not race"]
    assert several.startswith("several optimizers each update a part of Sequential and Linear")


def test_what_is_trained_by_a_loss_that_cannot_be_followed_is_named(tmp_path: Path) -> None:
    ran, actor, critic = Run(follows=True), nn.Sequential(nn.Linear(2, 5)), nn.Linear(5, 1)
    with ran.watched(60.0):
        critic(torch.ones(4, 5)).mean().backward()
        sum(actor(torch.ones(4, 2)).mean() for _ in range(MOST_CALLS + 1)).backward()
    chosen, code = script.choose(ran), replace(code_in(tmp_path), target="sac.py::Linear")
    assert chosen.module is critic
    note = "the script trains Sequential in other steps, which do not race"
    assert script._others(chosen, ran, code) == [note]


def test_the_calls_of_a_teacher_are_named_with_their_time(tmp_path: Any) -> None:
    ran, teacher, net = Run(follows=True), nn.Sequential(nn.Linear(5, 2)), nn.Linear(5, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with ran.watched(60.0):
        for _ in range(3):
            with torch.no_grad():
                target = teacher(torch.ones(4, 5))
            functional.mse_loss(net(torch.ones(4, 5)), target).backward()
            optimizer.step()
    chosen, code = script.choose(ran), replace(code_in(tmp_path), target="distil.py::Linear")
    assert chosen.module is net
    ran.modules[0].seconds, chosen.seconds = 3.0, 2.0
    taken = "calls of Sequential without gradients take 1.5x as long as those of Linear"
    assert script._others(chosen, ran, code) == [f"{taken}; a raced step leaves them out"]
    ran.modules[0].calls = 1  # not in each step
    assert script._others(chosen, ran, code) == []


def test_the_autocast_of_accelerate_is_taken_off_and_noted(tmp_path: Any) -> None:
    ran, net, lock = Run(follows=True), nn.Linear(5, 1), Lock()

    def mixed(self: Any, inputs: Any) -> Any:
        with lock, torch.autocast("cpu", torch.bfloat16):
            return nn.Linear.forward(self, inputs).float()

    net._original_forward, net.forward = net.forward, MethodType(mixed, net)
    with ran.watched(60.0):
        net(torch.ones(4, 5)).mean().backward()
    called = ran.modules[0]
    assert called.notes == ["Linear was under autocast by Accelerate in 1 of 1 calls"]
    module, *_ = pickle.loads(cloudpickle.dumps(handing_over.given(called, ran, code_in(tmp_path))))
    assert module(torch.ones(4, 5)).dtype == torch.float32
    assert "forward" not in vars(module)


@pytest.mark.parametrize(
    ("every", "stop", "noted"),
    [(4, 8, ["4 backward"]), (4, 11, ["4 backward"]), (1, 8, []), (8, 7, ["over 7 backward"])],
)
def test_accumulated_gradients_are_noted(every: int, stop: int, noted: list[str]) -> None:
    ran, net = Run(), nn.Linear(5, 1)
    optimizers = [torch.optim.SGD([weight]) for weight in net.parameters()]
    with ran.watched(60.0):
        for number in range(1, stop + 1):
            net(torch.ones(4, 5)).sum().backward()
            for each in optimizers if number % every == 0 else ():
                each.step()
    ran.optimizers = optimizers  # it is cut before its first step
    start = "the script makes "
    assert [each.partition(" passes")[0] for each in ran.passes] == [start + x for x in noted]


def test_the_inputs_of_a_training_are_those_of_its_most_frequent_step() -> None:
    ran, net = Run(follows=True), nn.Linear(3, 2)
    with ran.watched(60.0):
        for _ in range(5):
            net(torch.ones(1, 3))
        net(torch.ones(2, 3)).sum().backward()
        assert ran.modules[0].example.tensors()["0"].shape == (2, 3)
        for scale in (1, 2, 3):
            net(torch.ones(4, 3) * scale).sum().backward()
    assert torch.equal(ran.modules[0].example.tensors()["0"], torch.ones(4, 3) * 2)


def test_training_mode_is_no_difference_from_a_training_that_races() -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.Dropout())
    for ran, noted in ((Run(follows=True), 0), (Run(), 1)):
        with ran.watched(60.0):
            net(torch.ones(4, 5)).sum().backward()
        assert len(ran.modules[0].notes) == noted


class _FabricModule(nn.Module):
    """The wrapper of Fabric, which in some precisions wants its own `backward`."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Any) -> Any:
        return self.module(inputs)


def test_the_module_inside_that_of_fabric_races() -> None:
    ran, net = Run(follows=True), nn.Linear(5, 6)
    with ran.watched(60.0):
        _FabricModule(net)(torch.ones(4, 5)).sum().backward()
    assert ran.modules[0].module is net
    assert ran.modules[0].notes == ["Linear was in FabricModule in 1 of 1 calls"]
