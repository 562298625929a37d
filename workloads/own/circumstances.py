"""The differences between a program's calls of a module and those of the race."""

import functools
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from workbench.worker.libraries import torch

from .tree import has_mixed_forward, is_compiled, unwrapped, without_parallel


def circumstances(module: Any, modal: Sequence[Any]) -> Iterator[str]:
    """The circumstances of a call that the race does not have; `modal` are its `modal_parts`."""
    around = unwrapped(module)
    if is_compiled(module) or is_compiled(without_parallel(around)):
        yield "compiled"
    if around is not without_parallel(around):
        yield f"in {type(around).__name__.lstrip('_')}"
    if has_mixed_forward(without_parallel(around)):
        yield "under autocast by Accelerate"
    first = next(module.parameters(), None)
    if first is not None and first.device.type != "cpu":
        yield f"on {first.device}"
    if any(part.training for part in modal):
        yield "in training mode"
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            kind = str(torch.get_autocast_dtype(device)).rpartition(".")[2]
            yield f"under autocast to {kind} on {device}"


def modal_parts(module: Any) -> list[Any]:
    """The parts that compute something else in training mode: torch's with dropout or batch
    statistics, and those of other classes whose source reads `.training`."""
    from torch.nn.modules.batchnorm import _NormBase
    from torch.nn.modules.dropout import _DropoutNd

    def is_modal(part: Any) -> bool:
        dropout = getattr(part, "dropout", 0.0)  # recurrent layers and attention have a number
        if isinstance(part, _NormBase | _DropoutNd) or (isinstance(dropout, float) and dropout > 0):
            return True
        kind: Any = type(part)
        return not kind.__module__.startswith("torch.nn.") and _mentions_mode(kind)

    return list(filter(is_modal, module.modules()))


@functools.cache
def _mentions_mode(kind: type) -> bool:
    try:
        return re.search(r"\.training\b", inspect.getsource(kind)) is not None
    except (OSError, TypeError):
        return True
