"""A user's module: how it is built, called, copied and shared between workers, and its inputs."""

import importlib
import sys
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import trees
from checking import fails_with

from workbench.contract import WorkloadError
from workbench.worker.code import Code
from workloads.own.reference import call
from workloads.own.subject import Subject, _are_equal, built, copied, hash_of, subject_of
from workloads.own.tree import Example, as_example, mapped, tensors


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


@pytest.mark.parametrize(("train", "made"), [(False, "return (module, args)"), (True, "dataset()")])
def test_missing_inputs_have_a_remedy_that_fits(net, train: bool, made: str) -> None:
    with fails_with("bad_input", "gives no inputs", hint=made):
        subject_of(net("without_inputs", train=train)).example(None)


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
    assert hash_of(other.example(4)) == hash_of(given)


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


def test_a_named_module_has_its_inputs_next_to_it(code) -> None:
    one = subject_of(code("named:net", "torch"))
    assert one.takes_batch
    assert one.example(4).args[0].shape == (4, 6)


PLAIN = """
import torch
def build(): return torch.nn.Linear(3, 2)
def inputs(batch): return torch.ones(batch, 3)
"""
RECURRENT = """
import torch
def build(): return torch.nn.LSTM(8, 16)
def inputs(batch): return torch.randn(20, batch, 8), (torch.zeros(1, batch, 16),) * 2
"""
NAMED_ALIKE = """
import statistics as dataset
import torch
inputs = torch.ones(4, 6)
loader = torch.utils.data.DataLoader([1, 2])
def build(): return torch.nn.Linear(6, 2), (inputs,)
"""
WITH_METHODS = """
import torch
class build(torch.nn.Linear):
    def __init__(self): super().__init__(6, 2)
    def loss(self, output): return output.sum()
    @staticmethod
    def inputs(batch): return torch.ones(batch, 6)
"""
PARTLY_FROZEN = """
import torch
def build(device="cpu"):
    net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6)).to(device)
    net[1].eval()
    return net
def inputs(batch): return torch.ones(batch, 6)
"""


def test_inputs_whose_first_axes_differ_make_batches_all_the_same(written) -> None:
    one = subject_of(written("recurrent", RECURRENT))
    assert one.own_batch == 1
    assert one.example(3).args[0].shape == (20, 3, 8)


@pytest.mark.parametrize(
    ("name", "made"),
    [("by_time", "torch.randn(20, batch, 8)"), ("listed", "([torch.ones(3, 8)] * batch,)")],
)
def test_inputs_whose_first_axis_is_no_batch_make_batches_too(written, name, made) -> None:
    text = "import torch\ndef build(): return torch.nn.LSTM(8, 16)\n"
    one = subject_of(written(name, f"{text}def inputs(batch): return {made}\n"))
    assert one.own_batch == 1
    one.example(5)


def test_inputs_that_ignore_their_batch_are_refused_although_an_axis_has_its_size(written) -> None:
    text = "import torch\ndef build(): return torch.nn.Flatten()\n"
    one = subject_of(written("ignoring", f"{text}def inputs(batch): return torch.ones(8, 1, 4)\n"))
    with pytest.raises(WorkloadError, match=r"inputs\(1\) of .* makes a batch of 8"):
        one.example(1)


def test_what_only_has_the_name_of_a_part_is_none(written) -> None:
    one = subject_of(written("named_alike", NAMED_ALIKE))
    assert not one.takes_batch and one.own_batch == 4
    assert all(one.part(name) is None for name in ("inputs", "dataset", "loader"))


def test_a_method_is_no_part_but_a_static_one_is(written) -> None:
    one = subject_of(written("with_methods", WITH_METHODS))
    assert one.part("loss") is None
    assert one.example(3).args[0].shape == (3, 6)


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


def test_functions_next_to_a_builder_that_a_package_passes_on_are_found(tmp_path: Path) -> None:
    files = {"__init__.py": "from .model import build\n", "model.py": PLAIN}
    trees.written(tmp_path / "shop_package", files)
    code = Code("torch", "shop_package:build", str(tmp_path), str(tmp_path))
    assert subject_of(code).example(5).args[0].shape == (5, 3)


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


@pytest.mark.parametrize("made", ["(i for i in range(3))", "threading.Lock()"])
def test_inputs_that_no_other_process_can_get_are_refused(written, made: str) -> None:
    text = "import threading\nimport torch\ndef build(): return torch.nn.Identity()\n"
    text += f"def inputs(): return {made}\n"
    one = subject_of(written(f"unpicklable_{made[1:5]}".strip(), text))
    with fails_with("bad_input", "cannot be handed to other processes: ", hint="return tensors"):
        one.example(None)


def test_a_batch_repeats_or_leaves_out_rows(net) -> None:
    one = subject_of(net("mixes_rows"))
    rows = one.example(None).args[0]
    assert one.own_batch == 4
    assert torch.equal(one.example(2).args[0], rows[:2])
    assert torch.equal(one.example(6).args[0], torch.cat([rows, rows[:2]]))


@pytest.mark.parametrize("train", [False, True])
def test_inputs_may_stand_next_to_the_builder_themselves(written, train: bool) -> None:
    text = "import torch\ninputs = torch.ones(3, 6)\ndef build(): return torch.nn.Linear(6, 2)\n"
    one = subject_of(written(f"holds_inputs_{train}", text, train=train))
    assert one.own_batch == 3 and one.example(5).args[0].shape == (5, 6)


def test_inputs_of_the_builder_make_every_batch(net) -> None:
    one = subject_of(net("linear"))
    assert one.takes_batch and one.own_batch == 1
    assert one.example(5).args[0].shape == (5, 6)


def test_inputs_without_a_common_axis_have_one_batch_only(net) -> None:
    one = subject_of(net("unlike_axes"))
    assert one.own_batch is None
    with pytest.raises(WorkloadError, match="share no first axis"):
        one.example(3)


@pytest.mark.parametrize(
    ("given", "args", "kwargs"),
    [
        (3, (3,), {}),
        ((1, 2), (1, 2), {}),
        ({"x": 1}, (), {"x": 1}),
        (((1, 2), {"y": 3}), (1, 2), {"y": 3}),
    ],
)
def test_what_inputs_returns_becomes_arguments(given, args, kwargs) -> None:
    assert as_example(given) == Example(args, kwargs)


@pytest.mark.parametrize(
    ("forward", "is_argument"),
    [
        (lambda features, **more: 0, True),  # as that of SentenceTransformer
        (lambda x: 0, False),  # y is the target
        (lambda **named: 0, False),
        (lambda first, x, y: 0, False),
    ],
)
def test_a_dictionary_whose_keys_no_parameter_has_is_one_argument(forward, is_argument) -> None:
    given = {"x": 1, "y": 2}
    wanted = Example((given,), {}) if is_argument else Example((), given)
    assert as_example(given, forward) == wanted


def test_tensors_are_found_in_every_container(net) -> None:
    one = subject_of(net("containers"))
    output = call(one.copy(), one.example(None))
    assert list(tensors(output)) == ["0", "1.first", "1.rest.0", "1.rest.1.last"]
    doubled = mapped(output, lambda tensor: 2 * tensor)
    assert type(doubled) is type(output)
    assert torch.equal(doubled.parts.rest[1]["last"], 2 * output.parts.rest[1]["last"])
    assert doubled.mean is not output.mean


def test_the_hash_sees_values_types_and_shapes() -> None:
    ones = Example((torch.ones(2, 3),), {})
    hashes = {
        hash_of(ones),
        hash_of(Example((torch.ones(3, 2),), {})),
        hash_of(Example((torch.ones(2, 3, dtype=torch.bfloat16),), {})),
        hash_of(Example((torch.ones(2, 3),), {"mask": torch.tensor(True)})),
        hash_of(ones.mapped(lambda tensor: tensor + 1e-6)),
    }
    assert len(hashes) == 5
    assert hash_of(Example((torch.ones(2, 3),), {})) == hash_of(ones)


def test_inputs_without_a_parameter_have_their_own_batch(net) -> None:
    one = subject_of(net("fixed_inputs"))
    assert one.own_batch == 5 and not one.takes_batch
    assert one.example(7).args[0].shape == (7, 6)


@pytest.mark.parametrize(
    "inputs",
    [
        "partial(torch.randn, 5, 6)",  # a builtin, which has no signature
        "lambda device: torch.randn(5, 6, device=device)",
        "lambda *, batch=5: torch.randn(batch, 6)",
    ],
)
def test_inputs_that_take_no_batch_by_position_have_their_own(written, inputs: str) -> None:
    text = "import torch\nfrom functools import partial\nbuild = lambda: torch.nn.Linear(6, 2)\n"
    one = subject_of(written(f"net_of_five_{len(inputs)}", f"{text}inputs = {inputs}\n"))
    assert one.own_batch == 5 and not one.takes_batch


def test_inputs_of_another_batch_than_asked_are_refused(net) -> None:
    with pytest.raises(WorkloadError, match=r"inputs\(3\) of .* makes a batch of 4"):
        subject_of(net("wrong_batch")).example(3)


@pytest.mark.parametrize(
    ("parameter", "options", "batch"),
    [
        ("batch", {}, 1),
        ("batch", {"train": True}, 32),
        ("batch=6", {"train": True}, 6),
        ("batch=6", {"batch": 4}, 4),
    ],
)
def test_inputs_are_made_at_the_batch_that_is_asked_for_at_their_own_or_at_a_usual_one(
    written, parameter: str, options: dict[str, int], batch: int
) -> None:
    text = PLAIN.replace("inputs(batch)", f"inputs({parameter})")
    assert subject_of(written(f"net_of_{batch}", text, **options)).own_batch == batch
