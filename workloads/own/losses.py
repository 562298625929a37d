"""Follows the outputs of modules to the loss that a program computes from them.

While a TorchFunctionMode is active, torch hands it each call of its functions and methods.  One is
active from a call of a module until the next one, or until an optimizer makes its step; from that
step on, too, while the loss of a module is not known.
"""

import copy
import math
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from workbench.worker.libraries import torch

from .tree import Example, tensors_inside

MOST_CALLS = 100  # most calls of a module for one loss
# Graphs stay in memory: beyond FEW_CALLS they may take MOST_BYTES more than before.
FEW_CALLS, MOST_BYTES = 4, 1 << 29
EARLY = 4  # backward passes that are followed in any case, since steps may alternate
UNKNOWN = -1  # number of a tensor that could not be followed


@dataclass(frozen=True)
class At:
    """Stands for a tensor among the arguments of a step."""

    number: int


@dataclass(frozen=True)
class Step:
    """A call of a function of torch, or of a module."""

    function: Any
    arguments: Any  # positional ones and keywords, with an At for each tensor
    takes: set[int]  # numbers of the tensors among its arguments
    makes: list[int]  # numbers of the tensors in its result
    changes: set[int] = field(default_factory=set)  # numbers of arguments that it changes in place
    has_gradients: bool = True  # whether torch recorded them

    def __deepcopy__(self, memo: dict[int, Any]) -> "Step":
        """Functions stay as they are, since that of a property such as `T` cannot be copied."""
        is_module = isinstance(self.function, torch.nn.Module)
        function = copy.deepcopy(self.function, memo) if is_module else self.function
        return replace(self, function=function, arguments=copy.deepcopy(self.arguments, memo))


@dataclass(frozen=True)
class FollowedLoss:
    """A loss as a program computed it from an output and `given` tensors, such as a target."""

    outputs: dict[int, str]  # path in the output by the tensor's number
    given: list[int]
    steps: list[Step]
    number: int  # the number of the loss
    _flattened: list[tuple[Step, list[Any], Any]] = field(init=False)

    def __post_init__(self) -> None:
        # The steps with their arguments as leaves, made once for all timed calls; torch.compile
        # cannot trace the lock of a cached_property.
        flat = [(x, *torch.utils._pytree.tree_flatten(x.arguments)) for x in self.steps]
        object.__setattr__(self, "_flattened", flat)

    def __reduce__(self) -> Any:  # torch warns when it loads a pickled structure
        return FollowedLoss, (self.outputs, self.given, self.steps, self.number)

    def __call__(self, output: Any, given: Sequence[Any]) -> Any:
        from torch.utils._pytree import tree_unflatten

        found = tensors_inside(output)
        known = {number: found[path] for number, path in self.outputs.items()}
        known |= zip(self.given, given, strict=True)
        for step, leaves, structure in self._flattened:
            placed = [known[leaf.number] if isinstance(leaf, At) else leaf for leaf in leaves]
            args, named = tree_unflatten(placed, structure)
            with torch.set_grad_enabled(step.has_gradients):
                result = step.function(*args, **named)
            known |= zip(step.makes, tensors_inside(result).values(), strict=True)
        return known[self.number]

    @property
    def is_returned(self) -> bool:
        """Whether it is the whole output, or its `loss`."""
        return not self.steps and self.outputs[self.number] in ("", "loss")


RETURNED = FollowedLoss({0: ""}, [], [], 0)  # the whole output


def joined(loss: FollowedLoss, modules: Sequence[Any], weights: Sequence[Any]) -> Any:
    """A module that takes what is given, makes the calls of `modules` for a loss and returns it;
    the loss takes these `weights` by themselves."""

    class Joined(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
        def forward(self, *given: Any) -> Any:
            return self.loss((), [*given, *self.weights])

    made = Joined()
    made.loss, made.inner = loss, torch.nn.ModuleList(modules)
    made.weights = torch.nn.ParameterList(weights)
    made.calls = sum(isinstance(step.function, torch.nn.Module) for step in loss.steps)
    return made


class Tape:
    """The calls of modules, and those of functions on what comes from their outputs."""

    def __init__(self) -> None:
        self._mode, self._passes = _mode(self), 0
        self._clear()

    def _clear(self) -> None:
        self._alive: list[Any] = []  # tensors by number; others must not get their ids
        self._numbers: dict[int, int] = {}  # by id
        # A module, the inputs of its call, as they were `awaiting`, and the path in the output.
        self._origins: dict[int, tuple[Any, Any, str]] = {}
        self._judged: set[int] = set()  # numbers of what a backward pass has used
        self._followed: set[int] = set()  # numbers of what comes from an output
        self._given: dict[int, Any] = {}  # constants, since they have no gradients
        self._weights: dict[int, Any] = {}  # parameters that a loss takes by themselves
        self._leaves: set[int] = set()  # constants with gradients, as for the penalty of a critic
        self._dependent: set[int] = set()  # outputs of calls that take more than constants
        self._foreign = {UNKNOWN}
        self._steps: list[Step] = []
        self._held_bytes = held_bytes()

    def place(self, called: Any, module: Any, example: Example) -> Step | None:
        """A call before it can change its inputs; None without a loss to follow."""
        from torch.utils._pytree import tree_leaves, tree_map_only

        earlier = sum(step.function is module for step in self._steps)
        is_large = earlier >= FEW_CALLS and held_bytes() > self._held_bytes + MOST_BYTES
        if is_large or earlier == MOST_CALLS:
            self._clear()
        elif earlier:
            self._clear_if_judged()
        wanted = called.awaits_loss or self._origins or self._passes < EARLY
        # `functional_call` puts results in place of weights, which no call of a copy would have.
        has_own = all(isinstance(weight, torch.nn.Parameter) for weight in module.parameters())
        if not (wanted and has_own and torch.is_grad_enabled()):
            return None
        place, inputs = cache(self._placed_input), (example.args, example.kwargs)
        placed = tree_map_only(torch.Tensor, place, inputs)
        takes = {place(each).number for each in example.tensors().values()}
        leaves = [each.number for each in tree_leaves(placed) if isinstance(each, At)]
        if called.module is not module or not takes <= set(leaves):  # an object holds some
            takes.add(UNKNOWN)
        return Step(module, placed, takes, [])

    def _placed_input(self, tensor: Any) -> At:
        """Inputs without gradients are constants, even where they come from an output."""
        if tensor.requires_grad:
            return At(self._taken(tensor))
        self._alive.append(tensor)
        self._given[number := len(self._alive) - 1] = _constant(tensor)
        return At(number)

    def begin(self, called: Any, step: Step | None, output: Any) -> None:
        found = tensors_inside(output)
        if step is not None and any(tensor.requires_grad for tensor in found.values()):
            own = {self._number(x): (called, called.awaiting, path) for path, x in found.items()}
            self._origins |= own
            if step.takes - self._given.keys() - self._leaves - {UNKNOWN}:
                self._dependent |= own.keys()
            step.makes.extend(map(self._number, found.values()))
            self._steps.append(step)
        self._followed |= self._origins.keys()
        self.activate(on=bool(self._origins))

    def stop(self) -> None:
        self.activate(on=False)
        self._clear_if_judged()

    def _clear_if_judged(self) -> None:
        """Start anew once each call has a loss: that of a generator may come after the step of its
        discriminator."""
        calls = (step for step in self._steps if isinstance(step.function, torch.nn.Module))
        if all(self._judged.intersection(step.makes) for step in calls):
            self._clear()

    def activate(self, *, on: bool) -> None:
        """Put the mode below those of the program, which takes its own from the top, but above that
        of `set_default_device`, which torch keeps at the bottom; or take it off."""
        from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode

        stack = _get_current_function_mode_stack()
        others = [each for each in stack if each is not self._mode]
        if on == (len(others) < len(stack)):
            return
        for _ in stack:
            _pop_mode()
        if on:
            default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
            others.insert(default is not None and default in others[:1], self._mode)
        for each in others:
            _push_mode(each)

    def call(self, function: Any, args: Any, named: Any) -> Any:
        placed, before = None, list[tuple[Any, int]]()
        with suppress(Exception):  # what cannot be followed is no fault of the program
            placed, before = self._placed(args, named)
        result = function(*args, **named)
        with suppress(Exception):
            if placed is not None:
                self._keep(function, placed, before, result)
        return result

    def _placed(self, args: Any, named: Any) -> tuple[Any, list[tuple[Any, int]]]:
        """The arguments with an At for each tensor, None if none comes from an output or has
        gradients; and the tensors with their versions."""
        from torch.utils._pytree import tree_leaves, tree_map_only

        found = [x for x in tree_leaves((args, named)) if isinstance(x, torch.Tensor)]
        is_new = self._followed.isdisjoint(self._numbers.get(id(x)) for x in found)
        # Without gradients a function of weights updates them.
        if is_new and not (torch.is_grad_enabled() and any(x.requires_grad for x in found)):
            return None, []
        before = [(x, x._version) for x in found]
        placed = tree_map_only(torch.Tensor, lambda x: At(self._taken(x)), (args, named))
        return tree_map_only(float, _in_fp16, placed), before

    def _taken(self, tensor: Any) -> int:
        is_new, is_weight = id(tensor) not in self._numbers, isinstance(tensor, torch.nn.Parameter)
        if tensor.requires_grad and tensor.is_leaf and not is_weight:
            return self._leaf(tensor)
        number = self._number(tensor)
        if is_new and not tensor.requires_grad:
            self._given[number] = _constant(tensor)
        elif is_new and is_weight:
            self._weights[number] = tensor
        elif is_new:
            self._foreign.add(number)
        return number

    def _leaf(self, tensor: Any) -> int:
        """The number of a constant that has gradients; one of its own even if it is a result."""
        number = self._numbers.get(id(tensor), UNKNOWN)
        if number not in self._leaves:
            constant = self._placed_input(tensor.detach())
            number = self._numbers[id(tensor)] = len(self._alive)
            self._alive.append(tensor)
            self._leaves.add(number)
            placed: Any = ((constant,), {})
            self._steps.append(Step(_with_gradients, placed, {constant.number}, [number]))
        return number

    def _number(self, tensor: Any) -> int:
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self._alive)
            self._alive.append(tensor)
        return self._numbers[id(tensor)]

    def _keep(self, function: Any, placed: Any, taken: list[tuple[Any, int]], result: Any) -> None:
        made = list(tensors_inside(result).values())
        changed = [x for x, version in taken if x._version != version]
        changed += [x._base for x in changed if id(x._base) in self._numbers]
        takes = {self._number(x) for x, _ in taken}
        is_followed = not takes.isdisjoint(self._followed) or any(x.requires_grad for x in made)
        if is_followed and (made or changed):
            changes = set(map(self._number, changed))
            makes = list(map(self._number, made))
            self._followed.update(makes, changes)
            grad = torch.is_grad_enabled()
            self._steps.append(Step(function, placed, takes, makes, changes, grad))
            if sys._getframe(3).f_code is torch.amp.GradScaler.scale.__code__:
                self._numbers[id(made[0])] = self._number(taken[0][0])  # the loss that it scales

    def judge(self, loss: Any) -> None:
        """Hand the loss to the module from whose call it comes, if all could be followed; to those
        of several calls, with a module that makes all of them."""
        self._passes += 1
        number = self._numbers.get(id(loss), UNKNOWN)
        needed, steps = self._needed_for(number, through=False)
        origins = {n: origin for n, origin in self._origins.items() if n in needed}
        calls = {(id(called), id(call)) for called, call, _ in origins.values()}
        beyond = self._foreign | self._dependent | self._weights.keys() | self._leaves
        is_one = len(calls) == 1 and needed.isdisjoint(beyond)
        if not is_one:
            needed, steps = self._needed_for(number, through=True)
            origins = {n: origin for n, origin in self._origins.items() if n in needed}
        if not origins or not needed.isdisjoint(self._foreign):
            self._judged.update(range(len(self._alive)))
            return
        self._judged |= needed
        given = {n: x for n, x in self._given.items() if n in needed}
        parts = {id(called): (called, call) for called, call, _ in origins.values()}.values()
        if is_one:
            ((called, call),) = parts
            paths = {n: path for n, (*_, path) in origins.items()}
            followed = FollowedLoss(paths, list(given), steps, number)
            called.judge(followed, list(given.values()), call)
            return
        weights = {n: x for n, x in self._weights.items() if n in needed}
        followed = FollowedLoss({}, [*given, *weights], steps, number)
        whole = joined(followed, [called.module for called, _ in parts], list(weights.values()))
        example = Example(tuple(given.values()), {})
        for called, call in parts:
            called.judge(RETURNED, (), call and (example, *call[1:]), whole)

    def _needed_for(self, number: int, *, through: bool) -> tuple[set[int], list[Step]]:
        """The numbers of all that a tensor comes from, and the steps that make it: from the outputs
        of calls on, or `through` these calls."""
        needed, steps = {number}, list[Step]()
        for step in reversed(self._steps):
            is_in = through or not isinstance(step.function, torch.nn.Module)
            if is_in and needed & {*step.makes, *step.changes}:
                needed |= step.takes
                steps.insert(0, step)
                if not step.has_gradients and any(self._alive[n].requires_grad for n in step.makes):
                    self._foreign.update(step.makes)  # it was inside an autograd.Function
        return needed, steps


def _in_fp16(number: float) -> float:
    """A limit of FP32, as that of clamped logits, as one of FP16: autocast raises for others."""
    is_limit = torch.finfo(torch.bfloat16).max < abs(number) < math.inf
    return math.copysign(torch.finfo(torch.float16).max, number) if is_limit else number


def held_bytes() -> int:
    """The most bytes that this process has had in memory, and those of its tensors on the GPU."""
    on_gpu = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + int(on_gpu)


def _constant(tensor: Any) -> Any:
    """A copy on the CPU, since a GPU may lack room for it."""
    return tensor.detach().to("cpu", copy=True)


def _with_gradients(constant: Any) -> Any:
    return constant.detach().requires_grad_()


def _mode(tape: Tape) -> Any:
    """A mode that hands each call of a function of torch to `tape`."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if torch.compiler.is_compiling():  # torch.compile traces this line
                return function(*args, **(kwargs or {}))
            return tape.call(function, args, kwargs or {})

    return Mode()
