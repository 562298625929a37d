"""Values inside nested containers: lists, tuples, dictionaries, dataclasses, model outputs, and the
arguments of a call."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """The values in `tree` that are no containers, by path: `0`, `logits` or `past.0.1`."""
    held = _contents(tree)
    if held is None:
        return {path: tree}
    found: dict[str, Any] = {}
    for key, value in held.items():
        found |= leaves(value, f"{path}.{key}" if path else str(key))
    return found


def tensors(tree: Any) -> dict[str, Any]:
    """The tensors in `tree` by path, in order."""
    import torch

    return {path: leaf for path, leaf in leaves(tree).items() if isinstance(leaf, torch.Tensor)}


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """A copy of `tree` with `function(tensor)` in the place of each tensor."""
    import torch

    if isinstance(tree, torch.Tensor):
        return function(tree)
    held = _contents(tree)
    if held is None:
        return tree
    changed = {key: mapped(value, function) for key, value in held.items()}
    if isinstance(tree, (list, tuple)):
        parts = list(changed.values())
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if not isinstance(tree, Mapping):
        made = copy.copy(tree)  # `replace` refuses fields that __init__ does not take
        for name, value in changed.items():
            object.__setattr__(made, name, value)
        return made
    try:
        return changed if type(tree) is dict else type(tree)(**changed)
    except TypeError:  # it is made in another way
        return changed


def as_array(tensor: Any) -> Any:
    """A copy of a tensor's values as NumPy's: BF16 as FP32, complex numbers as pairs."""
    import torch

    plain = tensor.detach().cpu().to_dense()
    plain = plain.float() if plain.dtype == torch.bfloat16 else plain
    plain = torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain
    return plain.resolve_neg().numpy().copy()


def _contents(tree: Any) -> Mapping[Any, Any] | None:
    """What a container holds, by key; None for other values, and for a list of numbers."""
    if isinstance(tree, Mapping):
        return tree
    if isinstance(tree, (list, tuple)):
        is_numeric = tree and all(type(each) in (int, float) for each in tree)
        return None if is_numeric else dict(enumerate(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return {each.name: getattr(tree, each.name) for each in dataclasses.fields(tree)}
    return None


def module_with_inputs(found: Any) -> tuple[Any, Example | None] | None:
    """The parts of a module, `(module, args)` or `(module, args, kwargs)`; None: it is none."""
    from torch import nn

    module, *given = found if isinstance(found, (tuple, list)) and found else (found,)
    module = getattr(module, "_orig_mod", module)  # inside torch.compile's
    if not isinstance(module, nn.Module) or len(given) > 2:
        return None
    if not given:
        return module, None
    is_named = len(given) == 1 and _are_keywords(module, given[0])
    args, kwargs = ((), given[0]) if is_named else given if len(given) == 2 else (given[0], {})
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    return (module, Example(args, dict(kwargs))) if isinstance(kwargs, Mapping) else None


def _are_keywords(module: Any, given: Any) -> bool:
    """Whether a dictionary holds the keyword arguments of the module, and is not the only one."""
    try:
        return isinstance(given, Mapping) and bool(inspect.signature(module.forward).bind(**given))
    except (TypeError, ValueError):
        return False


@dataclasses.dataclass(frozen=True)
class Example:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> dict[str, Any]:
        """The tensors by name: the position, or the keyword."""
        return tensors({**dict(enumerate(self.args)), **self.kwargs})

    def mapped(self, function: Callable[[Any], Any]) -> Example:
        """The same arguments with `function(tensor)` in the place of each tensor."""
        return Example(mapped(self.args, function), mapped(self.kwargs, function))

    @property
    def batch(self) -> int | None:
        """The size of the first axis, if all tensors that have axes share it."""
        sizes = {tensor.shape[0] for tensor in self.tensors().values() if tensor.dim()}
        return sizes.pop() if len(sizes) == 1 else None

    def resized(self, batch: int) -> Example:
        """The same rows, repeated or left out, as a batch of another size."""

        def rows(tensor: Any) -> Any:
            if not tensor.dim():
                return tensor
            times = -(-batch // max(1, tensor.shape[0]))
            return tensor.repeat(times, *[1] * (tensor.dim() - 1))[:batch].clone()

        return self.mapped(rows)
