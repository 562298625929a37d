"""Values inside nested containers, such as lists, dataclasses and the arguments of a call."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any

from workbench.worker.libraries import nn, torch

PLAIN_LISTS, NUMBERS = ({str}, {bytes}), {int, float}  # types of the entries
SCALARS, CONTAINERS = {int, float, complex, bool, str, bytes, type(None)}, {list, tuple, dict}
DEEPEST = 100  # levels of containers in data


def leaves(tree: Any, *, coarse: bool = False) -> dict[str, Any]:
    """The values in `tree` that are not containers, by path: `0`, `logits` or `past.0.1`.  With
    `coarse`, plain data counts as one value (see `is_data`)."""
    return {path: leaf for path, _, leaf in _walk(tree, coarse=coarse)}


def is_data(tree: Any) -> bool:
    """Whether it consists of Python's own numbers, texts, lists, tuples and dictionaries.

    It is read level by level, since there may be a million records.
    """
    level = [tree]
    for _ in range(DEEPEST):
        kinds = set(map(type, level))
        if kinds - SCALARS - CONTAINERS:
            return False
        if kinds <= SCALARS:
            return True
        rows = [each for each in level if type(each) in (list, tuple)]
        tables = [each for each in level if type(each) is dict]
        level = list(chain(*rows, *tables, *map(dict.values, tables)))
    return False


def _is_numpys(kind: type) -> bool:
    """Whether it is a type of NumPy's scalars: a list of an array's values holds them."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.generic)


def _walk(
    tree: Any,
    path: str = "",
    place: str = "",
    *,
    inside: bool = False,
    coarse: bool = False,
    above: frozenset[int] = frozenset(),
) -> Iterator[tuple[str, str, Any]]:
    """The leaves, each with its path and the Python that leads to it: `[0].mask`, `['past'][0]`.

    `inside`: tensors in the attributes of other objects are leaves too.  `coarse`: see `leaves`.
    `above`: the ids of what holds `tree`, since a node may know its parent.
    """
    held = None if coarse and is_data(tree) else _contents(tree)
    held = _attributes(tree) if held is None and inside else held
    if held is None:
        yield path, place, tree
        return
    is_indexed = isinstance(tree, (Mapping, list, tuple))
    above |= {id(tree)}
    for key, value in held.items():
        if id(value) in above:
            continue
        step = f"[{key!r}]" if is_indexed else f".{key}"
        below = f"{path}.{key}" if path else str(key)
        yield from _walk(value, below, place + step, inside=inside, coarse=coarse, above=above)


def tensors(tree: Any) -> dict[str, Any]:
    """The tensors in `tree` by path, in order."""
    return {path: leaf for path, leaf in leaves(tree).items() if isinstance(leaf, torch.Tensor)}


def _tensors_inside(tree: Any) -> Iterator[tuple[str, str, Any]]:
    return (each for each in _walk(tree, inside=True) if isinstance(each[2], torch.Tensor))


def tensors_inside(tree: Any) -> dict[str, Any]:
    """The tensors in `tree` and in other objects, such as a distribution, by path, in order."""
    return {path: tensor for path, _, tensor in _tensors_inside(tree)}


def tensors_of_output(output: Any) -> dict[str, Any]:
    """The tensors of an output by path, in order; those inside other objects only if there are no
    others, since a cache may be large."""
    return tensors(output) or tensors_inside(output)


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """A copy of inputs with `function(tensor)` in place of each tensor, also in the attributes of
    other objects, such as graphs and caches.  Empty ones are copied too, since a call may fill
    them.  A tensor that comes twice stays one, since attention is faster if query, key and value
    are."""
    return _mapped(tree, cache(function), inside=True)


def mapped_output(output: Any, function: Callable[[Any], Any]) -> Any:
    """A copy of an output with `function(tensor)` in place of each of `tensors_of_output`."""
    return _mapped(output, function, inside=not tensors(output))


def _mapped(tree: Any, function: Callable[[Any], Any], *, inside: bool) -> Any:
    if isinstance(tree, torch.Tensor):
        return function(tree)
    held = _contents(tree)
    if held is None:
        return _copied(tree, function) if inside else tree
    changed = {key: _mapped(value, function, inside=inside) for key, value in held.items()}
    if isinstance(tree, tuple):
        parts = list(changed.values())
        if _is_packed(tree):
            parts[1] = tree[1]  # batch_sizes, which torch wants on the CPU
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if not isinstance(tree, (Mapping, list)):
        made = copy.copy(tree)  # `replace` refuses fields that __init__ does not take
        for name, value in changed.items():
            object.__setattr__(made, name, value)
        return made
    try:
        like: Any = copy.copy(tree)  # a default dictionary keeps its factory, others their fields
        own = getattr(like, "__dict__", {})
        own |= {name: dict(each) for name, each in own.items() if type(each) is dict}  # not shared
        for key, value in changed.items():
            like[key] = value
    except TypeError:  # it cannot be copied or changed
        return changed
    return like


def _copied(tree: Any, function: Callable[[Any], Any]) -> Any:
    """A copy of an object with `function(tensor)` in place of each tensor."""
    if not _is_plain(tree):
        return tree
    try:
        return copy.deepcopy(tree, {id(t): function(t) for t in tensors_inside(tree).values()})
    except Exception:  # it holds a lock, a file or the like
        if _attributes(tree) is None:
            return tree
        raise


def as_array(tensor: Any) -> Any:
    """A copy of a tensor's values as NumPy's: BF16 and FP8 as FP32, complex numbers as pairs, and
    nested tensors padded."""
    if tensor.is_nested:
        tensor = torch.nested.to_padded_tensor(tensor, 0.0)
    plain = tensor.detach().cpu().to_dense()
    if plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float64):
        plain = plain.float()
    plain = torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain
    return plain.resolve_neg().numpy().copy()


def _contents(tree: Any) -> Mapping[Any, Any] | None:
    """The values in a container, by key; None for others, and for a list of numbers or texts."""
    if isinstance(tree, Mapping):
        return tree
    if isinstance(tree, (list, tuple)):
        kinds = {type(each) for each in tree}
        is_plain = kinds in PLAIN_LISTS or all(map(_is_numpys, kinds - NUMBERS))
        return None if tree and is_plain else dict(enumerate(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return {each.name: getattr(tree, each.name) for each in dataclasses.fields(tree)}
    return None


def _attributes(tree: Any) -> Mapping[str, Any] | None:
    """The attributes of an object that holds tensors, such as a graph or a cache; else None."""
    return vars(tree) if _is_plain(tree) and _holds(tree, set()) else None


def _is_plain(tree: Any) -> bool:
    """Whether it is an object with attributes, but not a tensor, module, function or class."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(tree, "__dict__"):
        return False  # a worker of functions does not import torch otherwise
    # Some can be called, such as the graphs of PyTorch Geometric.
    others = (torch.Tensor, torch.nn.Module, type)
    return not (isinstance(tree, others) or inspect.isroutine(tree))


def _holds(tree: Any, seen: set[int]) -> bool:
    """Whether there is a tensor in an object, however deep."""
    if isinstance(tree, torch.Tensor):
        return True
    if id(tree) in seen or isinstance(tree, (torch.nn.Module, type)) or inspect.isroutine(tree):
        return False
    seen.add(id(tree))
    held = _contents(tree)
    held = getattr(tree, "__dict__", {}) if held is None else held
    return any(_holds(each, seen) for each in held.values())


def module_with_inputs(found: Any) -> tuple[Any, Example | None] | None:
    """The module in `module`, `(module, args)` or `(module, args, kwargs)` and its inputs, if it
    has some; None if `found` is none of these."""
    module, *given = found if isinstance(found, (tuple, list)) and found else (found,)
    if not isinstance(module, nn.Module) or len(given) > 2:
        return None
    if not given:
        return module, None
    if len(given) == 2:
        args, kwargs = given
    elif _are_keywords(given[0]) and not is_argument(given[0], unwrapped(module).forward):
        args, kwargs = (), given[0]
    else:
        args, kwargs = given[0], {}
    args = tuple(args) if are_several(args) else (args,)
    return (module, Example(args, dict(kwargs))) if isinstance(kwargs, Mapping) else None


def as_example(given: Any, forward: Any = None) -> Example:
    """The arguments that `inputs(batch)` stands for; a dictionary is one where `forward` names none
    of its keys."""
    if _are_keywords(given) and not is_argument(given, forward):
        return Example((), dict(given))
    if not are_several(given):
        return Example((given,), {})
    if len(given) == 2 and isinstance(given[0], (tuple, list)) and _are_keywords(given[1]):
        return Example(tuple(given[0]), dict(given[1]))
    return Example(tuple(given), {})


def _are_keywords(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(key, str) for key in given)


def is_argument(given: Mapping[str, Any], forward: Any) -> bool:
    """Whether a dictionary is one argument of `forward`, which then names none of its keys."""
    if not binds(forward, given) or binds(forward, **given):
        return False
    return given.keys().isdisjoint(inspect.signature(forward).parameters)


def unwrapped(module: Any) -> Any:
    """The module inside that of torch.compile; any other unchanged."""
    return getattr(module, "_orig_mod", module)


def without_parallel(module: Any) -> Any:
    """The module in DataParallel, which wants its weights on a certain GPU, or in the wrapper of
    Lightning's Fabric, which wants its own `backward`; any other unchanged."""
    wrappers = nn.DataParallel, nn.parallel.DistributedDataParallel
    is_wrapper = isinstance(module, wrappers) or type(module).__name__ == "_FabricModule"
    return module.module if is_wrapper else module


def has_mixed_forward(module: Any) -> bool:
    """Whether Accelerate has put autocast around its `forward`, in a way that cannot be pickled."""
    return "_original_forward" in vars(module)


def without_mixed_forward(module: Any) -> Any:
    """The module with the `forward` that it had before Accelerate; any other unchanged."""
    if has_mixed_forward(module):
        own = vars(module).pop("_original_forward")
        vars(module).pop("forward", None)
        if own != module.forward and getattr(own, "__self__", module) is module:
            module.forward = own  # one of the program's own
    return module


def is_compiled(module: Any) -> bool:
    """Whether torch.compile was applied to it: around it, in place, or to its `forward`."""
    in_place = getattr(module, "_compiled_call_impl", None) is not None
    return in_place or hasattr(module, "_orig_mod") or _has_compiled_forward(module)


def uncompiled(module: Any) -> Any:
    """The module inside that of torch.compile, or itself, no longer compiled in place."""
    module = unwrapped(module)
    if _has_compiled_forward(module):
        del module.forward  # it hid that of the class
    module._compiled_call_impl = None
    return module


def _has_compiled_forward(module: Any) -> bool:
    return hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")


def compiled_parts(module: Any) -> list[str]:
    """The parts that every copy compiles too: wrapped ones, and those with a compiled function; of
    the module itself, that function."""

    def compiled(part: Any) -> Iterator[str]:
        # From the root down, since a class hides what it inherits.
        levels = [*map(vars, reversed(type(part).__mro__)), vars(part)]
        for name, each in dict(chain(*(held.items() for held in levels))).items():
            is_wrapped = callable(each) and hasattr(each, "_torchdynamo_orig_callable")
            if is_wrapped and not hasattr(each, "_torchdynamo_disable"):
                yield name

    pairs = ((name, part, next(compiled(part), "")) for name, part in module.named_modules())
    return [name or own for name, part, own in pairs if own or hasattr(part, "_orig_mod")]


def are_several(given: Any) -> bool:
    """Whether it is a list of arguments; a packed sequence, a named tuple, is one argument."""
    return isinstance(given, (tuple, list)) and not _is_packed(given)


def _is_packed(given: Any) -> bool:
    return type(given).__name__ == "PackedSequence"


def binds(function: Any, /, *args: Any, **named: Any) -> bool:
    """Whether a function takes these arguments."""
    try:
        inspect.signature(function).bind(*args, **named)
    except (TypeError, ValueError):  # a builtin may have no signature
        return False
    return True


@dataclasses.dataclass(frozen=True)
class Example:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> dict[str, Any]:
        """The tensors by name: the position, or the keyword."""
        return tensors_inside(self._named)

    def places(self) -> dict[str, str]:
        """The Python that leads to each tensor from `inputs` or `named`, by the tensor's name."""
        found = _tensors_inside(self._named)
        roots = {True: "inputs", False: "named"}
        return {name: f"{roots[name[:1].isdigit()]}{place}" for name, place, _ in found}

    @property
    def _named(self) -> dict[Any, Any]:
        return {**dict(enumerate(self.args)), **self.kwargs}

    def mapped(self, function: Callable[[Any], Any]) -> Example:
        """The same arguments with `function(tensor)` in place of each tensor (see `mapped`)."""
        args, kwargs = mapped((self.args, self.kwargs), function)
        return Example(args, kwargs)

    @property
    def batch(self) -> int | None:
        """The size of the first axis, if all tensors that have axes share it."""
        sizes = {tensor.shape[0] for tensor in self.tensors().values() if tensor.dim()}
        return sizes.pop() if len(sizes) == 1 else None

    def shows(self, batch: int) -> bool:
        """Whether an axis, or a list of samples, has this size: a first axis may be the time."""
        given = self._named.values()
        sizes = {size for tensor in self.tensors().values() for size in tensor.shape}
        return batch in sizes or any(isinstance(x, list) and len(x) == batch for x in given)

    def resized(self, batch: int) -> Example:
        """The same rows, repeated or left out, as a batch of another size."""

        def rows(tensor: Any) -> Any:
            if not (tensor.dim() and len(tensor)):
                return tensor
            places = torch.arange(batch, device=tensor.device) % len(tensor)
            return tensor.index_select(0, places)  # sparse ones cannot be repeated or sliced

        return self.mapped(rows)
