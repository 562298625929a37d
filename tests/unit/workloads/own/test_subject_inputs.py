"""The inputs of a user's module: at which batches they are made, and how they are passed."""

from pathlib import Path

import pytest
import torch

from workbench.contract import WorkloadError
from workbench.worker.code import Code
from workloads.own.reference import call
from workloads.own.subject import as_example, hash_of, subject_of
from workloads.own.tree import Example, mapped, tensors

FIXTURES = Path(__file__).parents[3] / "fixtures" / "own"


@pytest.fixture
def code(tmp_path: Path):
    return lambda name, **given: Code(
        "torch", f"modules:{name}", str(tmp_path), str(FIXTURES), **given
    )


def test_a_batch_repeats_or_leaves_out_rows(code) -> None:
    one = subject_of(code("mixes_rows"))
    rows = one.example(None).args[0]
    assert one.own_batch == 4
    assert torch.equal(one.example(2).args[0], rows[:2])
    assert torch.equal(one.example(6).args[0], torch.cat([rows, rows[:2]]))


def test_inputs_of_the_builder_make_every_batch(code) -> None:
    one = subject_of(code("linear"))
    assert one.takes_batch and one.own_batch == 1
    assert one.example(5).args[0].shape == (5, 6)


def test_inputs_without_a_common_axis_have_one_batch_only(code) -> None:
    one = subject_of(code("unlike_axes"))
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


def test_tensors_are_found_in_every_container(code) -> None:
    output = call(
        subject_of(code("containers")).copy(), subject_of(code("containers")).example(None)
    )
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


def test_inputs_without_a_parameter_have_their_own_batch(code) -> None:
    one = subject_of(code("fixed_inputs"))
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
def test_inputs_that_take_no_batch_by_position_have_their_own(tmp_path: Path, inputs: str) -> None:
    text = "import torch\nfrom functools import partial\nbuild = lambda: torch.nn.Linear(6, 2)\n"
    name = f"net_of_five_{len(inputs)}"
    (tmp_path / f"{name}.py").write_text(f"{text}inputs = {inputs}\n")
    one = subject_of(Code("torch", f"{name}:build", str(tmp_path), str(tmp_path)))
    assert one.own_batch == 5 and not one.takes_batch


def test_inputs_of_another_batch_than_asked_are_refused(code) -> None:
    with pytest.raises(WorkloadError, match=r"inputs\(3\) of .* makes a batch of 4"):
        subject_of(code("wrong_batch")).example(3)


def test_inputs_are_made_at_the_batch_that_is_asked_for_at_their_own_or_at_a_usual_one(
    tmp_path: Path, monkeypatch
) -> None:
    text = (
        "import torch\ndef build(): return torch.nn.Linear(3, 2)\n"
        "def inputs(batch): return torch.ones(batch, 3)\n"
    )
    (tmp_path / "plain_net.py").write_text(text)
    (tmp_path / "own_net.py").write_text(text.replace("(batch)", "(batch=6)"))

    def batch_of(module: str, **options) -> int | None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        code = Code("torch", f"{module}:build", str(folder), str(tmp_path), **options)
        return subject_of(code).own_batch

    assert batch_of("plain_net") == 1
    assert batch_of("plain_net", train=True) == 32
    assert batch_of("own_net", train=True) == 6
    assert batch_of("own_net", batch=4) == 4
