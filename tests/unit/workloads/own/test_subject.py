"""A user's module: how it is built, called, copied and shared between workers."""

import importlib
import sys
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from checking import fails_with

from workbench.worker.code import Code
from workloads.own.plain import digest
from workloads.own.reference import call
from workloads.own.subject import Subject, _are_equal, built, copied, subject_of
from workloads.own.tree import Example, mapped, tensors


class OnGpu(torch.Tensor):
    """A tensor that is compared as one on a GPU: only with others there."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.cpu:
            return args[0].as_subclass(torch.Tensor)
        if function is torch.equal and not all(isinstance(each, OnGpu) for each in args):
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().__torch_function__(function, types, args, kwargs or {})


def test_weights_that_the_first_worker_has_on_a_gpu_are_compared() -> None:
    # What `kept` has just made is not read back from a file, so both are on the GPU.
    weight = torch.ones(2).as_subclass(OnGpu)
    assert _are_equal(weight, weight)
    assert _are_equal(weight, torch.ones(2))


class Quantised(torch.Tensor):
    """A tensor of a type like those of torchao, which cannot be compared."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.equal:
            raise NotImplementedError
        return super().__torch_function__(function, types, args, kwargs or {})


def test_weights_whose_type_cannot_be_compared_are_loaded() -> None:
    weight = torch.ones(2).as_subclass(Quantised)
    assert not _are_equal(weight, weight)


def test_a_builder_may_return_module_args_and_keywords(net) -> None:
    one = subject_of(net("keywords"))
    example = one.example(None)
    assert list(example.tensors()) == ["0", "scale"]
    assert call(one.copy(), example).tolist() == [[2.0, 2.0]] * 3


def test_inputs_follow_a_module_that_has_buffers_alone() -> None:
    norm = torch.nn.BatchNorm1d(2, affine=False).to("meta")
    assert call(norm.eval(), Example((torch.ones(1, 2),), {})).is_meta


class TrainsItself(torch.nn.Linear):
    """As in Forward-Forward: `train` is no mode."""

    def train(self, positive, negative):
        return positive - negative


def test_a_module_whose_train_is_no_mode_is_refused_with_the_remedy(net) -> None:
    with fails_with("user_code", "missing 1 required positional", hint="another name"):
        Subject(net("keywords"), TrainsItself(2, 2), None)


def test_the_module_is_evaluated_with_dropout_off(net) -> None:
    one = subject_of(net("picture"))
    assert one.was_training
    assert not any(part.training for part in one.module.modules())
    assert any(part.training for part in subject_of(net("picture", train=True)).module.modules())


def test_another_worker_gets_the_same_weights_and_inputs(net) -> None:
    first = subject_of(net("picture"))
    given = first.example(4)
    torch.manual_seed(99)
    other = Subject(net("picture"), *built(net("picture", seed=7), first._build, "cpu"))
    assert torch.equal(other.module.head.weight, first.module.head.weight)
    assert digest(other.example(4).tensors()) == digest(given.tensors())


def test_a_builder_of_another_module_each_time_is_refused(net) -> None:
    subject_of(net("picture"))
    with fails_with("bad_input", "builds another module each time"):
        Subject(net("picture"), torch.nn.Linear(2, 2), None)


def test_a_device_is_passed_to_the_builder_that_takes_it(net) -> None:
    one = subject_of(net("on_device"))
    with warnings.catch_warnings(action="ignore"):  # weights have no values there
        made = one.on(torch.device("meta"))
    assert made.where.device.type == "meta"
    assert one.on(torch.device("cpu")).where.device.type == "cpu"


def test_copies_share_no_weights(net) -> None:
    one = subject_of(net("picture"))
    copy = one.copy()
    with torch.no_grad():
        copy.head.weight.zero_()
    assert one.module.head.weight.abs().sum() > 0


class Extractor(torch.nn.Module):
    """Its hook and its activation are functions with `self` in their closures."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.features = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), {}

        def keep(_module, _given, output, *, name="body"):
            self.features[name] = output

        self.body.register_forward_hook(keep)
        old = self.head.forward
        self.head.forward = lambda x: old(x).relu()

    def forward(self, x):
        self.head(self.body(x))
        return self.features


def test_functions_of_a_copy_use_its_own_parts(net) -> None:
    one = Subject(net("picture"), Extractor(), None)
    for made in (one.copy().double(), copied(one.module, *one.module.parameters())):
        x = torch.ones(2, 3, dtype=made.body.weight.dtype)
        assert torch.equal(made(x)["body"], made.body(x))
    assert made.body.weight is one.module.body.weight and one.module.features == {}


@pytest.mark.parametrize(
    ("name", "code_word", "says"),
    [
        ("a_number", "bad_target", "returns int, not a torch module"),
        ("raises", "user_code", "no such weights"),
        ("leaves", "user_code", "SystemExit"),
    ],
)
def test_a_builder_that_fails_says_so_in_a_line(net, name, code_word, says) -> None:
    with fails_with(code_word, says):
        subject_of(net(name))


PARTLY_FROZEN = """
import torch
def build(device="cpu"):
    net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6)).to(device)
    net[1].eval()
    return net
def inputs(batch): return torch.ones(batch, 6)
"""


def test_a_module_that_is_built_again_trains_what_its_builder_trains(written) -> None:
    one = subject_of(written("partly_frozen", PARTLY_FROZEN, train=True))
    assert [part.training for part in one._built_again("cpu")] == [True, False]


ODD = """
import torch
class Adapter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 2)
    def train(self, mode=True):
        super().train(mode)  # and returns nothing
    def state_dict(self, *args, **named):
        return self.net.state_dict()
    def forward(self, x):
        return self.net(x)
def build():
    return Adapter(), torch.ones(1, 4)
"""


def test_a_module_with_its_own_ways_of_saving_and_training_is_taken(written) -> None:
    one = subject_of(written("odd", ODD))
    assert not one.module.training
    again = Subject(one.code, one.module, None)
    assert again.module is one.module


class Masked(torch.nn.Module):
    """Keeps a mask that a call made in a plain attribute."""

    mask = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mask = torch.ones_like(x) if self.mask is None else self.mask
        return x * self.mask


def test_what_a_script_left_in_plain_attributes_goes_to_the_device_too(tmp_path: Path) -> None:
    module = Masked()
    module(torch.ones(2, 3))
    one = Subject(Code("torch", "train.py", str(tmp_path), str(tmp_path)), module, None)
    moved = one.on(torch.device("meta"))
    assert moved(torch.ones(2, 3, device="meta")).is_meta
    assert one.module.mask.device.type == "cpu"


def test_a_named_module_that_cannot_be_copied_is_refused(net) -> None:
    one = subject_of(net("holds_a_lock"))
    of_a_script = Subject(one.code, one.module, None)
    of_a_builder = Subject(one.code, one.module, None, build=lambda: one.module)
    hints = []
    for each in (one, of_a_script, of_a_builder):
        with fails_with("bad_input", r"cannot be copied, .* '_thread.lock' object$") as caught:
            each.copy()
        hints.append(caught.value.hint)
    build = "name a function that builds it"
    assert hints == [build, build, "let it build a new module each time"]


def test_a_copy_that_finds_no_memory_is_no_fault_of_the_module(net, monkeypatch) -> None:
    one = subject_of(net("holds_a_lock"))
    monkeypatch.setattr("workloads.own.subject.copy.deepcopy", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        one.copy()


BUILT_AT_HOME = """
import threading
import torch
asked = []
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
        self.lock = threading.Lock()
        drawn = torch.rand(4, generator=torch.Generator().manual_seed(len(asked)))
        self.register_buffer("drawn", drawn, persistent=False)
def build(device):
    asked.append(device)
    return Net()
"""


def test_a_module_is_built_again_at_home_and_with_the_same_buffers(written) -> None:
    home = "cpu:0"  # another name of the CPU
    one = subject_of(written("built_at_home", BUILT_AT_HOME, home=home))
    fresh = one.copy()
    assert one.namespace.asked == [home, home]
    assert fresh is not one.module and torch.equal(fresh.drawn, one.module.drawn)


@pytest.mark.parametrize(
    ("made", "says"),
    [("LazyLinear(3)", "lazy parameters"), ("Linear(3, 3, device='meta')", "without values")],
)
def test_weights_without_values_are_refused(written, made: str, says: str) -> None:
    text = f"import torch\ndef build(): return torch.nn.{made}, (torch.ones(1, 3),)\n"
    with fails_with("bad_input", says, hint=True):
        subject_of(written(f"empty_{made[:4]}", text))


@pytest.mark.parametrize("method", ["train", "to"])
def test_a_module_that_refuses_its_mode_or_place_is_named(written, method: str) -> None:
    text = f"""import torch
class Net(torch.nn.Linear):
    def {method}(self, *given): raise ValueError("not for 8-bit models")
def build(): return Net(3, 3), (torch.ones(1, 3),)
"""
    with fails_with("user_code", f"refuses_{method}:build: ValueError: not for"):
        subject_of(written(f"refuses_{method}", text))


def test_a_pickle_finds_its_classes_in_the_folder(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "home_net.py").write_text("import torch\nclass Net(torch.nn.Linear): pass\n")
    with monkeypatch.context() as there:
        there.syspath_prepend(tmp_path)
        made = importlib.import_module("home_net").Net(3, 2), torch.ones(1, 3)
        torch.save(made, tmp_path / "net.pt")
    del sys.modules["home_net"]
    code = Code("torch", "net.pt", f"{tmp_path}/kept", str(tmp_path), pickled=True)
    assert type(subject_of(code).module).__name__ == "Net"


def test_tensors_are_found_in_every_container(net) -> None:
    one = subject_of(net("containers"))
    output = call(one.copy(), one.example(None))
    assert list(tensors(output)) == ["0", "1.first", "1.rest.0", "1.rest.1.last"]
    doubled = mapped(output, lambda tensor: 2 * tensor)
    assert type(doubled) is type(output)
    assert torch.equal(doubled.parts.rest[1]["last"], 2 * output.parts.rest[1]["last"])
    assert doubled.mean is not output.mean
