"""How a user's module is trained: the functions next to `build`, found by their names.

`loss(output)` or `loss(output, batch)`, `optimizer(parameters)`, and `dataset()` with `collate`, or
`loader(batch_size, num_workers, pin_memory)`; `dataset` and `loader` may be such objects instead.
All are optional where the module returns its loss.
"""

import copy
import inspect
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.libraries import torch

from .subject import Subject
from .target import unusable, user_errors
from .tree import Example, tensors

Batches = Generator[Any, None, None]
ENDLESS = 10**12  # samples
DEFAULT_BATCH = 32  # samples from a data set, where no batch is named
IN_LOADER = "in DataLoader worker process"  # torch/_utils.py, ExceptionWrapper
NO_BUILDER = "name a builder, package.module:build, with loss(output, batch) next to it"
HINT = "define `def loss(output, batch): return F.cross_entropy(output, batch[1])` or the like"


class TrainingParts:
    """The parts of a training; a batch is what the data yield, else an Example."""

    def __init__(self, one: Subject) -> None:
        names = ("loss", "dataset", "loader", "collate")
        self.loss, self.dataset, self.loader, self.collate = map(one.part, names)
        self.one = one
        self.optimizer = next(filter(None, map(maker_of, one.found("optimizer"))), None)
        self.batch = one.code.batch or DEFAULT_BATCH
        if self.loader is None and self.dataset is None:
            self._take_held()
        self.data = "loader" if self.loader else "dataset" if self.dataset else None
        self.judges_batch = self.loss is not None and _takes_two(self.loss)
        taken = inspect.signature(one.module.forward).parameters
        kinds = [each.kind for each in taken.values()]
        any_number = inspect.Parameter.VAR_POSITIONAL
        self._names = set(taken)
        self._most = None if any_number in kinds else sum(kind < any_number for kind in kinds)

    def _take_held(self) -> None:
        """Take a data set that stands next to `build`, or that of a DataLoader there, as torch's
        own loader would."""
        from torch.utils.data import DataLoader, Dataset

        held = [each for name in ("dataset", "loader") for each in self.one.found(name)]
        for found in reversed(held):  # a loader before a data set, and the nearest of each
            if isinstance(found, DataLoader) and found.batch_size is not None:
                self.batch = self.one.code.batch or found.batch_size
                self.collate = self.collate or found.collate_fn
                self.dataset = partial(copy.copy, found.dataset)
            elif isinstance(found, Dataset) or _is_indexed(found):
                self.dataset = partial(copy.copy, found)

    def arguments(self, batch: Any) -> Example:
        """The arguments of the module for a batch.

        A dictionary is passed by keyword, as far as `forward` names its keys.  A list or tuple is
        passed by position, without its last entry where `loss` takes the batch too.
        """
        if isinstance(batch, Example):
            return batch
        if isinstance(batch, Mapping):
            named = {key: value for key, value in batch.items() if key in self._names}
            return Example((), named or dict(batch))
        if not isinstance(batch, (list, tuple)):
            return Example((batch,), {})
        given = batch[:-1] if self.judges_batch and len(batch) > 1 else batch
        return Example(tuple(given)[: self._most], {})

    def loss_on(self, module: Any, batch: Any) -> Any:
        """The loss of `module`; WorkloadError "bad_input" where it is no scalar."""
        example = self.arguments(batch)
        output = module(*example.args, **example.kwargs)
        if self.judges_batch:
            loss = self.loss(output, as_given(batch))
        elif self.loss is not None:
            loss = self.loss(output)
        else:
            within = output.get("loss") if isinstance(output, Mapping) else None
            loss = getattr(output, "loss", output if within is None else within)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            return loss
        shape = f" of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else ""
        where = "its output" if self.loss is None else "its loss function"
        text = f"{where} gives a {type(loss).__name__}{shape}, not a scalar loss"
        raise unusable(text, HINT if self.one.namespace is not None else NO_BUILDER)

    def optimiser(self, module: Any, *, fused: bool = False) -> Any:
        """The user's optimiser, else AdamW with torch's settings; `fused`: one kernel for all
        weights.

        Raises WorkloadError "unsupported" where it has no fused form.
        """
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        with user_errors(f"optimizer of {self.one.name}"):
            made = (self.optimizer or torch.optim.AdamW)(weights)
        if not fused:
            return made
        kind = type(made)
        if "fused" not in inspect.signature(kind).parameters:
            raise WorkloadError(f"its optimizer {kind.__name__} has no fused form")
        # A group has all its settings; foreach excludes fused.
        return kind([{**g, "fused": True, "foreach": None} for g in made.param_groups], fused=True)

    def batches(self, size: int | None, workers: int, pin: bool, seed: int) -> Batches:
        """Endless batches, the example's inputs where there are no data.

        All are as large as the first, so a last, smaller one is skipped.  Closing the iterator ends
        the loader's processes.
        """
        if self.data is None:
            example = self.one.example(size)
            while True:
                yield example
        torch.manual_seed(seed)
        what = f"{self.data} of {self.one.name}"
        with user_errors(what):
            loader = self._loader(size or self.batch, workers, pin)
            rows = None
            while True:
                found = False
                for batch in _named(what, loader):
                    rows = _rows(batch) if rows is None else rows
                    if _rows(batch) == rows:
                        found = True
                        yield batch
                if not found:
                    raise unusable(f"{what} yields no batch")

    def _loader(self, size: int, workers: int, pin: bool) -> Any:
        from torch.utils.data import DataLoader, IterableDataset, RandomSampler

        if self.loader is not None:
            return self.loader(batch_size=size, num_workers=workers, pin_memory=pin)
        data = self.dataset()
        settings = {"num_workers": workers, "pin_memory": pin, "collate_fn": self.collate}
        if isinstance(data, IterableDataset):
            return DataLoader(data, size, **settings)
        if not len(data):
            return ()
        # An endless epoch: its loaders persist.
        sampler = RandomSampler(data, replacement=True, num_samples=ENDLESS)
        return DataLoader(data, size, sampler=sampler, **settings)

    def sample(self, size: int | None, seed: int) -> Any:
        """One batch, read in this process.

        The data set is a fresh one, since loader processes must not inherit files that it opens.
        """
        return next(self.batches(size, 0, False, seed))


# It has an import of its own, since `save` copies it.
def maker_of(found: Any) -> Any:
    """The function that makes an optimiser, or one that makes others like it; None for what is
    neither."""
    import torch

    if not isinstance(found, torch.optim.Optimizer):
        return found if callable(found) else None
    kind: Any = type(found)
    taken = inspect.signature(kind).parameters
    return partial(kind, **{k: value for k, value in found.defaults.items() if k in taken})


def _named(what: str, loader: Any) -> Iterator[Any]:
    """The batches of one epoch; an error in a loader's process is named, not its wrapper."""
    batches = iter(loader)
    try:
        yield from batches
    except BaseException as error:  # closing this generator raises too
        getattr(batches, "_shutdown_workers", int)()  # a traceback may keep it alive
        if IN_LOADER not in str(error):
            raise
        cause = str(error).strip().splitlines()[-1]
        raise WorkloadError(f"{what}: {cause}", code="user_code") from error


def as_given(batch: Any) -> Any:
    """A batch as the data yield it or `inputs(batch)` returned it."""
    if not isinstance(batch, Example):
        return batch
    if batch.kwargs:
        return (batch.args, batch.kwargs) if batch.args else batch.kwargs
    return batch.args[0] if len(batch.args) == 1 else batch.args


def _is_indexed(found: Any) -> bool:
    """Whether it yields samples by number, as lists and the data sets of other libraries do."""
    is_sized = hasattr(found, "__len__") and hasattr(found, "__getitem__")
    return is_sized and not isinstance(found, (str, bytes, Mapping, type))


def _takes_two(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    return True


def _rows(batch: Any) -> int | None:
    """The size of the first axis of its first tensor that has axes."""
    return next((len(tensor) for tensor in tensors(batch).values() if tensor.dim()), None)
