"""Tensors inside nested containers: lists, tuples, dictionaries, dataclasses, model outputs, and
the arguments of a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


def tensors(tree: Any) -> dict[str, Any]:
    """The tensors in `tree` by their path, such as `0`, `logits` or `past.0.1`, in order."""
    found: dict[str, Any] = {}
    mapped(tree, lambda path, tensor: found.setdefault(path, tensor))
    return found


def mapped(tree: Any, function: Callable[[str, Any], Any], path: str = "") -> Any:
    """A copy of `tree` with `function(path, tensor)` in the place of each tensor."""
    import torch

    if isinstance(tree, torch.Tensor):
        return function(path, tree)
    if isinstance(tree, Mapping):
        changed = {key: mapped(value, function, _inner(path, key)) for key, value in tree.items()}
        return _like(tree, changed)
    if isinstance(tree, (list, tuple)):
        parts = [mapped(value, function, _inner(path, place)) for place, value in enumerate(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [each.name for each in dataclasses.fields(tree)]
        changed = {
            name: mapped(getattr(tree, name), function, _inner(path, name)) for name in names
        }
        return dataclasses.replace(tree, **changed)
    return tree


def _inner(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _like(tree: Mapping[Any, Any], changed: dict[Any, Any]) -> Any:
    """`changed` in the type of `tree`, where that can be made from keywords or a dictionary."""
    if type(tree) is dict:
        return changed
    try:
        return type(tree)(**changed)
    except TypeError:
        return changed


def module_with_inputs(found: Any) -> tuple[Any, Example | None] | None:
    """The parts of a module, `(module, args)` or `(module, args, kwargs)`; None: it is none."""
    from torch import nn

    parts = found if isinstance(found, (tuple, list)) else (found,)
    if not (1 <= len(parts) <= 3 and isinstance(parts[0], nn.Module)):
        return None
    if len(parts) == 1:
        return parts[0], None
    args = parts[1] if isinstance(parts[1], (tuple, list)) else (parts[1],)
    kwargs = parts[2] if len(parts) == 3 else {}
    return (parts[0], Example(tuple(args), dict(kwargs))) if isinstance(kwargs, Mapping) else None


@dataclasses.dataclass(frozen=True)
class Example:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> dict[str, Any]:
        """The tensors by name: the position, or the keyword."""
        return tensors({**dict(enumerate(self.args)), **self.kwargs})

    def mapped(self, function: Any) -> Example:
        """The same arguments with `function(tensor)` in the place of each tensor."""

        def each(_: str, tensor: Any) -> Any:
            return function(tensor)

        args = tuple(mapped(list(self.args), each))
        return Example(args, mapped(self.kwargs, each))

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
