"""Calls of a user's module: by torch, eager, under autocast, in another layout, compiled or as a
CUDA graph, or exported to ONNX and called by ONNX Runtime.

A step of torch takes inputs from the host and leaves its outputs there, as a caller would: on a GPU
both transfers count.  `metrics` gives the time with resident inputs.
"""

from contextlib import nullcontext, suppress
from functools import partial
from statistics import median
from typing import Any

from workbench.contract import HALF, Accuracy, Case, Setup, WorkloadError
from workbench.worker.code import Code, guard_for
from workbench.worker.libraries import torch

from .._shared.torch_task import TorchTask, compiled, dtype_of, graphed, synchronize
from ..lab.agreement import answer
from ..lab.workload import ModelTask
from . import examine
from .reference import Reference, arrays, call, guard, plain_attention, reference
from .subject import Subject, copied, subject_of
from .target import seed_loaded, user_errors
from .tree import Example, mapped_output

RESIDENT_CALLS = 5
# Modules without state, by code, device, layout and whether they are widened.
_shared: dict[tuple[Code, str, bool, bool], Any] = {}


class ModuleTask(TorchTask):
    """One call of the module on one batch."""

    waits = finishes = True  # its outputs are read back
    is_users_code = True

    def __init__(self, case: Case, setup: Setup, code: Code) -> None:
        super().__init__(case)
        self.code = code
        self.known = examine.known(code)
        self.restores = bool(self.known["mutated"]) or self.known["stateful"]
        self._start: Any = None  # the module with the state in which each timed call begins
        # Weights of 16 bits in FP32, the precision of the case, with inputs to match.
        self.widens = case.precision == "fp32" and self.known["precision"] in HALF
        self.within = guard_for(self.known["guard"], compiles=case.compile_mode is not None)
        with setup.phase("build"):
            subject = subject_of(code)
            self.pristine = subject.example(case.batch)
            if self.widens:
                self.pristine = self.pristine.mapped(
                    lambda tensor: tensor.float() if tensor.is_floating_point() else tensor
                )
            self.check_output = subject.part("check")
            self.restore()
        moving = "build" if case.device_kind == "cpu" else "transfer"
        with user_errors(subject.name), setup.phase(moving):
            self.model = self._module(subject)
            synchronize(self.device)
        self.activate()
        with user_errors(subject.name):
            if self.case.compile_mode:
                self._compile(setup)
            if "graph" in self.modes:
                with setup.phase("compile"):
                    self.model = self._graph()

    def _module(self, subject: Subject) -> Any:
        """The module on its device; cases share weights unless calls change them."""
        if self.known["stateful"]:
            return self._fresh(subject)
        key = (self.code, str(self.device), "nhwc" in self.modes, self.widens)
        if key not in _shared:
            _shared[key] = self._fresh(subject)
        # Only weights are shared, and no other state that calls leave in a module.
        like = _shared[key]
        try:
            return copied(like, *like.parameters(), *like.buffers())
        except Exception:  # it holds something that cannot be copied
            return self._fresh(subject)

    def _fresh(self, subject: Subject) -> Any:
        made = self.laid_out(subject.on(self.device))
        return made.float() if self.widens else made

    def _moved(self) -> Example:
        """The inputs on the device, in the layout of the case."""
        is_moved = self.on_gpu or "nhwc" in self.modes
        return self.hosted.mapped(self.moved) if is_moved else self.hosted

    def _autocast(self) -> Any:
        kind = dtype_of(self.case)
        if self.known["precision"] != "fp32" or kind not in (torch.bfloat16, torch.float16):
            return nullcontext()
        # A graph would replay with the addresses of weights that the cache has freed.
        cached = "graph" not in self.modes
        return torch.autocast(self.device.type, dtype=kind, cache_enabled=cached)

    def _compile(self, setup: Setup) -> None:
        example, mode = self._moved(), self.case.compile_mode
        with guard(self.within), self._autocast():
            self.model = compiled(setup, self.model, mode, *example.args, **example.kwargs)
        self.restore()

    def _graph(self) -> Any:
        """The module as a CUDA graph, with inputs copied into the graph's own."""
        model, held = self.model, self._moved().mapped(lambda tensor: tensor.clone())
        with guard(self.within), self._autocast():
            replay = graphed(lambda: model(*held.args, **held.kwargs), held.tensors().values())
        return lambda *args, **kwargs: replay(*Example(args, kwargs).tensors().values())

    def _call(self, example: Example) -> Any:
        with guard(self.within), self._autocast():
            return self.model(*example.args, **example.kwargs)

    def _answer(self) -> Any:
        output = self._call(self._moved())
        return mapped_output(output, lambda tensor: tensor.cpu()) if self.on_gpu else output

    def step(self) -> None:
        try:
            self._answer()
        except (Exception, SystemExit):  # a context manager would be timed
            with user_errors(self.code.name):
                raise

    def restore(self) -> None:
        self.hosted = self.pristine.mapped(lambda tensor: tensor.clone())  # pageable, as a caller's
        if self._start is not None:
            with suppress(Exception):  # a module that cannot be copied keeps its state
                self.model = copied(self._start, *self._start.parameters())

    def check(self) -> Accuracy:
        with user_errors(self.code.name), plain_attention():
            seed_loaded(self.code.seed)  # random outputs then equal those of eager
            output = self._answer()
            answers = list(arrays(output).values())
            if self.check_output is not None:
                with guard(self.within):  # outside, it could not change tensors of inference mode
                    user_check(self.check_output, output, f"check of {self.code.name}")
        if self.known["stateful"]:
            self._start = self.model
        self.restore()
        expected = reference_of(self.code, self.case.batch)
        return expected.judge(self.code, self.case.precision, answers)

    def metrics(self) -> dict[str, float]:
        if not self.on_gpu or self.known["mutated"]:
            return {}
        call = partial(self._call, self._moved())
        return {"resident_s": median(self.timed(call, RESIDENT_CALLS))}


class ExportedTask(ModelTask):
    """One run of a variant of the exported module, compared with the module in torch."""

    def __init__(self, case: Case, setup: Setup, code: Code) -> None:
        self.expected = reference_of(code, case.batch)  # first, since the task reads its file
        super().__init__(case, setup)
        self.code = code

    def check(self) -> Accuracy:
        answers = answer(self.session, self.outputs, self.inputs[0])
        if examine.known(self.code)["checks"]:
            self._ask_user(answers)
        return self.expected.judge(self.code, self.case.precision, answers, parts=self.parts)

    def _ask_user(self, answers: list[Any]) -> None:
        """Apply the user's own check to the answers, in the form of the module's output."""
        subject, waiting = subject_of(self.code), iter(answers)
        within = examine.known(self.code)["guard"]
        with user_errors(self.code.name):
            like = call(subject.copy(), subject.example(self.case.batch), within=within)
            output = mapped_output(like, lambda _: torch.from_numpy(next(waiting)))
            user_check(subject.part("check"), output, f"check of {self.code.name}")


def reference_of(code: Code, batch: int | None) -> Reference:
    return reference(code, batch, examine.known(code)["guard"])


def user_check(check: Any, output: Any, name: str) -> None:
    """Apply the user's own check, called `name`; WorkloadError if it rejects `output`."""
    with user_errors(name):
        verdict = check(output)
        if verdict is not None and not verdict:
            raise WorkloadError("its own check(output) rejects it", code="wrong_result")
