"""How a user's module is trained: the functions next to `build`, found by their names.

`loss(output)` or `loss(output, batch)`, `optimizer(parameters)` or `optimizer(model)`, and
`dataset()` with `collate`, or `loader(batch_size, num_workers, pin_memory)`; `dataset` and `loader`
may be such objects instead.  A `loader` with fewer parameters is called once and must return a
DataLoader.  All are optional if the module returns its loss.
"""

import copy
import inspect
import multiprocessing
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from operator import length_hint
from typing import Any

from workbench.contract import WorkloadError
from workbench.process.cores import unbound
from workbench.worker.code import Code
from workbench.worker.libraries import torch

from .losses import FollowedLoss
from .script import WITH_LOSS
from .subject import TRAINED_BATCH, Subject, parameters_of
from .target import is_users, unusable, user_errors
from .tree import Example, binds, tensors

Batches = Generator[Any, None, None]
ENDLESS = 10**12  # samples
# The settings that a `loader` function may take, with values for a trial.
LOADING = {"batch_size": 1, "num_workers": 0, "pin_memory": False}
TRIED, ALIKE = 1000, 0.05  # weights in a trial of a fused optimiser, and their relative distance
IN_LOADER = "in DataLoader worker process"  # torch/_utils.py, ExceptionWrapper
NO_BUILDER = f"--train finds no loss in this script or archive: {WITH_LOSS}"
HINT = "define `def loss(output, batch): return F.cross_entropy(output, batch[1])` or the like"
STEP = "training_step"  # PyTorch Lightning's name for it
WITH_STEP = f"return a module whose `forward(self, batch)` returns `model.{STEP}(batch, 0)`"
WITH_TARGET = ", and let inputs(batch) return the target too"


class TrainingParts:
    """The parts of a training; a batch is what the data yield, else an Example."""

    def __init__(self, subject: Subject) -> None:
        names = ("loss", "dataset", "loader", "collate")
        self.loss, self.dataset, self.loader, self.collate = map(subject.part, names)
        if isinstance(self.loss, type):
            kind = self.loss.__name__
            raise unusable(f"the loss of {subject.name} is the class {kind}", f"write {kind}()")
        if isinstance(subject.module, torch.jit.ScriptModule):
            hint = "train the module without it"  # its copies have no weights to optimise
            raise unusable(f"{subject.name} is compiled by torch.jit", hint)
        self.subject = subject
        self.worker_init: Any = None  # worker_init_fn of the user's DataLoader
        self.resizable = True  # whether its data come in batches of any size
        self.is_listed = False  # whether a list holds its batches, which no process has to load
        self.optimizer = next(filter(None, map(maker_of, subject.found("optimizer"))), None)
        self.no_optimizer = ""  # why an optimizer of a script cannot be made again
        self.batch = subject.code.batch or TRAINED_BATCH
        if self.loader is not None and not binds(self.loader, **LOADING):
            self._take_held([self._called_once(self.loader)])
        elif self.loader is None and self.dataset is None:
            loaders = list(subject.found("loader"))
            self.is_listed = isinstance(next(iter(loaders), None), (list, tuple))
            if self.is_listed:
                batches = torch.utils.data.default_convert(loaders[0])
                self.loader, self.resizable, self.batch = (lambda **_: batches), False, 0
            else:
                self._take_held([*subject.found("dataset"), *loaders])
        self.data = "loader" if self.loader else "dataset" if self.dataset else None
        self.feed = subject.part("feed") if self.data and subject.code.is_script else None
        self.is_followed = isinstance(self.loss, FollowedLoss)
        self.judges_batch = self.loss is not None and binds(self.loss, None, None)
        self._judges_target = self.judges_batch and _takes_target(self.loss)
        taken = inspect.signature(subject.module.forward).parameters
        kinds = [each.kind for each in taken.values()]
        any_number = inspect.Parameter.VAR_POSITIONAL
        needed = (x for x in taken.values() if x.kind < any_number and x.default is x.empty)
        self._least = max(1, len(list(needed)))
        self._names = None if inspect.Parameter.VAR_KEYWORD in kinds else set(taken)
        self._most = None if any_number in kinds else sum(kind < any_number for kind in kinds)

    def at(self, device: Any, *, double: bool = False) -> "TrainingParts":
        """The same, with the tensors that a loss of torch holds, such as weights of classes, on
        this device."""
        made = copy.copy(self)
        if isinstance(made.loss, torch.nn.Module):
            made.loss = copy.deepcopy(made.loss).to(device)
            made.loss = made.loss.double() if double else made.loss
        return made

    def _called_once(self, loader: Any) -> Any:
        """The DataLoader of a function that takes only some of the settings."""
        if isinstance(loader, torch.utils.data.DataLoader):  # some can be called
            return loader
        settings = {**LOADING, "batch_size": self.batch}
        taken = inspect.signature(loader).parameters
        with user_errors(f"loader of {self.subject.name}"):
            made = loader(**{name: x for name, x in settings.items() if name in taken})
        if isinstance(made, torch.utils.data.DataLoader):
            return made
        text = f"loader of {self.subject.name} returns a {type(made).__name__}, not a DataLoader"
        raise unusable(text, f"let it take {', '.join(LOADING)}")

    def _take_held(self, held: Sequence[Any]) -> None:
        """Take a data set that stands next to `build`, or the one in a DataLoader there.  A loader
        with batches of its own is taken whole; WorkloadError "bad_input" for other iterables."""
        kinds = torch.utils.data
        for found in reversed(held):  # loaders, then data sets, which replace theirs; nearest last
            if isinstance(found, kinds.DataLoader) and _makes_own_batches(found):
                self.loader, self.dataset, self.resizable = partial(_like, found), None, False
                self.batch = getattr(found.batch_sampler, "batch_size", 0)  # 0: it does not say
            elif isinstance(found, kinds.DataLoader):
                self.batch = self.subject.code.batch or found.batch_size
                self.collate = self.collate or found.collate_fn
                self.worker_init = found.worker_init_fn
                self.dataset, self.loader = partial(copy.copy, found.dataset), None
                self.resizable = True
            elif self.resizable and (isinstance(found, kinds.Dataset) or _is_indexed(found)):
                self.dataset = partial(copy.copy, found)
        if self.loader or self.dataset:
            return
        for found in held:
            if hasattr(found, "__iter__") and not isinstance(found, (str, bytes, Mapping, type)):
                text = f"the data of {self.subject.name} are a {type(found).__name__}"
                hint = f"define loader({', '.join(LOADING)}) that returns its batches"
                raise unusable(f"{text}, neither a DataLoader nor a data set", hint)

    def arguments(self, batch: Any) -> Example:
        """The arguments of the module for a batch.

        A dictionary is passed by keyword, limited to the names in `forward`, or whole if there are
        none.  A list or tuple is passed by position, without its last entry if `loss` takes the
        batch too; inputs without data keep that entry if `forward` needs it.  A `forward(batch)`
        that returns its loss gets the whole batch.
        """
        if isinstance(batch, Example):
            has_target = self.judges_batch and not batch.kwargs and len(batch.args) > self._least
            args = batch.args[:-1] if has_target or self.is_followed else batch.args
            return Example(args[: self._most], self._taken(batch.kwargs))
        if isinstance(batch, Mapping):
            named = self._taken(batch)
            return Example((), named) if named else Example((batch,), {})
        is_whole = self.loss is None and self._names == {"batch"}
        if is_whole or not isinstance(batch, (list, tuple)):
            return Example((batch,), {})
        given = batch[:-1] if self.judges_batch and len(batch) > 1 else batch
        return Example(tuple(given)[: self._most], {})

    def _taken(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the keywords that `forward` names."""
        return {key: x for key, x in given.items() if self._names is None or key in self._names}

    def loss_on(self, module: Any, batch: Any) -> Any:
        """The loss of `module`; WorkloadError "bad_input" if it is not a scalar."""
        example = self.arguments(batch)
        output = module(*example.args, **example.kwargs)
        if self.is_followed:
            loss = self.loss(output, batch.args[-1])
        elif self._judges_target:
            loss = self._loss_of(output, self._target(batch))
        elif self.judges_batch:
            loss = self._loss_of(output, as_given(batch))
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
        raise self._no_loss(text)

    def _loss_of(self, output: Any, given: Any) -> Any:
        """The user's loss; an error of these types suggests that it takes something else."""
        try:
            return self.loss(output, given)
        except (AttributeError, TypeError):
            with user_errors(f"the loss of {self.subject.name}", HINT):
                raise

    @property
    def loss_takes(self) -> str | None:
        """The arguments of the loss as Python; None without one."""
        if self.loss is None:
            return None
        if self.is_followed:
            return "output, batch[-1]" if self.loss.given else "output"
        target = "batch[-1]" if self._judges_target else "batch"
        return f"output, {target}" if self.judges_batch else "output"

    def _target(self, batch: Any) -> Any:
        given = as_given(batch)
        if isinstance(given, (list, tuple)):
            return given[-1]
        raise self._no_loss(f"its loss takes a target, and a batch is a {type(given).__name__}")

    def _no_loss(self, text: str) -> WorkloadError:
        if self.subject.code.is_script or self.subject.namespace is None:
            return unusable(text, NO_BUILDER)
        if self.loss is None and hasattr(self.subject.module, STEP):
            return unusable(text, WITH_STEP)
        return unusable(text, HINT if self.data else HINT + WITH_TARGET)

    def optimiser(self, module: Any, *, fused: bool = False) -> Any:
        """The user's optimiser, else AdamW; WorkloadError if its `fused` form does not exist, or
        updates weights in another way."""
        if not any(weight.requires_grad for weight in module.parameters()):
            hint = "let a module hold as parameters what is trained"
            raise unusable(f"{self.subject.name} has no weights that require gradients", hint)
        try:
            made = self._made(module)
        except WorkloadError as error:
            if self.optimizer is None or not self.subject.code.is_script:
                raise
            self.optimizer, self.no_optimizer = None, str(error)
            made = self._made(module)
        kind = type(made)
        if not fused:
            return made
        if "fused" not in parameters_of(kind):
            raise WorkloadError(f"its optimizer {kind.__name__} has no fused form")
        # A group has all its settings; foreach excludes fused.
        groups = [{**g, "fused": True, "foreach": None} for g in made.param_groups]
        plain = [{**g, "fused": False} for g in groups]
        if not torch.allclose(_updated(kind, groups), _updated(kind, plain), rtol=ALIKE, atol=0.0):
            does = f"its fused {kind.__name__} does not update weights"
            raise WorkloadError(f"{does} as its plain form does", code="wrong_result")
        made = kind(groups, fused=True)
        # Else SGD would have momentum without values after a first step that overflows in FP16.
        made._step_supports_amp_scaling = isinstance(made, (torch.optim.Adam, torch.optim.AdamW))
        return made

    def _made(self, module: Any) -> Any:
        with user_errors(f"optimizer of {self.subject.name}"):
            made = (self.optimizer or maker_of(torch.optim.AdamW))(module)
            closure = parameters_of(made.step).get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            hint = "use one that steps without a closure, such as SGD or AdamW"
            kind = type(made).__name__
            raise unusable(f"its optimizer {kind} needs a closure for each step", hint)
        return made

    def batches(self, size: int | None, workers: int, pin: bool, seed: int) -> Batches:
        """Endless batches; the example's inputs if there are no data.

        A smaller one at the end of an epoch is skipped.  Closing the iterator ends the loaders.
        """
        if self.data is None:
            example = self.subject.example(size)
            while True:
                yield example
        torch.manual_seed(seed)
        what = f"{self.data} of {self.subject.name}"
        with user_errors(what):
            loader = self._loader(size or self.batch, workers, pin)
            while True:
                rows, count = None, length_hint(loader, -1)  # -1: it does not know
                for number, batch in enumerate(_named(what, loader), 1):
                    rows = rows_of(batch) if rows is None else rows
                    # Sizes may differ within an epoch, since the first axis may be the time.
                    if number == 1 or number != count or rows_of(batch) >= rows:
                        yield batch if self.feed is None else self.feed(batch)
                if rows is None and self.loader is None:
                    hint = "it has fewer samples: pass a smaller --batch"
                    raise unusable(f"{what} yields no batch of {size or self.batch}", hint)
                if rows is None:
                    hint = "let each call of it start anew, with at least one batch"
                    raise unusable(f"{what} yields no batch", hint)
                if isinstance(loader, Iterator):  # used up, unlike a list or a DataLoader
                    loader = self._loader(size or self.batch, workers, pin)

    def _loader(self, size: int, workers: int, pin: bool) -> Any:
        if self.loader is not None:
            return self.loader(batch_size=size, num_workers=workers, pin_memory=pin)
        data = self.dataset()
        settings = {"num_workers": workers, "pin_memory": pin, "collate_fn": self.collate}
        settings["worker_init_fn"] = self.worker_init
        if workers and self.subject.code.is_script:  # no new process could import its classes
            settings["multiprocessing_context"] = "fork"
        kinds = torch.utils.data
        if isinstance(data, kinds.IterableDataset):
            return kinds.DataLoader(data, size, drop_last=True, **settings)
        if not len(data):
            return ()
        # One endless epoch, since its loaders would end with it.
        sampler = kinds.RandomSampler(data, replacement=True, num_samples=ENDLESS)
        return kinds.DataLoader(data, size, sampler=sampler, **settings)

    def sample(self, size: int | None, seed: int) -> Any:
        """One batch, read here from a fresh data set: loaders must not inherit open files."""
        return next(self.batches(size, 0, False, seed))


def _updated(kind: Any, groups: Sequence[Mapping[str, Any]]) -> Any:
    """Weights that were 0 after two steps with these settings: the fused SGD of torch 2.13 leaves
    most in BF16 and FP16 as they are on a CPU (pytorch#191763)."""
    groups = [{**g, "params": [g["params"][0].new_zeros(TRIED)]} for g in groups if g["params"]]
    weights = [group["params"][0] for group in groups]
    made = kind(groups, fused=groups[0]["fused"])
    for _ in range(2):  # the second has momentum
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        made.step()
    return torch.cat([weight.cpu().double() for weight in weights])


# It has an import of its own, since `save` copies it and `parameters_of`.
def maker_of(found: Any) -> Any:
    """A function that makes an optimiser for a module, as `found` does; None if it is neither a
    function nor an optimiser."""
    import torch

    if isinstance(found, torch.optim.Optimizer):
        found = getattr(found, "optimizer", found)  # Accelerate wraps it
        kind: Any = type(found)
        taken = parameters_of(kind)
        found = partial(kind, **{k: value for k, value in found.defaults.items() if k in taken})
    if not callable(found):
        return None
    if next(iter(parameters_of(found)), "") in ("model", "module", "net", "network"):
        return found
    return lambda model: found([x for x in model.parameters() if x.requires_grad])


def _makes_own_batches(found: Any) -> bool:
    """Whether a DataLoader has no batch size, or finishes its batches itself, as those of PyTorch
    Geometric do that sample neighbours."""
    plain = torch.utils.data.DataLoader._get_iterator
    return found.batch_size is None or type(found)._get_iterator is not plain


def _like(found: Any, *, num_workers: int, pin_memory: bool, **_: object) -> Any:
    """A copy of a DataLoader that makes its own batches, with other processes."""
    made = copy.copy(found)
    made.num_workers, made.pin_memory = num_workers, pin_memory
    made.prefetch_factor = found.prefetch_factor or 2  # torch's default
    made._iterator = None  # the processes of a persistent loader that was read before
    return made


def _named(what: str, loader: Any) -> Iterator[Any]:
    """The batches of one epoch; an error in a loader's process is raised without its wrapper."""
    # Python 3.14 forks no loaders unless it is asked to.
    context = getattr(loader, "multiprocessing_context", None) or multiprocessing
    is_forked = not getattr(loader, "num_workers", 0) or context.get_start_method() == "fork"
    with nullcontext() if is_forked else unbound():
        batches = iter(loader)
    try:
        yield from batches
    except BaseException as error:  # closing this generator raises too
        getattr(batches, "_shutdown_workers", int)()  # a traceback may keep it alive
        if IN_LOADER not in str(error):
            raise
        cause = str(error).strip().splitlines()[-1]
        raise WorkloadError(f"{what}: {cause}", code="user_code") from error


def called_with(code: Code, subject: Subject, batch: int | None) -> tuple[Example, Any]:
    """The arguments of a call at `batch`, and the batch that the loss of a training may take."""
    if not code.train:
        return subject.example(batch), None
    parts = TrainingParts(subject)  # its inputs may come from its data
    sample = parts.sample(batch, code.seed)
    return parts.arguments(sample), as_given(sample)


def as_given(batch: Any) -> Any:
    """A batch as the data yield it or `inputs(batch)` returned it."""
    if not isinstance(batch, Example):
        return batch
    if batch.kwargs:
        return (batch.args, batch.kwargs) if batch.args else batch.kwargs
    return batch.args[0] if len(batch.args) == 1 else batch.args


def _is_indexed(found: Any) -> bool:
    """Whether it has samples by number, as lists and the data sets of other libraries have."""
    is_sized = hasattr(found, "__len__") and hasattr(found, "__getitem__")
    return is_sized and not isinstance(found, (str, bytes, Mapping, type))


def _takes_target(function: Any) -> bool:
    """Whether it takes only the target, as losses of torch do, such as `F.mse_loss`, and modules of
    installed packages, such as MONAI's `DiceLoss()`."""
    function = function.func if isinstance(function, partial) else function
    is_module = isinstance(function, torch.nn.Module)
    name = str(getattr(type(function) if is_module else function, "__module__", ""))
    file = getattr(sys.modules.get(name), "__file__", None)
    return name.startswith("torch.") or (is_module and file is not None and not is_users(file))


def rows_of(batch: Any) -> int:
    """The size of the first axis of its first tensor that has axes; 0 without one."""
    return next((len(tensor) for tensor in tensors(batch).values() if tensor.dim()), 0)
