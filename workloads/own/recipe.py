"""How a user's module is trained: the functions next to `build`, found by their names.

`loss(output)` or `loss(output, batch)`, `optimizer(parameters)`, and `dataset()` with `collate`, or
`loader(batch_size, num_workers, pin_memory)`.  All are optional where the module returns its loss.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.contract import WorkloadError
from workbench.worker.failures import first_line

from .target import user_errors
from .tree import tensors

if TYPE_CHECKING:
    from .subject import Subject

ENDLESS = 10**12  # samples
DEFAULT_BATCH = 32  # of data, where no batch is named
IN_LOADER = "in DataLoader worker process"  # torch/_utils.py, ExceptionWrapper
EXAMPLE = "`def loss(output, batch): return torch.nn.functional.cross_entropy(output, batch[1])`"


@dataclass(frozen=True)
class Call:
    """The arguments of one call of the module."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def as_batch(self) -> Any:
        """What `inputs(batch)` returned: a tensor, a tuple or a dictionary."""
        if self.kwargs:
            return (self.args, self.kwargs) if self.args else self.kwargs
        return self.args[0] if len(self.args) == 1 else self.args


class Recipe:
    """The parts of a training; a batch is what the data yield, or a Call where there are none."""

    def __init__(self, one: Subject) -> None:
        names = ("loss", "optimizer", "dataset", "loader", "collate")
        self.loss, self.optimizer, self.dataset, self.loader, self.collate = map(one.part, names)
        self.one = one
        self.data = "loader" if self.loader else "dataset" if self.dataset else None
        self.judges_batch = self.loss is not None and _takes_two(self.loss)
        taken = inspect.signature(one.module.forward).parameters.values()
        kinds = [each.kind for each in taken]
        self._named = {each.name for each in taken}
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        any_number = inspect.Parameter.VAR_POSITIONAL in kinds
        self._most = None if any_number else sum(kind in by_place for kind in kinds)

    def arguments(self, batch: Any) -> Call:
        """The arguments of the module for a batch.

        A dictionary is passed by keyword, as far as `forward` names its keys.  A list or tuple is
        passed by position, without its last entry where `loss` takes the batch too.
        """
        if isinstance(batch, Call):
            return batch
        if isinstance(batch, Mapping):
            named = {key: value for key, value in batch.items() if key in self._named}
            return Call((), named or dict(batch))
        if not isinstance(batch, (list, tuple)):
            return Call((batch,), {})
        given = batch[:-1] if self.judges_batch and len(batch) > 1 else batch
        return Call(tuple(given)[: self._most], {})

    def loss_of(self, output: Any, batch: Any) -> Any:
        """The loss; WorkloadError "bad_input" where it is no scalar that can be differentiated."""
        if self.judges_batch:
            loss = self.loss(output, batch.as_batch() if isinstance(batch, Call) else batch)
        elif self.loss is not None:
            loss = self.loss(output)
        else:
            within = output.get("loss") if isinstance(output, Mapping) else None
            loss = getattr(output, "loss", output if within is None else within)
        if not is_scalar(loss):
            raise WorkloadError(*self._no_scalar(loss), code="bad_input", hint=f"define {EXAMPLE}")
        if not loss.requires_grad:
            raise WorkloadError(
                f"the loss of {self.one.name} does not depend on its weights",
                code="bad_input",
                hint="return a loss with a gradient: no detach() or item(), no frozen weights",
            )
        return loss

    def _no_scalar(self, loss: Any) -> tuple[str]:
        shape = getattr(loss, "shape", None)
        found = type(loss).__name__ if shape is None else f"tensor of shape {list(shape)}"
        where = "its output" if self.loss is None else "its loss function"
        return (f"{self.one.name} cannot be trained: {where} gives a {found}, not a scalar loss",)

    def optimiser(self, parameters: list[Any], *, fused: bool = False) -> Any:
        """The user's optimiser, else AdamW with torch's settings; `fused`: one kernel for all
        weights.

        Raises WorkloadError "unsupported" where it has no fused form for these weights.
        """
        import torch

        make = self.optimizer or torch.optim.AdamW
        with user_errors(f"optimizer of {self.one.name}"):
            made = make(parameters)
        if not isinstance(made, torch.optim.Optimizer):
            kind = type(made).__name__
            raise WorkloadError(f"optimizer returns {kind}, no torch optimizer", code="bad_input")
        if not fused:
            return made
        try:
            direct = "fused" in inspect.signature(make).parameters
            return make(parameters, fused=True) if direct else _fused(made)
        except (RuntimeError, TypeError, ValueError) as error:
            raise WorkloadError(f"its optimizer cannot be fused: {first_line(error)}") from error

    def batches(self, size: int, workers: int, pin: bool, seed: int) -> Iterator[Any]:
        """Endless batches of the data, as torch's loader yields them: their size is that of the
        first, so a last, smaller one is skipped.  Closing the iterator ends the loader's processes.
        """
        import torch

        torch.manual_seed(seed)
        with user_errors(f"{self.data} of {self.one.name}"):
            loader = self._loader(size, workers, pin)
        first: int | None = None
        while True:
            found = 0
            for batch in self._yielded(loader):
                first = _rows(batch) if first is None else first
                if _rows(batch) == first:
                    found += 1
                    yield batch
            if not found:
                raise WorkloadError(f"{self.data} yields no batch", code="bad_input")

    def _loader(self, size: int, workers: int, pin: bool) -> Any:
        from torch.utils.data import DataLoader, IterableDataset, RandomSampler

        if self.loader is not None:
            return self.loader(batch_size=size, num_workers=workers, pin_memory=pin)
        data = self.dataset()
        if isinstance(data, IterableDataset) or not hasattr(data, "__len__") or not len(data):
            raise WorkloadError(
                f"dataset returns a {type(data).__name__} that is empty or has no length",
                code="bad_input",
                hint="define `loader(batch_size, num_workers, pin_memory)` for data of other kinds",
            )
        # An endless epoch: its loaders persist.
        sampler = RandomSampler(data, replacement=True, num_samples=ENDLESS)
        settings = {"num_workers": workers, "pin_memory": pin, "collate_fn": self.collate}
        return DataLoader(data, size, sampler=sampler, **settings)

    def _yielded(self, loader: Any) -> Iterator[Any]:
        """The batches of one epoch; an error in a loader's process is named, not its wrapper."""
        what = f"{self.data} of {self.one.name}"
        with user_errors(what):
            batches = iter(loader)
            try:
                yield from batches
            except BaseException as error:  # closing this generator raises too
                # A traceback may keep the iterator alive, and the user the loader.
                getattr(batches, "_shutdown_workers", int)()
                if IN_LOADER not in str(error):
                    raise
                cause = str(error).strip().splitlines()[-1]
                raise WorkloadError(f"{what}: {cause}", code="user_code") from error

    def sample(self, batch: int | None, seed: int) -> Any:
        """One batch, read in this process.

        The data set is a fresh one, since loader processes must not inherit files that it opens.
        """
        if self.data is None:
            example = self.one.example(batch)
            return Call(example.args, example.kwargs)
        return next(self.batches(batch or DEFAULT_BATCH, 0, False, seed))


def is_scalar(loss: Any) -> bool:
    import torch

    return isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.is_floating_point()


def _takes_two(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    return True


def _rows(batch: Any) -> int | None:
    """The size of the first axis of its first tensor that has axes."""
    return next((len(tensor) for tensor in tensors(batch).values() if tensor.dim()), None)


def _fused(made: Any) -> Any:
    """The same optimiser with its fused kernel."""
    kind = type(made)
    known = inspect.signature(kind).parameters
    if "fused" not in known:
        raise ValueError(f"{kind.__name__} has no fused form")
    fused = {"fused": True, "foreach": None}  # foreach excludes it
    settings = {name: value for name, value in made.defaults.items() if name in known}
    return kind([{**group, **fused} for group in made.param_groups], **{**settings, **fused})
