"""A user's function, called with what it says itself: `inputs` and `check` are its attributes."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.contract import Accuracy, Case, Setup, Task, WorkloadError, kind_of
from workbench.worker.code import WORKLOAD, Code
from workbench.worker.failures import first_line

from .plain import digest, parts, relative_error
from .target import resolve, user_error, user_errors

LIMIT = 1e-3  # relative error against the first call, where the user names none
OWN_SPREAD = 2.0  # a result may differ by this multiple of what two equal calls differ by
MOST_SPREAD = 0.1  # results that differ by more between equal calls are not compared
WRONG = 1.0  # relative error of a result that is wrong but has no distance
FIRST = "the result of the first call"
DEVICE = "device"
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
DEFERRING = (
    inspect.isgeneratorfunction,
    inspect.iscoroutinefunction,
    inspect.isasyncgenfunction,
)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Subject:
    """The function and how it wants to be called."""

    def __init__(self, code: Code) -> None:
        """Import it; WorkloadError "bad_target" or "bad_input" if it cannot be timed."""
        self.code = code
        self.function: Callable[..., Any] = resolve(code)
        if not callable(self.function):
            raise WorkloadError(f"{code.name} is not a function", code="bad_target")
        if any(defers(self.function) for defers in DEFERRING):
            raise WorkloadError(
                f"{code.name} returns before its work is done",
                code="bad_input",
                hint="name a function that runs it to its end",
            )
        self.inputs: Callable[..., Any] | None = getattr(self.function, "inputs", None)
        self.check: Callable[[Any], Any] | None = getattr(self.function, "check", None)
        self._signature = _signature(self.function)
        self._of_inputs = _signature(self.inputs)
        self.batch = self._default_batch()

    @property
    def takes_device(self) -> bool:
        return DEVICE in {**self._signature.parameters, **self._of_inputs.parameters}

    def _default_batch(self) -> int | None:
        """The default of the parameter that gets n, otherwise 1; None where none gets it.

        It is the first of `inputs`, or the first of the function if that has no default.
        """
        asked = self._signature if self.inputs is None else self._of_inputs
        taking = (p for p in asked.parameters.values() if p.kind in POSITIONAL and p.name != DEVICE)
        size = next(taking, None)
        if size is None or (self.inputs is None and size.default is not size.empty):
            return None
        return size.default if isinstance(size.default, int) else 1

    def arguments(self, batch: int | None, device: str) -> Arguments:
        """New arguments, from equal seeds in every process; WorkloadError "bad_input" if the
        function does not take them."""
        _seed(self.code.seed)
        size = () if self.batch is None else (batch,)
        keywords = {DEVICE: device} if DEVICE in self._signature.parameters else {}
        made: Any = size
        if self.inputs is not None:
            own = {DEVICE: device} if DEVICE in self._of_inputs.parameters else {}
            with user_errors(f"{self.code.name}.inputs"):
                made = self.inputs(*size, **own)
        positional: tuple[Any, ...] = ()
        if isinstance(made, dict):
            keywords.update(made)
        else:
            positional = made if isinstance(made, tuple) else (made,)
        self._named(positional, keywords)
        return positional, keywords

    def _named(self, positional: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(self._signature.bind(*positional, **keywords).arguments)
        except TypeError as error:
            raise WorkloadError(
                f"{self.code.name} cannot be called: {error}",
                code="bad_input",
                hint="let its attribute inputs(n) return a tuple of positional arguments, a"
                " dictionary of keywords, or the only argument",
            ) from None

    def named(self, arguments: Arguments) -> dict[str, Any]:
        """The arguments by their names, the device left out."""
        found = self._named(*arguments)
        return {name: value for name, value in found.items() if name != DEVICE}


class FunctionTask(Task):
    """Calls the function; each call gets fresh arguments where calls change them."""

    def __init__(self, case: Case, code: Code) -> None:
        self.subject = Subject(code)
        self._function = self.subject.function
        self.batch = self.subject.batch if case.batch is None else case.batch
        self._on_host = kind_of(case.device).on_host
        self._device = "cpu" if self._on_host else case.device
        self._result: Any = None
        self.mutated: list[str] = []  # arguments that a call changes
        self.spread = 0.0  # relative difference of two equal calls; 0 where that is not asked
        self._renew()

    def _renew(self) -> None:
        self.arguments = self.subject.arguments(self.batch, self._device)

    def step(self) -> None:
        positional, keywords = self.arguments
        try:
            self._result = self._function(*positional, **keywords)
        except (Exception, SystemExit) as error:
            found = user_error(self.subject.code.name, error)
            if found is error:
                raise
            raise found from error

    def finish(self) -> None:
        """Wait for the results of libraries that only queue their work."""
        jax = sys.modules.get("jax")
        if jax is not None:
            jax.block_until_ready(self._result)
        if self._on_host:
            return  # no GPU is visible
        torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize(self._device)
        if cupy is not None:
            cupy.cuda.Device(int(self._device.partition(":")[2])).synchronize()

    def restore(self) -> None:
        self._result = None
        if self.restores:
            self._renew()

    def check(self) -> Accuracy:
        """By the function's own `check`, otherwise against the first call with equal arguments."""
        before = _digests(self.subject.named(self.arguments))
        self.step()
        self.finish()
        after = _digests(self.subject.named(self.arguments))
        self.mutated = [name for name in before if before[name] != after[name]]
        self.restores = bool(self.mutated)
        if self.subject.check is not None:
            return self._by_its_check(self.subject.check)
        return self._by_first_call(digest(before))

    def _outcome(self) -> dict[str, Any]:
        """The result of the call, together with the arguments that it has changed."""
        found = self.subject.named(self.arguments)
        outcome = {"result": self._result, **{name: found[name] for name in self.mutated}}
        return {name: value for name, value in outcome.items() if value is not None}

    @property
    def _limit(self) -> float:
        given = self.subject.code.max_error
        return LIMIT if given is None else given

    def _by_its_check(self, check: Callable[[Any], Any]) -> Accuracy:
        name = f"{self.subject.code.name}.check"
        try:
            verdict = check(self._result)
            verdict = verdict.item() if hasattr(verdict, "item") else verdict
        except (Exception, SystemExit) as error:
            text = f"{name}: {first_line(error)}"
            return Accuracy("relative_error", WRONG, text, self._limit, passed=False)
        if isinstance(verdict, float):
            return _judged(verdict, self._limit, name)
        passed = verdict is None or bool(verdict)
        return Accuracy("relative_error", 0.0 if passed else WRONG, name, self._limit, passed)

    def _by_first_call(self, inputs: str) -> Accuracy:
        file = Path(self.subject.code.folder, f"function-b{self.batch}.pickle")
        try:
            got = parts(self._outcome())
        except (TypeError, RecursionError) as error:
            return self._unchecked(f"its result holds {error}")
        if not got:
            return self._unchecked("it returns nothing")
        if not file.is_file():
            self.restore()
            self.step()
            self.finish()
            self.spread = relative_error(parts(self._outcome()), got)
            _keep(file, {"inputs": inputs, "parts": got, "spread": self.spread})
        first = pickle.loads(file.read_bytes())  # noqa: S301 - written above
        self.spread = first["spread"]
        if inputs != first["inputs"]:
            return self._unchecked("its inputs are not the same each time")
        if not self.spread <= MOST_SPREAD:
            return self._unchecked("two equal calls differ")
        limit = max(self._limit, OWN_SPREAD * self.spread)
        return _judged(relative_error(got, first["parts"]), limit, FIRST)

    def _unchecked(self, why: str) -> Accuracy:
        return Accuracy("relative_error", 0.0, f"not checked: {why}", self._limit, passed=True)


def _judged(error: float, limit: float, reference: str) -> Accuracy:
    """`error` within `limit`; an infinite one or NaN, which JSON lacks, is WRONG."""
    shown = error if abs(error) < 1 / sys.float_info.epsilon else max(WRONG, limit)
    return Accuracy("relative_error", shown, reference, limit, error <= limit)


def _signature(function: Callable[..., Any] | None) -> inspect.Signature:
    try:
        return inspect.Signature() if function is None else inspect.signature(function)
    except (TypeError, ValueError):  # of a built-in one
        any_keyword = inspect.Parameter("keywords", inspect.Parameter.VAR_KEYWORD)
        any_position = inspect.Parameter("positions", inspect.Parameter.VAR_POSITIONAL)
        return inspect.Signature([any_position, any_keyword])


def _seed(seed: int) -> None:
    """Seed the generators of the libraries that are loaded."""
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)


def _digests(named: Mapping[str, Any]) -> dict[str, str]:
    return {name: digest(value) for name, value in named.items()}


def _keep(file: Path, content: dict[str, Any]) -> None:
    """Write it at once: a worker that is killed leaves no half of a file."""
    unfinished = file.with_suffix(".part")
    unfinished.write_bytes(pickle.dumps(content))
    unfinished.replace(file)


def prepare(case: Case, setup: Setup, code: Code) -> Task:
    """A task that calls the function, for n = `case.batch`, on the device of the case."""
    with setup.phase("build"):
        return FunctionTask(case, code)


def examine(code: Code) -> dict[str, Any]:
    """Facts about the function, which is called up to three times on the CPU."""
    task = FunctionTask(Case(WORKLOAD, "cpu", "python", ""), code)
    named = task.subject.named(task.arguments)
    inputs_sha256, inputs = digest(named), _described(named)
    accuracy = task.check()
    task.restore()
    began = time.perf_counter()
    task.step()
    step_s = time.perf_counter() - began
    notes = [f"calls change {name}: each gets fresh inputs, untimed" for name in task.mutated]
    if accuracy.reference.startswith("not checked") or not accuracy.passed:
        notes.append(accuracy.reference)
    if task.spread:
        notes.append("two calls with equal inputs differ")
    return {
        "kind": code.kind,
        "name": code.name,
        "code_sha256": _source_sha256(task.subject.function, code),
        "inputs_sha256": inputs_sha256,
        "precision": "",
        "inputs": inputs,
        "batch": task.batch,
        "resizable": task.batch is not None,
        "step_s": step_s,
        "takes_device": task.subject.takes_device,
        "reference": accuracy.reference,
        "nondeterministic": task.spread > 0,
        "mutated": task.mutated,
        "notes": notes,
    }


def _described(named: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arrays among the arguments, as `records.code.CodeInput` has them."""
    try:
        arrays = {name: part for name, part in parts(named).items() if hasattr(part, "shape")}
    except (TypeError, RecursionError):
        return []
    return [
        {"name": name, "type": str(array.dtype), "shape": list(array.shape)}
        for name, array in arrays.items()
    ]


def _source_sha256(function: Callable[..., Any], code: Code) -> str:
    """Hash of the file that defines the function, or of its name where it has none."""
    try:
        text = Path(inspect.getfile(inspect.unwrap(function))).read_bytes()
    except (TypeError, OSError):
        text = code.target.encode()
    return hashlib.sha256(text).hexdigest()
