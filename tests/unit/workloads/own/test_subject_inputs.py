"""The inputs of a user's module, and the batches that they can make."""

from pathlib import Path

import pytest
import torch
import trees
from checking import fails_with

from workbench.contract import WorkloadError
from workbench.worker.code import Code
from workloads.own.plain import digest
from workloads.own.subject import subject_of
from workloads.own.tree import Example, as_example


@pytest.mark.parametrize(("train", "made"), [(False, "return (module, args)"), (True, "dataset()")])
def test_missing_inputs_have_a_remedy_that_fits(net, train: bool, made: str) -> None:
    with fails_with("bad_input", "gives no inputs", hint=made):
        subject_of(net("without_inputs", train=train)).example(None)


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
WITH_TARGET = """
import torch
loss = torch.nn.MSELoss()
def build(): return torch.nn.Linear(6, 2)
def inputs(batch): return torch.ones(batch, 6), torch.ones(batch, 2)
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


@pytest.mark.parametrize(("train", "count"), [(True, 2), (False, 1)])
def test_the_target_of_a_training_is_no_argument_of_inference(written, train, count) -> None:
    one = subject_of(written(f"targeted_{train}", WITH_TARGET, train=train))
    assert len(one.example(3).args) == count


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


def test_functions_next_to_a_builder_that_a_package_passes_on_are_found(tmp_path: Path) -> None:
    files = {"__init__.py": "from .model import build\n", "model.py": PLAIN}
    trees.written(tmp_path / "shop_package", files)
    code = Code("torch", "shop_package:build", str(tmp_path), str(tmp_path))
    assert subject_of(code).example(5).args[0].shape == (5, 3)


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


def test_the_hash_sees_values_types_and_shapes() -> None:
    ones = Example((torch.ones(2, 3),), {})
    examples = [
        ones,
        Example((torch.ones(3, 2),), {}),
        Example((torch.ones(2, 3, dtype=torch.bfloat16),), {}),
        Example((torch.ones(2, 3),), {"mask": torch.tensor(True)}),
        ones.mapped(lambda tensor: tensor + 1e-6),
    ]
    assert len({digest(each.tensors()) for each in examples}) == 5
    assert digest({"0": torch.ones(2, 3)}) == digest(ones.tensors())


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
