"""Values inside nested containers and objects, and modules with their inputs."""

from collections import UserDict, defaultdict
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from workloads.own.tree import (
    Example,
    as_example,
    compiled_parts,
    is_compiled,
    mapped,
    module_with_inputs,
    uncompiled,
    unwrapped,
)


@dataclass(frozen=True)
class Counted:
    total: torch.Tensor
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", len(self.total))


def test_a_dataclass_keeps_what_it_works_out_itself() -> None:
    doubled = mapped(Counted(torch.ones(3)), lambda tensor: 2 * tensor)
    assert torch.equal(doubled.total, 2 * torch.ones(3))
    assert doubled.rows == 3


def test_a_dictionary_next_to_the_module_holds_keywords_and_a_compiled_module_is_unwrapped() -> (
    None
):
    plain = torch.nn.Linear(3, 2)
    module, example = module_with_inputs((torch.compile(plain), {"input": torch.ones(1, 3)}))
    assert unwrapped(module) is plain
    assert example.args == () and list(example.kwargs) == ["input"]

    class Whole(torch.nn.Module):
        def forward(self, batch):
            return batch["x"]

    _, example = module_with_inputs((Whole(), {"x": torch.ones(1)}))
    assert list(example.args[0]) == ["x"] and not example.kwargs
    _, example = module_with_inputs((plain, {"input": torch.ones(1, 3), "mask": None}))
    assert list(example.kwargs) == ["input", "mask"], "torch then names the one that is unexpected"
    _, example = module_with_inputs((Whole(), {("user", "rates", "film"): torch.ones(1)}))
    assert len(example.args) == 1 and not example.kwargs


def test_a_module_that_is_compiled_in_place_is_taken_for_compiled() -> None:
    in_place, its_forward, plain = (torch.nn.Linear(3, 2) for _ in range(3))
    in_place.compile()
    its_forward.forward = torch.compile(its_forward.forward)
    assert is_compiled(in_place) and is_compiled(its_forward) and not is_compiled(plain)
    for each in (in_place, its_forward):
        assert uncompiled(each) is each and not is_compiled(each)
        assert each(torch.ones(1, 3)).shape == (1, 2)


def test_the_sizes_of_a_packed_sequence_stay_where_they_are() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    moved = mapped(packed, lambda tensor: tensor.to("meta"))
    assert moved.data.device.type == "meta" and moved.batch_sizes.device.type == "cpu"


class _Graph:
    """Holds tensors as graphs and caches do: in attributes and what these hold."""

    def __init__(self) -> None:
        self.x = torch.ones(4, 3)
        self.kept = {"keys": [torch.zeros(2)]}
        self.size = 4


def test_tensors_inside_other_objects_are_found_copied_and_named() -> None:
    example = Example((_Graph(), "text"), {})
    assert list(example.tensors()) == ["0.x", "0.kept.keys.0"]
    assert example.places()["0.kept.keys.0"] == "inputs[0].kept['keys'][0]"
    copied = example.mapped(lambda tensor: tensor + 1)
    assert float(copied.args[0].x[0, 0]) == 2
    assert float(copied.args[0].kept["keys"][0][0]) == 1
    assert float(example.args[0].x[0, 0]) == 1, "the given one stays"


class _Called(_Graph):
    """Lists what it holds, as the graphs of PyTorch Geometric do."""

    def __call__(self) -> Iterator[str]:
        yield from vars(self)


def test_objects_that_can_be_called_are_searched_too() -> None:
    example = Example((_Called(), [_Graph.__init__]), {})
    assert list(example.tensors()) == ["0.x", "0.kept.keys.0"]
    assert example.mapped(lambda tensor: tensor.to("meta")).args[0].x.is_meta


class _Empty:
    """A cache before its first call."""

    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []


def test_a_tensor_that_comes_twice_stays_one() -> None:
    x = torch.ones(2)
    copied = Example((x, [x], torch.ones(2)), {"key": x}).mapped(torch.clone)
    assert copied.args[0] is copied.args[1][0] is copied.kwargs["key"] is not x
    assert copied.args[2] is not copied.args[0]


def test_an_object_that_a_call_may_fill_is_copied_even_without_tensors() -> None:
    example = Example((_Empty(),), {})
    copied = example.mapped(torch.clone)
    copied.args[0].keys.append(torch.ones(1))
    assert not example.args[0].keys


def test_mappings_stay_what_they_are() -> None:
    given = defaultdict(list, a=torch.ones(1))
    doubled = mapped(given, lambda tensor: tensor * 2)
    assert float(doubled["a"]) == 2 and doubled["none"] == []
    batch = mapped(UserDict(a=torch.ones(1)), lambda tensor: tensor * 2)
    assert isinstance(batch, UserDict) and float(batch["a"]) == 2
    fixed = mapped(MappingProxyType({"a": torch.ones(1)}), lambda tensor: tensor * 2)
    assert float(fixed["a"]) == 2


def test_nodes_that_know_their_parent_have_an_end() -> None:
    root, leaf = _Graph(), _Graph()
    root.below, leaf.above = leaf, root
    assert [name for name in Example((root,), {}).tensors() if "above" in name] == []


def test_a_packed_sequence_is_one_argument() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 3), torch.ones(1, 3)])
    net = torch.nn.GRU(3, 4)
    example = as_example(packed)
    assert len(example.args) == 1
    assert torch.equal(net(*example.mapped(torch.clone).args)[1], net(packed)[1])


def test_a_mapping_that_holds_a_dictionary_is_not_changed_by_a_copy() -> None:
    class Batch(MutableMapping):
        def __init__(self, **held: torch.Tensor) -> None:
            self.held = held

        def __getitem__(self, name: str) -> torch.Tensor:
            return self.held[name]

        def __setitem__(self, name: str, value: torch.Tensor) -> None:
            self.held[name] = value

        def __delitem__(self, name: str) -> None:
            del self.held[name]

        def __iter__(self) -> Iterator[str]:
            return iter(self.held)

        def __len__(self) -> int:
            return len(self.held)

    batch = Batch(x=torch.ones(2))
    made = mapped(batch, lambda tensor: 2 * tensor)
    assert (made["x"].sum(), batch["x"].sum()) == (4, 2)


def test_a_list_of_a_users_own_class_keeps_its_attributes() -> None:
    class Rows(list):
        def __init__(self, rows: list[torch.Tensor], lengths: list[int]) -> None:
            super().__init__(rows)
            self.lengths = lengths

    rows = Rows([torch.ones(2), torch.ones(1)], [2, 1])
    made = mapped(rows, lambda tensor: 2 * tensor)
    assert type(made) is Rows and made.lengths == [2, 1]
    assert [float(each.sum()) for each in made] == [4, 2] and rows[0].sum() == 2


def test_a_dictionary_whose_keys_are_not_text_is_an_argument() -> None:
    rows, forward = {0: torch.ones(2)}, torch.nn.Identity().forward
    assert as_example(rows, forward) == Example((rows,), {})
    assert as_example(([1.0], rows), forward) == Example(([1.0], rows), {})


def test_parts_that_stay_compiled_are_named() -> None:
    class Half(torch.nn.Module):  # here, since the decorators import a compiler
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.compile(torch.nn.Linear(3, 3))

        @torch.compiler.disable
        def forward(self, x):
            return self.body(x)

    class Whole(Half):
        @torch.compile
        def forward(self, x):
            return self.body(x)

    class Partly(torch.nn.Module):
        @torch.compile
        def attend(self, x):
            return x

    class Inherits(Partly): ...

    assert compiled_parts(torch.nn.Sequential(Inherits())) == ["0"]
    assert compiled_parts(Partly()) == ["attend"]
    by_method = torch.nn.Sequential(torch.nn.ReLU())
    by_method[0].fast = torch.compile(by_method[0].forward)
    assert compiled_parts(by_method) == ["0"]
    assert compiled_parts(Half()) == ["body"]
    assert compiled_parts(Whole()) == ["forward", "body"]
    assert compiled_parts(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))) == []


def test_rows_are_repeated_or_left_out() -> None:
    rows = torch.eye(3)
    for batch, places in ((1, [0]), (5, [0, 1, 2, 0, 1])):
        found = Example((rows, rows.to_sparse(), torch.tensor(7)), {}).resized(batch)
        dense, sparse, scalar = found.args
        assert torch.equal(dense, rows[places]) and scalar == 7
        assert sparse.is_sparse and torch.equal(sparse.to_dense(), dense)
