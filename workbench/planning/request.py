"""The options of one run, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .. import catalog
from ..contract import (
    COLUMNS,
    DEVICE_KINDS,
    MOST_BATCH,
    MOST_THREADS,
    PRECISIONS,
    kind_of,
)
from ..report.cut_run import CutRun
from ..worker.code import COMMAND, FUNCTION, TORCH
from ..worker.session_options import ONNX_BACKENDS
from .model_question import ModelQuestion
from .number_lists import numbers
from .own_question import MODES, OwnQuestion
from .usage import UsageError, unknown

DEFAULT_BUDGET_S = 60.0
QUICK_BUDGET_S = 20.0
THOROUGH_BUDGET_S = 300.0
MODEL_BUDGET_S = 30.0
LONGEST_BUDGET_S = 86_400.0
ALL_BUDGET_S, ALL_QUICK_BUDGET_S = 900.0, 180.0  # for `run --all`
ALL_ROWS_BUDGET_S, ALL_ROWS_QUICK_BUDGET_S = 300.0, 60.0  # for `advise --all`
MODEL = ModelQuestion.option
NAME_PYTHON = "name the Python interpreter of an environment, such as .venv/bin/python"
SLOWEST, FASTEST = 1e-3, 1e4  # limits for a simulated GPU, in multiples of this CPU's speed


@dataclass(frozen=True)
class Request:
    """The options of one run, the same for TUI, `--json` and `--jsonl`."""

    scenarios: tuple[str, ...] = ()  # for `advise`; all if neither these nor workloads are named
    workloads: tuple[str, ...] = ()  # for `run`
    every: bool = False  # `run --all`
    budget_s: float | None = None
    quick: bool = False
    thorough: bool = False
    devices: tuple[str, ...] = ()  # "cpu", "gpu", "cuda:0", "fake:0@8"
    backends: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()  # "plain" is the mode without a name
    threads: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()  # "name=value", "name=64,100" or "name=64..4096"
    python: str | None = None
    seed: int = 0
    largest_batch: bool = False
    force: bool = False  # search the largest batch even on a GPU that other processes use
    trace: str | None = None  # file to write
    strict: bool = False  # exit 3 if a verdict is open
    strict_samples: bool = False  # exit 3 if a result carries a warning
    ceilings: bool = False  # `ceilings`: measure what the machine can reach
    model: ModelQuestion | None = None  # `advise --model`
    own: OwnQuestion | None = None  # `advise --torch`, `--function` or `--command`
    scenario_file: str | None = None  # this and the options below belong to `advise`
    all_scenarios: bool = False  # includes the optional ones
    crossover: bool = False
    prices: tuple[str, ...] = ()  # "cpu=0.10", per hour
    price_file: str | None = None
    what_if: tuple[str, ...] = ()  # devices to compare with that this machine does not have
    resumes: CutRun | None = None  # the run that this one goes on with; no option of the command

    @property
    def budget(self) -> float:
        """Seconds from the start of the process to its end."""
        if self.budget_s is not None:
            return self.budget_s
        if self.every:
            return ALL_QUICK_BUDGET_S if self.quick else ALL_BUDGET_S
        if self.all_scenarios:
            return ALL_ROWS_QUICK_BUDGET_S if self.quick else ALL_ROWS_BUDGET_S
        if self.quick:
            return QUICK_BUDGET_S
        if self.thorough:
            return THOROUGH_BUDGET_S
        return DEFAULT_BUDGET_S if self.model is None else MODEL_BUDGET_S

    @property
    def extension_s(self) -> float:
        """Seconds by which a run may exceed `budget` for rows that are open at its end."""
        chosen = self.budget_s is not None or self.quick or self.thorough
        return 0.0 if chosen else DEFAULT_BUDGET_S

    @property
    def _has_advice(self) -> bool:
        """Whether an option is set that only `advise` has."""
        given = (self.scenario_file, self.price_file, self.prices, self.what_if)
        return any(given) or self.all_scenarios or self.crossover

    @property
    def question(self) -> ModelQuestion | OwnQuestion | None:
        """The question about the user's own model or code; None for scenarios and workloads."""
        return self.model or self.own

    def arguments(self, *display: str) -> list[str]:
        """The command line with the same meaning, and with these options of display."""
        command: list[str] = []
        if self.every:
            command = ["run", "--all"]
        elif self.workloads:
            command = ["run", *self.workloads]
        elif self.ceilings:
            command = ["ceilings", "--again"]
        elif self.question is not None:
            command = ["advise", *self.question.options()]
        elif self.scenarios or self._has_advice:
            command = ["advise", *self.scenarios]
        flags = {
            "--quick": self.quick,
            "--thorough": self.thorough,
            "--largest-batch": self.largest_batch,
            "--force": self.force,
            "--strict": self.strict,
            "--strict-samples": self.strict_samples,
            "--all": self.all_scenarios,
            "--crossover": self.crossover,
        }
        command += [name for name, is_set in flags.items() if is_set]
        budget = [] if self.budget_s is None else [str(self.budget_s).removesuffix(".0")]
        given: dict[str, Iterable[str | None]] = {
            "--budget": budget,
            "--device": self.devices,
            "--backend": self.backends,
            "--precision": self.precisions,
            "--mode": self.modes,
            "--set": self.settings,
            "--threads": [",".join(map(str, self.threads)) or None],
            "--batch": [",".join(map(str, self.batch)) or None],
            "--python": [self.python],
            "--trace": [self.trace],
            "--seed": [str(self.seed) if self.seed else None],
            "--scenarios": [self.scenario_file],
            "--price": self.prices,
            "--prices": [self.price_file],
            "--what-if": self.what_if,
        }
        for name, texts in given.items():
            for text in texts:
                command += [] if text is None else [name, text]
        of_script = self.own.arguments if self.own is not None else ()
        return [*command, *display, *(["--", *of_script] if of_script else [])]


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """One number or several: `8`, `1,8,64` or `1..256`; UsageError names the option."""
    try:
        return tuple(int(number) for number in numbers(text, int))
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None


def words(texts: Iterable[str]) -> tuple[str, ...]:
    """The values of an option that is repeated or takes a list with commas, or both."""
    parts = (part.strip() for text in texts for part in text.split(","))
    return tuple(part for part in parts if part)


def check(request: Request) -> None:
    """Raise UsageError for options that no machine could meet."""
    for backend in request.backends:
        if backend not in (known := catalog.backends()):
            raise unknown("backend", backend, known)
    for precision in request.precisions:
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
    for device in request.devices:
        check_device(device)
    fake_devices(request)
    if not 1 <= request.budget <= LONGEST_BUDGET_S:  # also true for NaN
        raise UsageError(f"--budget must be between 1 and {LONGEST_BUDGET_S:g} s")
    if request.thorough and (request.quick or request.every):
        other = "--quick" if request.quick else "--all"
        raise UsageError(f"{other} and --thorough exclude each other")
    _check_largest_batch(request)
    if request.all_scenarios and request.scenarios:
        names = " ".join(request.scenarios)
        raise UsageError(f"--all means every scenario: leave out --all or {names}")
    if request.question is not None:
        _check_question(request, request.question)
    for threads in request.threads:
        if not 1 <= threads <= MOST_THREADS:
            raise UsageError(f"--threads must be between 1 and {MOST_THREADS}, not {threads}")


def _check_largest_batch(request: Request) -> None:
    if request.force and not request.largest_batch:
        raise UsageError("--force belongs to --largest-batch")
    if request.trace is not None and request.largest_batch:
        raise UsageError("--trace profiles a race, but --largest-batch runs none")


def _check_question(request: Request, question: ModelQuestion | OwnQuestion) -> None:
    option = question.option
    if request.scenarios:
        names = " ".join(request.scenarios)
        raise UsageError(f"{option} replaces scenarios: leave out {option} or {names}")
    try:
        question.check()
    except ValueError as error:
        raise UsageError(str(error)) from None
    _check_unused(request, option)
    check_batches(request.batch)
    is_training = isinstance(question, OwnQuestion) and question.train
    if len(request.batch) > 1 and (is_training or option in (MODEL, f"--{FUNCTION}")):
        raise UsageError(f"{'--train' if is_training else option} takes one --batch")
    if option == MODEL and set(request.backends) - {*ONNX_BACKENDS}:
        raise UsageError(f"--backend: an ONNX model runs on {' or '.join(ONNX_BACKENDS)}")
    for word in (word for mode in request.modes for word in mode.split("+")):
        if word not in MODES:
            raise unknown("mode", word, MODES)


def _check_unused(request: Request, option: str) -> None:
    """Refuse the options that do not apply to what `option` names."""
    given: dict[str, object] = {
        "--scenarios": request.scenario_file,
        "--all": request.all_scenarios,
        "--crossover": request.crossover,
        "--what-if": request.what_if,
        "--set": request.settings,
    }
    if option in (f"--{FUNCTION}", f"--{COMMAND}"):
        given |= {"--backend": request.backends, "--precision": request.precisions}
    if option != f"--{TORCH}":
        given["--mode"] = request.modes
    if option == f"--{COMMAND}":
        given |= {"--threads": request.threads, "--batch": request.batch}
    if options := [name for name, value in given.items() if value]:
        raise UsageError(f"these options do not apply to {option}: {', '.join(options)}")


def check_batches(batches: Iterable[int]) -> None:
    """Raise UsageError for a batch that no workload or model can have."""
    for batch in batches:
        if not 1 <= batch <= MOST_BATCH:
            raise UsageError(f"--batch must be between 1 and {MOST_BATCH}, not {batch}")


def check_device(device: str) -> None:
    """Raise UsageError unless `device` is a device name, whether or not it exists here."""
    name, _, rest = device.partition(":")
    if device in COLUMNS:
        return
    kind = DEVICE_KINDS.get(name)
    number, at, speed = rest.partition("@")
    plain = number.isascii() and number.isdecimal()
    if kind is not None and kind.numbered and plain and (kind.simulated or not at):
        try:
            if not at or SLOWEST <= float(speed) <= FASTEST:
                return
        except ValueError:
            pass
        else:
            raise UsageError(
                f"the speed of {name}:{number} must be between {SLOWEST:g} and {FASTEST:g}, "
                f"not {speed}"
            )
    raise unknown("device", device, ["cpu", "gpu", "cuda:0", "xpu:0", "fake:0", "fake:0@8"])


def fake_devices(request: Request) -> dict[str, float]:
    """The requested simulated GPUs, with their speed relative to this CPU."""
    found = {}
    for device in request.devices:
        if kind_of(device).simulated:
            name, _, speed = device.partition("@")
            if name in found:
                raise UsageError(f"{name} is given twice; a second one is fake:1")
            found[name] = float(speed or 4.0)
    return found
