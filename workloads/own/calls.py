"""Watches which torch modules a program calls, how long, with which inputs, and whether it trains.

Only the outermost calls count.  `torch.nn.Module.__call__` is replaced meanwhile: the global
forward pre-hook gets no keyword arguments (torch 2.13, `Module._call_impl`), and torch skips
forward hooks after a BaseException such as TimeUp.
"""

import copy
import functools
import gc
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from workbench.worker.libraries import torch

from .circumstances import circumstances, modal_parts
from .feeding import Fed, noted
from .losses import Tape
from .tree import Example, tensors, unwrapped, without_parallel

INSTANCES = 8  # most per class with records of their own; a program may make one for every call
SHAPES = 5  # most that are listed
ENOUGH = 10  # calls of a trained module, after which half of the program's time is enough
AHEAD, AHEAD_BYTES = 64, 1 << 28  # most batches that are kept; most bytes if more than two are
AGAIN_S = 1.0  # a program that swallows TimeUp gets another after this time


class TimeUp(BaseException):
    """Ends a program whose time is up; `except Exception` lets it pass."""


@dataclass
class Called:
    """A module and its calls so far, including those that fail or are cut short."""

    name: str  # its class, numbered from the second instance on: "Net", "Net#2"
    module: Any
    calls: int = 0
    seconds: float = 0.0  # each call lasts until CUDA is done
    has_gradients: bool = False  # a backward pass has left gradients
    transformed: bool = False  # called by a function of torch.func, such as vmap
    # The most frequent inputs that have a loss, else those of the most frequent shapes (the larger
    # if equal).
    example: Example | None = None
    counts: Counter[str] = field(default_factory=Counter)  # calls by shapes
    loss: Any = None  # a FollowedLoss, and the tensors that it took besides the output
    given: Any = None
    joined: Any = None  # a module that makes all calls from which its loss comes
    steps: set[frozenset[Any]] = field(default_factory=set)  # the modules of each of its losses
    fed: Sequence[Fed] = ()  # the latest batches of DataLoaders before the call of the example
    caller: str = ""  # latest method of a larger module that called it: "Agent.act"
    _circumstances: Counter[str] = field(default_factory=Counter)  # calls, as "in training mode"
    _kept: str = ""  # shapes of the example
    _latest: str = ""  # shapes of the latest call
    # The latest call until it has a loss: its inputs, their shapes and the batches before it.
    awaiting: tuple[Example, str, Sequence[Fed]] | None = None

    @property
    def shapes(self) -> list[str]:
        """The shapes of its inputs, such as "8x3x32x32, mask=8x1", the most frequent first."""
        return [shapes for shapes, _ in self.counts.most_common(SHAPES)]

    @property
    def raced(self) -> Any:
        return self.joined or self.module

    @functools.cached_property
    def _modal(self) -> list[Any]:
        return modal_parts(self.module)

    @property
    def notes(self) -> list[str]:
        """How its calls differ from those of the race."""
        counts = self._circumstances.items()
        return [f"{self.name} was {how} in {n} of {self.calls} calls" for how, n in counts]

    @property
    def part(self) -> list[str]:
        """A note if a method of a larger module calls this one, since only this one is seen."""
        is_forward = self.caller.endswith(".forward")
        how = "call the module itself" if is_forward else "name a builder to race all of it"
        larger = f"the script calls {self.caller}, of which only {self.name} races"
        return [f"{larger}: {how}"] if self.caller and self.joined is None else []

    def begin(
        self, example: Example, called: Any, fed: Sequence[Fed] = (), *, follows: bool = False
    ) -> None:
        """Count a call, and copy its inputs before it can change them.  Calls inside torch.func are
        skipped, since its tensors mean nothing outside."""
        if torch._C._functorch.maybe_current_level() is not None:
            self.transformed = True
            return
        self._circumstances.update(circumstances(called, () if follows else self._modal))
        self._latest, self.awaiting = (shapes := _shapes(example)), None
        self.counts[shapes] += 1
        ahead = self.counts[shapes] - self.counts[self._kept]
        is_other = ahead > 0
        if ahead == 0 and shapes != self._kept and self.example is not None:
            # Growing inputs would otherwise be copied in every call.
            is_other = _values(example) >= 2 * _values(self.example)
        if is_other or (follows and self.awaits_loss):
            self.awaiting = _copied(example), shapes, fed
            if is_other and self.loss is None:
                self.example, self._kept, self.fed = self.awaiting

    def take(self, other: "Called") -> None:
        """Add the calls of another module of its class."""
        self.calls += other.calls
        self.seconds += other.seconds
        self.counts += other.counts
        self._circumstances += other._circumstances
        self.has_gradients |= other.has_gradients

    @property
    def awaits_loss(self) -> bool:
        """Whether a loss of the latest call should be kept."""
        return self.loss is None or self.counts[self._latest] > self.counts[self._kept]

    def judge(self, loss: Any, given: Any, call: Any, joined: Any = None) -> None:
        """Keep a loss with its call, as it was `awaiting`, if its inputs were copied."""
        self.steps.add(frozenset([self.module] if joined is None else joined.inner))
        if call and self.awaits_loss:
            self.loss, self.given, self.joined = loss, given, joined
            self.example, self._kept, self.fed = call


@dataclass
class Run:
    """A program's run: the modules that it calls, its settings, and how it ended."""

    wanted: str = ""  # name of the module that is to race; empty: any
    follows: bool = False  # whether the losses are wanted
    limit_s: float = 0.0  # time after which it is cut
    modules: list[Called] = field(default_factory=list)  # in the order of their first calls
    seconds: float = 0.0  # until it ended or was cut, without the time for watching it
    cut: bool = False  # time was up
    notes: list[str] = field(default_factory=list)  # how it called, how it ended, what it left
    paths: list[str] = field(default_factory=list)  # folders that it added to `sys.path`
    threads: int | None = None  # number that it set for torch
    dtype: str | None = None  # the default type that it set for torch: "float64"
    lingers: bool = False  # its threads still run
    optimizers: list[Any] = field(default_factory=list)  # those that made a step, or exist if cut
    failure: Any = None  # the WorkloadError that says how it failed
    backwards: int = 0  # backward passes
    updates: int = 0  # steps of optimizers, without those that share their backward passes
    # Name of a module and "Class.method" that called it: whether that class is the larger module.
    _callers: dict[tuple[str, str], bool] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)  # classes of more modules than INSTANCES
    _updated: int = -1  # backward passes before the latest step
    _thread: threading.local = field(default_factory=threading.local)

    @contextmanager
    def watched(self, seconds: float) -> Iterator[None]:
        """Watch the program in the block, in the main thread; TimeUp ends it after `seconds`, or
        after half of them if it trains: later steps are like earlier ones."""
        import torch._dynamo  # first, since it remembers the `__call__` that it finds
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        original, backward = torch.nn.Module.__call__, torch.autograd.backward

        @functools.wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            # torch.compile and torch.export must trace this line only.
            if torch.compiler.is_compiling() or self._is_unwatched(module):
                return original(module, *args, **kwargs)
            return self._call(original, module, Example(args, kwargs))

        @functools.wraps(backward)
        def back(*args: Any, **kwargs: Any) -> None:
            with suppress(Exception):  # more than one loss, or none
                self._thread.tape.judge(args[0])
            backward(*args, **kwargs)
            if not torch.compiler.is_compiling():
                self.backwards += 1
                ended = time.perf_counter()
                self._note_gradients()  # before the next step clears them
                self.seconds -= time.perf_counter() - ended

        def halfway(*_: object) -> None:
            found = (each for each in self.modules if self.wanted in ("", each.name))
            if any(each.calls >= ENOUGH and self.trains(each) for each in found):
                self._stop()
            self.limit_s = seconds
            signal.signal(signal.SIGALRM, self._stop)
            signal.setitimer(signal.ITIMER_REAL, seconds / 2, AGAIN_S)

        self.limit_s = seconds / 2
        handler = signal.signal(signal.SIGALRM, halfway)
        before = register_optimizer_step_pre_hook(self._note_step)
        after = register_optimizer_step_post_hook(self._follow_weights)
        torch.nn.Module.__call__, torch.autograd.backward = call, back
        began = time.perf_counter()
        watching = noted(self._note_fed) if self.follows else nullcontext()
        try:
            with suppress(TimeUp), watching:
                signal.setitimer(signal.ITIMER_REAL, seconds / 2, AGAIN_S)
                yield
                signal.setitimer(signal.ITIMER_REAL, 0)  # a last TimeUp may come just before
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.seconds += time.perf_counter() - began
            torch.nn.Module.__call__, torch.autograd.backward = original, backward
            before.remove()
            after.remove()
            self._stop_following()
            self._note_gradients()  # compiled steps were not watched
            signal.signal(signal.SIGALRM, handler)

    def trains(self, called: Called) -> bool:
        """Whether it has an optimizer, or a backward pass has left gradients."""
        return called.has_gradients or bool(self.optimizers_of(called))

    def optimizers_of(self, called: Called) -> list[tuple[Any, set[int]]]:
        """The optimizers of its weights, the latest first, each with the ids of those weights."""
        own, found = {id(weight) for weight in called.raced.parameters()}, []
        for each in reversed(self.optimizers):
            held = own & {id(x) for group in each.param_groups for x in group["params"]}
            found += [(each, held)] if held else []
        return found

    @property
    def passes(self) -> list[str]:
        """A note if it makes more backward passes than optimizer steps, as gradients add up."""
        if not self.optimizers or self.backwards < 1.2 * self.updates + 1:
            return []
        each = f"{self._updated / self.updates:.2g}" if self.updates else f"over {self.backwards}"
        made = f"the script makes {each} backward passes per optimizer step"
        return [f"{made}; a raced step makes one"]

    @property
    def hides_calls(self) -> bool:
        """Whether torch.compile compiled functions and no module: it traces the calls in them."""
        compiles = torch._dynamo.utils.counters["frames"]["total"] > 0
        return compiles and not any("compiled" in each._circumstances for each in self.modules)

    def _note_gradients(self) -> None:
        for each in self.modules:
            weights = () if each.has_gradients else each.module.parameters()
            each.has_gradients |= any(weight.grad is not None for weight in weights)

    def _note_step(self, optimizer: Any, *_: object) -> None:
        self._stop_following()
        self.updates += self.backwards > self._updated
        self._updated = self.backwards
        if optimizer not in self.optimizers:  # they compare by identity
            self.optimizers.append(optimizer)

    def _follow_weights(self, *_: object) -> None:
        """Follow what the next loss takes of single weights before its first call of a module,
        while a trained module has no loss yet."""
        lacks = any(each.has_gradients and each.loss is None for each in self.modules)
        if lacks and hasattr(self._thread, "tape"):
            self._thread.tape.activate(on=True)

    @property
    def _fed(self) -> list[Fed]:
        return getattr(self._thread, "fed", [])

    def _note_fed(self, fed: Fed) -> None:
        """Keep the batch and those before that may have been read in advance: Accelerate reads one,
        and the Trainer of transformers all of an optimizer step."""
        size = AHEAD_BYTES
        with suppress(Exception):  # a batch may hold anything
            size = sum(tensor.nbytes for tensor in Example((fed.batch,), {}).tensors().values())
        self._thread.fed = [fed, *self._fed[: max(1, min(AHEAD, AHEAD_BYTES // max(1, size)))]]

    def _stop_following(self) -> None:
        if hasattr(self._thread, "tape"):
            self._thread.tape.stop()

    def _note_caller(self, frame: FrameType, called: Called) -> None:
        """Note a larger module of which the program calls a method: only its parts are seen."""
        is_method = frame.f_code.co_varnames[:1] == ("self",)
        caller, method = frame.f_locals.get("self") if is_method else None, frame.f_code.co_name
        if not isinstance(caller, torch.nn.Module) or caller is called.module:
            return
        name = f"{type(caller).__name__}.{method}"
        if (key := (called.name, name)) not in self._callers:
            own = {id(weight) for weight in called.module.parameters()}
            is_larger = any(id(weight) not in own for weight in caller.parameters())
            self._callers[key] = is_larger or method == "forward"
        called.caller = name if self._callers[key] else called.caller

    def _stop(self, *_: object) -> None:
        if not self.cut:  # a call that compiles may be cut before the first step of an optimizer
            kind = torch.optim.Optimizer
            made = [each for each in gc.get_objects() if issubclass(type(each), kind)]
            self.optimizers[:0] = [each for each in made if each not in self.optimizers]
        self.cut = True
        raise TimeUp

    def _is_unwatched(self, module: Any) -> bool:
        """Whether a call is inside another, or inside a capture of a CUDA graph, which cannot be
        synchronised.  Inside one that only hides weights, as those of YOLO do, they are watched."""
        inside = getattr(self._thread, "inside", None)
        if inside or (inside is False and not _has_weights(module)):
            return True
        if getattr(module, "_is_replica", False):
            return True
        return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())

    def _call(self, original: Any, module: Any, example: Example) -> Any:
        # The program waits for the work that it has queued; that wait is not the module's.
        _synchronize()
        began, around = time.perf_counter(), getattr(self._thread, "inside", None)
        self._thread.inside = self.follows or _has_weights(module)
        try:
            inner = unwrapped(without_parallel(unwrapped(module)))
            called = self._record(inner)
            called.calls += 1
            self._note_caller(sys._getframe(2), called)
            tape, fed = self._tape_for(module), self._fed
            if tape is not None:
                tape.activate(on=False)
            step = None
            with suppress(Exception):  # inputs that cannot be copied are no fault of the program
                called.begin(example, module, fed, follows=tape is not None)
                if tape is not None:
                    step = tape.place(called, inner, example)
            _synchronize()
            ready = time.perf_counter()
            self.seconds -= ready - began
            try:
                result = original(module, *example.args, **example.kwargs)
            finally:
                _synchronize()
                called.seconds += time.perf_counter() - ready
            if tape is not None:
                with suppress(Exception):  # results that are no tensors
                    tape.begin(called, step, result)
            return result
        finally:
            self._thread.inside = around

    def _tape_for(self, module: Any) -> Tape | None:
        """The tape for the output of a module with weights; None for others, such as losses, whose
        functions are on the tape themselves."""
        if not self.follows or not _has_weights(module):
            return None
        if not hasattr(self._thread, "tape"):
            self._thread.tape = Tape()
        found: Tape = self._thread.tape
        return found

    def _record(self, module: Any) -> Called:
        """The record of a module, or of all modules of its class if there are over INSTANCES."""
        kind = type(module).__name__
        alike = [each for each in self.modules if type(each.module).__name__ == kind]
        for each in alike:
            if each.module is module or kind in self._shared:
                return each
        if len(alike) == INSTANCES:
            self._shared.add(kind)
            first, *others = alike
            for each in others:
                first.take(each)
            self.modules = [each for each in self.modules if not any(each is x for x in others)]
            return first
        self.modules.append(Called(f"{kind}#{len(alike) + 1}" if alike else kind, module))
        return self.modules[-1]


def _has_weights(module: Any) -> bool:
    return next(module.parameters(), None) is not None


def _values(example: Example) -> int:
    return sum(tensor.numel() for tensor in example.tensors().values())


def _shapes(example: Example) -> str:
    """The shapes of its tensors by position, then by keyword: `1x3x32x32, mask=1x8`."""
    parts = []
    for path, tensor in example.tensors().items():
        # Inside torch.jit.trace sizes are tensors.
        size = "x".join(str(int(each)) for each in tensor.shape) or "scalar"
        parts.append(size if path[0].isdigit() else f"{path}={size}")
    return ", ".join(parts) or "no tensors"


def _copied(example: Example) -> Example:
    """Copies of all objects; those of tensors are detached."""
    with torch.inference_mode(False), torch.no_grad():
        given = tensors(example).values()  # on the CPU, since a GPU may lack room for them
        memo: dict[int, Any] = {id(x): x.detach().to("cpu", copy=True) for x in given}
        return copy.deepcopy(example, memo)


def _synchronize() -> None:
    """Wait for CUDA, if the program uses it: its kernels run after the call has returned."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
