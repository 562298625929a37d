"""A user's torch module and its inputs, the same in every worker of a run.

The first worker that needs weights, inputs or reference outputs leaves them in `Code.folder` for
the others: a builder may be random, and results of different weights cannot be compared.
"""

import copy
import inspect
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, cached_property, partial
from pathlib import Path
from types import CellType, FunctionType, MethodType
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.code import Code
from workbench.worker.failures import first_line, is_fatal, is_out_of_memory
from workbench.worker.libraries import torch

from . import archive, handing_over, script, target, tree
from .target import seed_loaded, unusable, user_errors
from .tree import Example, as_example, is_compiled, module_with_inputs, tensors, uncompiled

ARCHIVES = (".pt2", ".pt", ".pth")
WEIGHTS, INPUTS = "weights.pt", "inputs.pt"
PRECISIONS = {
    "float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16",
    "qint8": "int8", "quint8": "int8",
}  # fmt: skip
EVAL = "eval() calls train(False): give a `train` of yours another name"
DEFAULT_BATCH, TRAINED_BATCH = 1, 32  # where neither the user nor a default names one


class Subject:
    """A user's module on `code.home`, never changed; in evaluation mode unless it is trained."""

    def __init__(
        self,
        code: Code,
        module: Any,
        example: Example | None,
        parts: Any = None,  # in place of the module that defines `build`
        *,
        build: Any = None,
    ) -> None:
        self.code, self.name = code, code.name
        self.was_compiled = is_compiled(module)
        module = uncompiled(module)
        self.is_graph = archive.is_graph(module)
        module = archive.plain(module)
        # A module frozen by torch.jit has no such attribute.
        self.was_training = getattr(module, "training", False) and not self.is_graph
        _check_values(self.name, module)
        if not code.train:
            with user_errors(self.name, EVAL):  # a class may override `train`, and return nothing
                module.eval()
        with user_errors(self.name):
            self.module = self._moved(module, code.home)
        self._build = build
        self._example = example
        self.namespace = parts or sys.modules.get(code.target.partition(":")[0])
        self._share_weights()

    def part(self, name: str) -> Any:
        """The first callable of this name that is `found`; None without one."""
        return next(filter(callable, self.found(name)), None)

    def found(self, name: str) -> Iterator[Any]:
        """The objects of this name: an attribute of `build`, and those that stand next to it."""
        return found_in((self._build, self.namespace, self.defined_in), name)

    @property
    def has_builder(self) -> bool:
        """Whether the target is a function or class that builds it, not the module itself."""
        return hasattr(self._build, "__qualname__")

    @property
    def defined_in(self) -> Any:
        """The module that defines the builder; None without one."""
        return sys.modules.get(getattr(self._build, "__module__", None) or "")

    @cached_property
    def _size(self) -> inspect.Parameter | None:
        """The parameter of `inputs(batch)`: its first, unless that is a device."""
        known = parameters_of(self.part("inputs")).values()
        first = next((each for each in known if each.kind <= each.VAR_POSITIONAL), None)
        return first if first is not None and first.name != "device" else None

    @property
    def takes_batch(self) -> bool:
        return self._size is not None

    @cached_property
    def default_batch(self) -> int:
        """The batch that `inputs(batch)` gets: that of --batch, its own default, or a usual one."""
        usual = TRAINED_BATCH if self.code.train else DEFAULT_BATCH
        own = self._size.default if self._size is not None else usual
        return self.code.batch or (own if type(own) is int else usual)

    @cached_property
    def _given(self) -> Example | None:
        """The inputs of one batch that `build` or `inputs()` returned, or that `inputs` is."""
        if self._example is None and self.part("inputs") is not None and not self.takes_batch:
            return self._drawn(self.code.seed)
        if self._example is None and self.part("inputs") is None:
            held = (each for each in self.found("inputs") if tensors(each))
            self._example = next(map(self._as_example, held), None)
        if self._example is not None:
            _check_inputs(self.name, self._example)
        return self._example

    @property
    def own_batch(self) -> int | None:
        """The batch of the user's example; None if there is no axis that all inputs share."""
        is_open = self._given is None or self._given.batch is None
        asked = self.default_batch if is_open and self.takes_batch else None
        shared = self.example(asked).batch  # refuses inputs that take no batch
        return asked or shared

    def example(self, batch: int | None) -> Example:
        """The inputs at `batch`, or the user's own if that is None."""
        try:
            example: Example = kept(
                self.code,
                folder_of(self.code, batch) / INPUTS,
                lambda: self._made(batch).mapped(lambda tensor: tensor.cpu()),
            )
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            text = f"the inputs of {self.name} cannot be handed to other processes"
            hint = "return tensors, or lists, tuples or dictionaries of them"
            raise unusable(f"{text}: {first_line(error)}", hint) from error
        return example

    def drawn(self, batch: int | None, count: int) -> list[Example]:
        """Inputs from other seeds, or only the example if `inputs(batch)` is missing."""
        if not self.takes_batch:
            return [self.example(batch)]
        seeds = range(self.code.seed + 1, self.code.seed + 1 + count)
        return [self._drawn(seed, batch or self.default_batch) for seed in seeds]

    def _drawn(self, seed: int, *batch: int) -> Example:
        seed_loaded(seed)
        with user_errors(f"inputs of {self.name}"):
            make = self.part("inputs")
            named = {"device": self.code.home} if takes_device(make) else {}
            made = self._as_example(make(*batch, **named))
        _check_inputs(self.name, made)
        return made

    def _as_example(self, given: Any) -> Example:
        """The arguments of a call; without the target at their end, which only a training takes."""
        made = as_example(given, self.module.forward)
        if self.code.train or self.part("loss") is None:
            return made
        takes = partial(tree.binds, self.module.forward, **made.kwargs)
        has_target = takes(*made.args[:-1]) and not takes(*made.args)
        return Example(made.args[:-1], made.kwargs) if has_target else made

    def _made(self, batch: int | None) -> Example:
        given = self._given
        if given is not None and batch in (None, given.batch):
            return given
        if self.takes_batch:
            made = self._drawn(self.code.seed, batch or self.default_batch)
            # Another axis may follow the batch, and not only have its size by chance.
            sizes = () if batch is None or made.batch in (None, batch) else (batch, batch + 1)
            if not all(self._drawn(self.code.seed, size).shows(size) for size in sizes):
                text = f"inputs({batch}) of {self.name} makes a batch of {made.batch}"
                raise unusable(text, "let the first axis of every input be the batch")
            return made
        if given is None:
            way = "define dataset()" if self.code.train else "return (module, args) from it"
            hint = f"{way}, or define inputs(batch) next to it"
            raise unusable(f"{self.name} gives no inputs to call its module with", hint)
        if given.batch is None or batch is None:
            text = f"the inputs of {self.name} share no first axis, so there is no other batch"
            raise unusable(text, "leave out --batch, or define inputs(batch) next to it")
        return given.resized(batch)

    def copy(self) -> Any:
        try:
            return copied(self.module)
        except Exception as error:  # a module that holds what cannot be copied, such as a lock
            if is_out_of_memory(error) or is_fatal(error):
                raise
            if self._build is not None and (fresh := self._built_again(self.code.home)) is not None:
                return fresh
            text = f"{self.name} cannot be copied, so no candidate can have its own"
            again = "let it build a new module each time"
            hint = again if self.has_builder else "name a function that builds it"
            raise unusable(f"{text}: {first_line(error)}", hint) from None

    def on(self, device: Any) -> Any:
        """A fresh module on `device`, built there if its builder takes a device."""
        if device.type != "cpu" and self.code.target.endswith(".pt2"):
            file = Path(self.code.directory, self.code.target)
            return archive.plain(archive.on(file, self.code.pickled, str(device)))
        if device.type == "cpu" or self._build is None or not takes_device(self._build):
            return self._moved(self.copy(), device)
        return self._built_again(str(device)) or self.copy().to(device)

    def _moved(self, module: Any, device: Any) -> Any:
        """The module on `device`, with tensors that a script has left in plain attributes."""
        module = module.to(device)
        for part in module.modules() if self.code.is_script else ():
            held = vars(part).items()
            tensors = {name: each for name, each in held if isinstance(each, torch.Tensor)}
            vars(part).update({name: each.to(device) for name, each in tensors.items()})
        return module

    def _built_again(self, device: str) -> Any:
        """A fresh module on `device`; None if the builder returns the same one each time."""
        fresh = archive.plain(uncompiled(built(self.code, self._build, device)[0]))
        if fresh is self.module:
            fresh.to(self.code.home)  # its builder may have moved it
            return None
        fresh = fresh.to(device)
        fresh.load_state_dict(self.module.state_dict())
        for new, own in zip(fresh.buffers(), self.module.buffers(), strict=True):
            new.data.copy_(own)  # buffers outside the state dictionary may be random
        if not self.code.train:
            fresh.eval()  # in a training the builder has set what trains
        return fresh

    def _share_weights(self) -> None:
        file, own = Path(self.code.folder, WEIGHTS), self.module.state_dict()
        weights = kept(self.code, file, lambda: own)
        if own.keys() == weights.keys() and all(map(_are_equal, own.values(), weights.values())):
            return  # some modules cannot even load their own
        try:
            self.module.load_state_dict(weights)
        except (RuntimeError, KeyError) as error:
            text = f"{self.name} builds another module each time, so nothing can be compared"
            hint = "make it depend on its arguments and the random seed alone"
            raise unusable(text, hint) from error


def _are_equal(one: Any, other: Any) -> bool:
    """Whether torch finds them equal; it cannot compare tensors of torchao."""
    with suppress(NotImplementedError):
        return isinstance(one, torch.Tensor) and torch.equal(one.cpu(), other.cpu())
    return False


# --save-best copies this into its script, as it does `maker_of`: it needs nothing of ours.
def found_in(places: Iterable[Any], name: str) -> Iterator[Any]:
    """The attributes called `name` of these places, except methods, which mean something else."""
    for place in places:
        found = getattr(place, name, None)
        own = inspect.getattr_static(place, name, None)
        is_method = isinstance(place, type) and inspect.isfunction(own)
        if found is not None and not is_method:
            yield found


def weights_of(module: Any) -> list[Any]:
    """Its parameters, and the weights of quantised layers, which are none."""
    packed = (each for each in tensors(module.state_dict()).values() if each.is_quantized)
    return [*module.parameters(), *packed]


def precision_of(module: Any) -> str:
    """The precision of most of its weights."""
    sizes = Counter[str]()
    for each in weights_of(module):
        sizes[str(each.dtype).removeprefix("torch.")] += each.numel()
    most = sizes.most_common(1)[0][0] if sizes else "float32"
    return PRECISIONS.get(most, "fp32")


def _check_values(name: str, module: Any) -> None:
    """Raise WorkloadError for a module whose weights have no values yet."""
    weights = [*module.parameters(), *module.buffers()]
    if any(map(torch.nn.parameter.is_lazy, weights)):
        hint = "call it once in its builder, which gives them their shapes"
        raise unusable(f"{name} has lazy parameters", hint)
    if any(weight.is_meta for weight in weights):
        hint = "use to_empty() in its builder, and load its weights"
        raise unusable(f"{name} has parameters without values, on the meta device", hint)


def _check_inputs(name: str, example: Example) -> None:
    """Raise WorkloadError for inputs without values or, since those have no shape, nested ones."""
    given = example.tensors().values()
    if any(tensor.is_meta for tensor in given):
        raise unusable(f"the inputs of {name} are on the meta device", "give them values")
    if any(tensor.is_nested for tensor in given):
        hint = "let it take padded tensors, and nest them itself"
        raise unusable(f"the inputs of {name} are nested tensors", hint)
    if given and not any(map(torch.numel, given)):
        raise unusable(f"the inputs of {name} hold no values", "give them at least one row")


@cache
def subject_of(code: Code) -> Subject:
    """The subject of `code`, built once in each process."""
    target.keep_hidden()  # before the user's code runs
    file = code.target.partition("::")[0]
    if code.is_script:
        return Subject(code, *script.opened(code))
    if file.endswith(ARCHIVES):
        if code.pickled:  # its classes may be there
            target.search_first(code.directory)
        path = Path(code.directory, file)
        module, example = archive.opened(path, code.pickled)
        if code.home != "cpu" and path.suffix == ".pt2":  # its graph may name a device
            module = archive.on(path, code.pickled, code.home)
        return Subject(code, module, example)
    build = target.resolve(code)
    return Subject(code, *built(code, build, code.home), build=build)


def built(code: Code, build: Any, device: str) -> tuple[Any, Example | None]:
    """The module that `build` returns, and its inputs if it returns some."""
    seed_loaded(code.seed)
    returned = build
    if callable(build) and not isinstance(build, torch.nn.Module):  # a module may be named itself
        if needed := _required(build):
            hint = "give them defaults, or name a function without parameters that calls it"
            text = f"{code.name} has parameters without defaults: {needed}"
            raise WorkloadError(text, code="bad_target", hint=hint)
        with user_errors(code.name):
            returned = build(device=device) if takes_device(build) else build()
    found = module_with_inputs(returned)
    if found is None:
        text = f"{code.name} returns {type(returned).__name__}, not a torch module"
        hint = "return a module, (module, args) or (module, args, kwargs)"
        raise WorkloadError(text, code="bad_target", hint=hint)
    return found


def copied(module: Any, *shared: Any) -> Any:
    """A copy of the module that shares these of its tensors.

    `deepcopy` leaves functions as they are, so a hook that writes to `self` in its closure would
    write to the original's: functions of the copy get the copy's parts.
    """
    memo = {id(tensor): tensor for tensor in shared}
    made = copy.deepcopy(module, memo)

    def own(held: Any) -> Any:
        if isinstance(held, MethodType):
            return MethodType(held.__func__, own(held.__self__))
        return memo.get(id(held), held)

    def bound(found: FunctionType) -> FunctionType:
        cells = tuple(CellType(own(cell.cell_contents)) for cell in found.__closure__ or ())
        new = FunctionType(found.__code__, found.__globals__, None, found.__defaults__, cells)
        new.__kwdefaults__ = found.__kwdefaults__
        vars(new).update({name: own(each) for name, each in vars(found).items()})
        return new

    for part in made.modules():
        for held in (vars(part), part._forward_hooks, part._forward_pre_hooks):
            functions = [each for each in held.items() if isinstance(each[1], FunctionType)]
            held.update({name: bound(each) for name, each in functions if each.__closure__})
    return made


def folder_of(code: Code, batch: int | None) -> Path:
    return Path(code.folder, f"b{batch or 0}")


def kept(code: Code, file: Path, make: Callable[[], Any]) -> Any:
    """The result of `make` in the first worker, which writes it to `file` in one piece, since it
    may be killed."""
    # No other process can import the types that a script defines.
    pickler = handing_over.cloudpickle(code) if code.is_script else pickle
    if file.exists():  # ours, and it may hold types of the user
        return torch.load(file, map_location="cpu", weights_only=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    made = make()
    torch.save(made, file.with_suffix(".new"), pickle_module=pickler, pickle_protocol=5)
    file.with_suffix(".new").replace(file)
    return made


def parameters_of(function: Any, **how: Any) -> Any:
    """The parameters by their names; none where a builtin does not say, or without a function."""
    try:
        return inspect.signature(function, **how).parameters
    except (TypeError, ValueError):
        return {}


def takes_device(function: Any) -> bool:
    return "device" in parameters_of(function)


def _required(function: Any) -> str:
    """The parameters that a call has to name, except a device; empty if there are none."""
    known = parameters_of(function, follow_wrapped=False).values()
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = (each for each in known if each.default is each.empty and each.kind not in free)
    return ", ".join(each.name for each in needed if each.name != "device")
