"""Follows the output of a module to the loss that a program computes from it.

While a TorchFunctionMode is active, torch hands it each call of its functions and methods.  One is
active from a call of a module until the next one, or until an optimizer makes its step.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from workbench.worker.libraries import torch

from .tree import tensors, tensors_of_output

MOST_CALLS = 4  # most calls of a module for one loss, since their graphs stay in memory


@dataclass(frozen=True)
class At:
    """Stands for a tensor among the arguments of a step."""

    number: int


@dataclass(frozen=True)
class Step:
    """A call of a function of torch."""

    function: Any
    arguments: Any  # positional ones and keywords, with an At for each tensor
    takes: set[int]  # numbers of the tensors among its arguments
    makes: list[int]  # numbers of the tensors in its result
    changes: set[int]  # numbers of the arguments that it changes in place
    has_gradients: bool  # whether torch recorded them


@dataclass(frozen=True)
class FollowedLoss:
    """A loss as a program computed it from an output and `given` tensors, such as a target."""

    # Path in the output, or in the list of those of several calls, by the tensor's number.
    outputs: dict[int, str]
    given: list[int]
    steps: list[Step]
    number: int  # the number of the loss

    def __call__(self, output: Any, given: Sequence[Any]) -> Any:
        from torch.utils._pytree import tree_unflatten

        found = tensors_of_output(output)
        known = {number: found[path] for number, path in self.outputs.items()}
        known |= zip(self.given, given, strict=True)
        for step, leaves, structure in self._flattened:
            placed = [known[leaf.number] if isinstance(leaf, At) else leaf for leaf in leaves]
            args, named = tree_unflatten(placed, structure)
            with torch.set_grad_enabled(step.has_gradients):
                result = step.function(*args, **named)
            known |= zip(step.makes, tensors(result).values(), strict=True)
        return known[self.number]

    @cached_property
    def _flattened(self) -> list[tuple[Step, list[Any], Any]]:
        """The steps with their arguments as leaves, since timed calls need them.  They are not
        pickled, since torch warns when it loads a pickled structure."""
        from torch.utils._pytree import tree_flatten

        return [(step, *tree_flatten(step.arguments)) for step in self.steps]

    @property
    def is_returned(self) -> bool:
        """Whether it is the whole output, or its `loss`."""
        return not self.steps and self.outputs[self.number] in ("", "loss")


RETURNED = FollowedLoss({0: ""}, [], [], 0)  # the whole output


class Tape:
    """The calls of functions on what comes from the output of a module, since it returned."""

    def __init__(self) -> None:
        self._mode = _mode(self)
        self._clear()

    def _clear(self) -> None:
        self._alive: list[Any] = []  # tensors by number; others must not get their ids
        self._numbers: dict[int, int] = {}  # by id
        # A module, the number of its call and the path in the output.
        self._origins: dict[int, tuple[Any, int, str]] = {}
        self._calls: dict[int, list[Any]] = {}  # the inputs of a module's calls, by its id
        self._is_judged = False  # whether a backward pass has begun
        self._followed: set[int] = set()  # numbers of what comes from an output
        self._given: dict[int, Any] = {}  # constants, since they have no gradients
        self._foreign: set[int] = set()  # weights, and what could not be followed
        self._steps: list[Step] = []

    def begin(self, called: Any, output: Any, *, depends: bool) -> None:
        """Follow the output of a module, if its loss is wanted, or that of another is; `depends`:
        its inputs come from weights."""
        earlier = self._calls.get(id(called), ())
        if earlier and (self._is_judged or len(earlier) == MOST_CALLS):
            self._clear()
        found = tensors_of_output(output)
        is_wanted = called.awaits_loss or self._origins
        if is_wanted and any(tensor.requires_grad for tensor in found.values()):
            calls = self._calls.setdefault(id(called), [])
            own = {self._number(x): (called, len(calls), path) for path, x in found.items()}
            calls.append(called.awaiting)
            self._origins |= own
            if depends:
                self._foreign |= own.keys()  # a step is more than this call
        self._followed |= self._origins.keys()
        self.activate(on=bool(self._origins))

    def stop(self) -> None:
        self.activate(on=False)
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
        """The arguments with an At for each tensor, None if none comes from an output; and the
        tensors with their versions."""
        from torch.utils._pytree import tree_leaves, tree_map_only

        found = [x for x in tree_leaves((args, named)) if isinstance(x, torch.Tensor)]
        if self._followed.isdisjoint(self._numbers.get(id(x)) for x in found):
            return None, []
        before = [(x, x._version) for x in found]
        return tree_map_only(torch.Tensor, lambda x: At(self._taken(x)), (args, named)), before

    def _taken(self, tensor: Any) -> int:
        is_new = id(tensor) not in self._numbers
        number = self._number(tensor)
        if is_new and tensor.requires_grad:
            self._foreign.add(number)
        elif is_new:  # on the CPU, since a GPU may lack room for it
            self._given[number] = tensor.detach().to("cpu", copy=True)
        return number

    def _number(self, tensor: Any) -> int:
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self._alive)
            self._alive.append(tensor)
        return self._numbers[id(tensor)]

    def _keep(self, function: Any, placed: Any, taken: list[tuple[Any, int]], result: Any) -> None:
        made = list(tensors(result).values())
        changed = [x for x, version in taken if x._version != version]
        changed += [x._base for x in changed if id(x._base) in self._numbers]
        if made or changed:
            takes, changes = {self._number(x) for x, _ in taken}, set(map(self._number, changed))
            makes = list(map(self._number, made))
            self._followed.update(makes, changes)
            grad = torch.is_grad_enabled()
            self._steps.append(Step(function, placed, takes, makes, changes, grad))
            if sys._getframe(3).f_code is torch.amp.GradScaler.scale.__code__:
                self._numbers[id(made[0])] = self._number(taken[0][0])  # the loss that it scales

    def judge(self, loss: Any) -> None:
        """Hand the loss to the module from whose output it was computed.  The others get a reason,
        as it does where that was not all."""
        self._is_judged = True
        needed, steps = {self._numbers.get(id(loss), -1)}, list[Step]()
        for step in reversed(self._steps):
            if needed & {*step.makes, *step.changes}:
                needed |= step.takes
                steps.insert(0, step)
                if not step.has_gradients and any(self._alive[n].requires_grad for n in step.makes):
                    self._foreign.update(step.makes)  # it was inside an autograd.Function
        origins = {n: origin for n, origin in self._origins.items() if n in needed}
        names = " and ".join(dict.fromkeys(called.name for called, *_ in origins.values()))
        for each in {id(called): called for called, *_ in self._origins.values()}.values():
            own = {n: origin[1:] for n, origin in origins.items() if origin[0] is each}
            if len(own) < len(origins):
                only = f"the output of {names}, not of {each.name} alone"
                each.no_loss = f"the script computes its loss from {only}"
            elif not own or needed & self._foreign:
                more = "from weights, other outputs or functions that --train cannot follow"
                each.no_loss = f"the script computes the loss of {each.name} also {more}"
            elif each.awaits_loss:
                given = {n: x for n, x in self._given.items() if n in needed}
                calls = sorted({call for call, _ in own.values()})
                outputs = {
                    n: path if len(calls) == 1 else f"{calls.index(call)}.{path}".rstrip(".")
                    for n, (call, path) in own.items()
                }
                followed = FollowedLoss(outputs, list(given), steps, self._numbers[id(loss)])
                made = [self._calls[id(each)][call] for call in calls]
                each.judge(followed, list(given.values()), made)


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
