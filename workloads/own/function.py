"""A user's function, whose attributes `inputs` and `check` make arguments and check results."""

import hashlib
import inspect
import pickle
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from inspect import ismodule
from pathlib import Path
from types import FunctionType
from typing import Any

from workbench.contract import THREAD_VARIABLES, Accuracy, Case, Task, WorkloadError
from workbench.files import write
from workbench.worker.block import time_sample
from workbench.worker.code import OWN, Code

from .inference import user_check
from .plain import copied, digest, is_array, parts, relative_error, unhashed, unreadable
from .reference import REDUCED
from .subject import takes_device
from .target import examining, kept_result, resolve, seed_loaded, unusable, user_errors
from .tree import leaves

LIMIT = 1e-3  # relative error against the first call that is allowed if the user sets none
OWN_SPREAD = 2.0  # times the difference of two equal calls, by which a result may differ
MOST_DRAWN = 1 << 26  # bytes of an array that may be random; a larger one was read
MOST_SPREAD = 0.1  # results that differ by more between equal calls are not compared
FIRST = "the result of the first call"
# Unfinished work in concurrent.futures, dask, multiprocessing, polars, Ray and subprocess.
LAZY = ("ApplyResult", "Future", "LazyFrame", "MapResult", "ObjectRef", "Popen")
KEEPS = 100  # times a later call, from which a first call suggests a cached result
RETURNS = (
    "let its attribute inputs(n) return a tuple of positional arguments, a dictionary of keywords,"
    " or the only argument"
)
UNFIT = (AttributeError, TypeError, ValueError)  # raised by a call with a wrong argument
TAKE_IT = "let it take a parameter `device`, and compute there"
ENDS = "name a function that reads no command line and does not exit, or race it with --command"
RUN_IT = "name a function that runs it to its end"
RETURNS_EARLY = (
    inspect.isgeneratorfunction,
    inspect.iscoroutinefunction,
    inspect.isasyncgenfunction,
)
DEVICE = "device"
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class FunctionTask(Task):
    """Calls the function; each call gets fresh arguments where calls change them."""

    def __init__(self, case: Case, code: Code) -> None:
        """Import the function and make its arguments.

        Raises WorkloadError: "bad_target" or "bad_input" for what cannot be called or timed.
        """
        self._code = code
        self.function: Callable[..., Any] = resolve(code)
        if not callable(self.function):
            raise WorkloadError(f"{code.name} is not a function", code="bad_target")
        if any(is_late(self.function) for is_late in RETURNS_EARLY):
            raise unusable(f"{code.name} returns before its work is done", RUN_IT)
        if hasattr(self.function, "cache_info"):
            text = f"{code.name} keeps its results, so only its cache would be timed"
            raise unusable(text, f"name the function without it, {code.target}.__wrapped__")
        self._inputs: Callable[..., Any] | None = getattr(self.function, "inputs", None)
        self._own_check: Callable[[Any], Any] | None = getattr(self.function, "check", None)
        self._signature = takes = _signature(self.function, code.name)
        if next(iter(takes.parameters), "") == "self":
            text = f"{code.name} is a method without its object"
            hint = "name a method of an object, module:object.method"
            raise WorkloadError(text, code="bad_target", hint=hint)
        if self._inputs is not None:
            takes = _signature(self._inputs, f"{code.name}.inputs")
        self.takes_device = takes_device(self.function) or takes_device(self._inputs)
        self.batch = _size(case.batch, takes, own=self._inputs is None)
        self._device = case.computes_on
        # By default torch, JAX and TensorFlow use TF32 on a GPU, torch in convolutions only.
        usual = LIMIT if case.computes_on == "cpu" else REDUCED
        self._limit = usual if code.max_error is None else code.max_error
        self._result: Any = None
        self.mutated: list[str] = []  # arguments that a call changes
        self.first_s = 0.0  # time of the first call that is checked and that imports nothing
        self.spread = 0.0  # relative difference of two equal calls; 0 until it is measured
        self._renew()

    def _renew(self) -> None:
        """Make new arguments, from equal seeds in every process."""
        with user_errors(f"{self._code.name}.inputs"):
            args, named = arguments(self._inputs, self.batch, self._device, self._code.seed)
        self.passes_device = takes_device(self.function) and DEVICE not in named
        keywords = {DEVICE: self._device} if takes_device(self.function) else {}
        try:
            found = self._signature.bind(*args, **{**keywords, **named})
        except TypeError as error:
            raise unusable(f"{self._code.name} cannot be called: {error}", RETURNS) from None
        self._args, self._keywords = found.args, found.kwargs
        self.named = {name: each for name, each in found.arguments.items() if name != DEVICE}

    def step(self) -> None:
        try:
            self._result = self.function(*self._args, **self._keywords)
        except (Exception, SystemExit) as error:  # a context manager would be timed
            given, hint = "", ENDS if isinstance(error, SystemExit) else None
            if self._inputs is None and self.batch is not None:
                given = f" (called with {self.batch})"
                hint = RETURNS if isinstance(error, UNFIT) else hint
            with user_errors(f"{self._code.name}{given}", hint):
                raise

    def finish(self) -> None:
        wait_for(self._result, self._device)

    def restore(self) -> None:
        self._result = None
        if self.restores:
            self._renew()

    def check(self) -> Accuracy:
        """Apply the function's own `check`, or compare with the first call with equal arguments.

        Raises WorkloadError "wrong_result" or "user_code" if its own check rejects the result.
        """
        inputs, drawn = digest(self.named), drawn_at_import(self.function)
        outcome, name = self._outcome(), f"{self._code.name}.check"
        if self._own_check is not None:
            user_check(self._own_check, self._result, name)
            return Accuracy.uncompared(name)
        if kind := unreadable(outcome):
            why = f"its result holds values of type {kind}, which only {name} could judge"
        elif self._result is None and not self.mutated:
            why = "it returns nothing"
        else:
            first_inputs, before, first, self.spread = self._first_call(inputs, drawn, outcome)
            shared = drawn.keys() & before.keys()  # the sides of `ab` may read different ones
            apart = max((relative_error(drawn[n], before[n]) for n in shared), default=0.0)
            if inputs != first_inputs or apart > self._limit:
                why = "its inputs, or arrays of its module, differ each time: seed them"
            elif self.spread > MOST_SPREAD:
                why = "two equal calls differ"
            else:
                limit = max(self._limit, OWN_SPREAD * self.spread)
                error = relative_error(outcome, first)
                if error <= limit or not (kind := unhashed(self.named)):
                    return Accuracy.within(error, limit, FIRST)
                why = f"its inputs of type {kind} may differ each time: seed them"
        return Accuracy.uncompared(f"not checked: {why}")

    def _outcome(self) -> dict[str, Any]:
        """The parts of the result of a call, and of the arguments that the call has changed."""
        before = {name: digest(value) for name, value in self.named.items()}
        loaded, began = len(sys.modules), time.perf_counter()
        self.step()
        self.finish()
        if len(sys.modules) == loaded:
            self.first_s = self.first_s or time.perf_counter() - began
        if holds_iterator(self._result) or is_lazy(self._result):
            raise unusable(f"{self._code.name} returns before its work is done", RUN_IT)
        used_up = {name for name, each in self.named.items() if holds_iterator(each)}
        changed = {name: each for name, each in self.named.items() if digest(each) != before[name]}
        self.mutated = [name for name in self.named if name in used_up | changed.keys()]
        self.restores = bool(self.mutated)
        kept = {name: each for name, each in changed.items() if name not in used_up}
        return copied(parts({"result": self._result, **kept}))

    def _first_call(self, inputs: str, drawn: dict[str, Any], outcome: dict[str, Any]) -> Any:
        """The digest of the inputs, the arrays of the module and the outcome of the first call in
        any worker, and how much a second one differed."""
        file = Path(self._code.folder, f"function-b{self.batch}.pickle")
        if not file.is_file():
            self.restore()
            spread = relative_error(self._outcome(), outcome)
            write.replace(file, pickle.dumps((inputs, drawn, outcome, spread)))
        return pickle.loads(file.read_bytes())  # noqa: S301 - written above


def _signature(function: Any, name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # not a function, or one in C without a signature
        text = f"Python cannot list the arguments of {name}"
        raise unusable(text, "define a function in Python that calls or returns it") from None


def _size(asked: int | None, takes: inspect.Signature, *, own: bool) -> int | None:
    """The n to pass: `asked`, else the default of its parameter, else 1; None without a parameter.

    That is the first parameter of `inputs`, or with `own` of the function, if it has no default.
    """
    parameters = takes.parameters.values()
    positional = (p for p in parameters if p.kind in POSITIONAL)
    first = next((each for each in positional if each.name != DEVICE), None)
    if asked is not None and (first or any(p.kind is p.VAR_POSITIONAL for p in parameters)):
        return asked
    has_default = first is not None and first.default is not inspect.Parameter.empty
    if first is None or (own and has_default):
        return None
    if not has_default:
        return 1
    is_size = type(first.default) is int and first.default > 0
    return first.default if is_size else None


def drawn_at_import(function: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """The arrays of its module that a function reads, by name, as they are before any call."""
    plain = inspect.unwrap(function)
    return _arrays(plain) if inspect.isfunction(plain) else {}


@cache
def _arrays(function: FunctionType) -> dict[str, dict[str, Any]]:
    known = function.__globals__
    read = {name: known[name] for name in function.__code__.co_names if name in known}
    return {
        name: parts({"": each})
        for name, each in read.items()
        if is_array(each) and not ismodule(each) and each.nbytes <= MOST_DRAWN
    }


def holds_iterator(value: Any) -> bool:
    """Whether a part of it is used up by reading it or has to be awaited; files can be rewound."""
    return any(
        (hasattr(part, "__next__") and not hasattr(part, "seek"))
        or inspect.isawaitable(part)
        or inspect.isasyncgen(part)
        for part in leaves(value, coarse=True).values()
    )


def is_lazy(value: Any) -> bool:
    """Whether a part of it is not computed yet; to read a part of dask would compute it."""
    return any(
        type(part).__name__ in LAZY or getattr(part, "__dask_graph__", None) is not None
        for part in leaves(value, coarse=True).values()
    )


# --save-best copies this into its script, with the functions that it calls.
def arguments(make: Any, batch: int | None, device: str, number: int) -> Any:
    """The positional arguments and the keywords that `make` returns, or only n without it."""
    seed_loaded(number)
    made = () if batch is None else (batch,)
    if make is not None:
        made = make(*made, **({"device": device} if takes_device(make) else {}))
    if isinstance(made, dict) and all(isinstance(key, str) for key in made):
        return (), made
    return made if isinstance(made, tuple) else (made,), {}


def wait_for(result: Any, device: str) -> None:
    """Wait for the results of libraries that only queue their work."""
    jax = sys.modules.get("jax")
    if jax is not None:
        jax.block_until_ready(result)
    if device == "cpu":
        return  # no GPU is visible
    kind, cupy = device.partition(":")[0], sys.modules.get("cupy")
    library = getattr(sys.modules.get("torch"), kind, None)  # torch.cuda, torch.xpu, torch.mps
    if library is not None and kind == "mps":
        library.synchronize()
    elif library is not None and library.is_initialized():
        library.synchronize(device)
    if cupy is not None and kind == "cuda":
        cupy.cuda.Device(int(device.partition(":")[2])).synchronize()
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        tensorflow.test.experimental.sync_devices()
    if kind == "cuda" and (numba := sys.modules.get("numba.cuda")) is not None:
        numba.synchronize()


def examine(code: Code) -> dict[str, Any]:
    """Facts about the function, which is called up to three times on the device `code.home`."""
    notes: list[str] = []
    with examining(code, notes, THREAD_VARIABLES, TAKE_IT):
        facts = _facts(code)
    return {**facts, "notes": facts["notes"] + notes}


def _facts(code: Code) -> dict[str, Any]:
    task = FunctionTask(Case(OWN, code.home, "python", "", batch=code.batch), code)
    inputs_sha256, inputs = digest(task.named), parts(task.named)
    arrays = [
        {"name": name, "type": str(each.dtype), "shape": list(each.shape)}
        for name, each in inputs.items()
        if is_array(each)
    ]
    accuracy = task.check()
    task.restore()
    step_s = time_sample(task, 1).host_s
    notes = [f"calls change {name}: each gets fresh inputs, untimed" for name in task.mutated]
    if accuracy.reference.startswith("not checked"):
        notes.append(accuracy.reference)
    elif task.spread > 0:
        notes.append("two calls with equal inputs differ")
    notes += kept_result(task.first_s, step_s, KEEPS)
    source = code.target.encode()
    module: Any = sys.modules.get(code.target.partition(":")[0])
    for each in (module, inspect.unwrap(task.function)):  # a partial or the like has no file
        with suppress(TypeError, OSError):
            source = Path(inspect.getfile(each)).read_bytes()
    return {
        "code_sha256": hashlib.sha256(source).hexdigest(),
        "inputs_sha256": inputs_sha256,
        "precision": "",
        "inputs": arrays,
        "batch": task.batch,
        "resizable": task.batch is not None,
        "step_s": step_s,
        "takes_device": task.takes_device,
        "passes_device": task.passes_device,
        "reference": FIRST if accuracy.reference == FIRST else "",
        "nondeterministic": task.spread > 0,
        "mutated": task.mutated,
        "notes": notes,
    }
