"""Watches which torch modules a program calls, how long that takes, and with which inputs.

Only calls from outside every other module count.  `torch.nn.Module.__call__` is replaced meanwhile:
the global forward pre-hook gets no keyword arguments (torch 2.13, `Module._call_impl`), and torch
skips forward hooks after an exception that is no `Exception`.
"""

from __future__ import annotations

import copy
import functools
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from .tree import mapped, tensors

INSTANCES = 8  # of a class that are kept apart; a script may make a new one for every call
EXAMPLES = 4  # shapes of a module for which inputs are kept
AGAIN_S = 1.0  # a program that swallows TimeUp gets another after this time

Example = tuple[tuple[Any, ...], dict[str, Any]]  # args, kwargs


class TimeUp(BaseException):
    """Ends a program whose time is up; `except Exception` lets it pass."""


@dataclass
class Watched:
    """A module and its calls so far; a call that fails or is cut counts, with its time."""

    module: Any
    calls: int = 0
    seconds: float = 0.0
    shapes: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)  # calls "in training mode" and the like
    examples: dict[str, Example] = field(default_factory=dict)  # by shape

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call, and keep copies of its inputs, before it may change them."""
        self.ways.update(_ways(self.module))
        shape = _shape(args, kwargs)
        self.shapes[shape] += 1
        if shape in self.examples:
            return
        if len(self.examples) >= EXAMPLES:
            rarest = min(self.examples, key=self.shapes.__getitem__)
            if self.shapes[shape] <= self.shapes[rarest]:
                return
            del self.examples[rarest]
        self.examples[shape] = _copied(args, kwargs)


class Watch:
    """Notes calls of modules by the threads of this process, for a limited time."""

    def __init__(self) -> None:
        self.modules: list[Watched] = []  # in the order of their first calls
        self.seconds = 0.0  # of the program, copying of inputs excluded
        self.cut = False  # whether time was up
        self._copying_s = 0.0
        self._deadline = 0.0  # on the clock time.perf_counter
        self._over = False
        self._thread = threading.local()

    @contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        """Watch the program in the block, in the main thread; TimeUp is raised after `seconds`."""
        import torch
        import torch._dynamo  # it compares with the method that it finds when it is imported

        original = torch.nn.Module.__call__

        @functools.wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            # torch.compile and torch.export trace this line, and nothing of the watch.
            if torch.compiler.is_compiling() or self._passes():
                return original(module, *args, **kwargs)
            return self._call(original, module, args, kwargs)

        handler = signal.signal(signal.SIGALRM, lambda *_: self._stop())
        torch.nn.Module.__call__ = call
        began = time.perf_counter()
        self._deadline = began + seconds
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
            yield
        finally:
            try:
                self._over = True  # the program may have kept `call`
            finally:  # even if the alarm comes just before that
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.seconds = time.perf_counter() - began - self._copying_s
                torch.nn.Module.__call__ = original
                signal.signal(signal.SIGALRM, handler)

    def _stop(self) -> None:
        if not self._over:
            self.cut = True
            raise TimeUp

    def _passes(self) -> bool:
        """Whether a call is not watched: inside another, or in the capture of a CUDA graph, which
        allows no synchronising."""
        import torch

        if getattr(self._thread, "inside", False) or self._over:
            return True
        return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())

    def _call(self, original: Any, module: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        began = time.perf_counter()
        if began > self._deadline:
            self._stop()
        self._thread.inside = True
        try:
            watched = self._of(module)
            watched.calls += 1
            with suppress(Exception):  # inputs that cannot be copied are no fault of the program
                watched.begin(args, kwargs)
            _synchronize()
            ready = time.perf_counter()
            self._copying_s += ready - began
            try:
                return original(module, *args, **kwargs)
            finally:
                _synchronize()
                watched.seconds += time.perf_counter() - ready
        finally:
            self._thread.inside = False

    def _of(self, called: Any) -> Watched:
        """The record of a module.  Further instances of a class share that of its first."""
        compiled = type(called).__name__ == "OptimizedModule"  # what torch.compile returns
        module = called._orig_mod if compiled else called
        alike = [each for each in self.modules if type(each.module) is type(module)]
        found = next((each for each in alike if each.module is module), None)
        if found is None and len(alike) >= INSTANCES:
            found = alike[0]
            found.ways["in the place of a further instance"] += 1
        elif found is None:
            found = Watched(module)
            self.modules.append(found)
        if compiled or module._compiled_call_impl is not None:
            found.ways["in compiled form"] += 1
        return found


def _ways(module: Any) -> Iterator[str]:
    """How a module is being called, in words that follow "was called"."""
    import torch

    if module.training:
        yield "in training mode"
    if not torch.is_grad_enabled():
        yield "in inference mode" if torch.is_inference_mode_enabled() else "without gradients"
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            kind = str(torch.get_autocast_dtype(device)).rpartition(".")[2]
            yield f"under autocast to {kind} on {device}"


def _shape(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """`1x3x32x32, mask=1x8`: tensors by position, then by keyword."""
    parts = []
    for path, tensor in tensors({**dict(enumerate(args)), **kwargs}).items():
        size = "x".join(map(str, tensor.shape)) or "scalar"
        parts.append(size if path[0].isdigit() else f"{path}={size}")
    return ", ".join(parts) or "no tensors"


def _copied(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Example:
    """Detached copies of all tensors; other objects are copied where they can be."""
    import torch

    with torch.inference_mode(False), torch.no_grad():
        found = tensors((args, kwargs)).values()
        memo: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in found}
        with suppress(Exception):
            return copy.deepcopy((args, kwargs), dict(memo))
        replaced: Example = mapped((args, kwargs), lambda _, tensor: memo[id(tensor)])
        return replaced


def _synchronize() -> None:
    """Wait for CUDA, if the program uses it: its kernels run after the call has returned."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
