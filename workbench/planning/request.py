"""The options of one run, checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from .. import catalog
from ..contract import COLUMNS, DEVICE_KINDS, MOST_BATCH, MOST_THREADS, PRECISIONS, kind_of
from ..worker.code import COMMAND
from ..worker.session_options import ONNX_BACKENDS
from .questions import MODEL, MODES, UNUSED, ModelQuestion, OwnQuestion, set_by
from .usage import UsageError, check_known, unknown

if TYPE_CHECKING:
    from ..contract import Case, Variant
    from ..report.cut_run import CutRun

TABLE_BUDGET_S, TABLE_QUICK_BUDGET_S = 45.0, 17.0  # for scenarios; open rows may extend it
DEFAULT_BUDGET_S, QUICK_BUDGET_S = 60.0, 20.0
THOROUGH_BUDGET_S = 300.0
MODEL_BUDGET_S = 30.0
LONGEST_BUDGET_S = 86_400.0
ALL_BUDGET_S, ALL_QUICK_BUDGET_S = 900.0, 180.0  # for `run --all`
ALL_ROWS_BUDGET_S, ALL_ROWS_QUICK_BUDGET_S = 300.0, 60.0  # for `advise --all`
NAME_PYTHON = "name the Python interpreter of an environment, such as /path/to/venv/bin/python"
SLOWEST, FASTEST = 1e-3, 1e4  # limits for a simulated GPU, in multiples of this CPU's speed


@dataclass(frozen=True)
class Request:
    """The options of one run; `arguments` writes them in this order."""

    scenarios: tuple[str, ...] = ()  # for `advise`; all if neither these nor workloads are named
    workloads: tuple[str, ...] = ()  # for `run`
    every: bool = False  # `run --all`
    ceilings: bool = False  # `ceilings`: measure what the machine can reach
    # About the user's own model or code: `advise --model`, `--torch`, `--function` or `--command`.
    question: ModelQuestion | OwnQuestion | None = None
    resumes: CutRun | None = None  # the run that this one resumes; no option sets it
    quick: bool = set_by("--quick", False)
    thorough: bool = set_by("--thorough", False)
    largest_batch: bool = set_by("--largest-batch", False)
    # Search the largest batch even on a GPU that other processes use.
    force: bool = set_by("--force", False)
    again: bool = set_by("--again", False)  # `ceilings`: new values replace the kept ones
    strict: bool = set_by("--strict", False)  # exit 3 if a verdict is open
    strict_samples: bool = set_by("--strict-samples", False)  # or if a result carries a warning
    all_scenarios: bool = set_by("--all", False)  # `advise` with the optional ones
    crossover: bool = set_by("--crossover", False)
    budget_s: float | None = set_by("--budget", None)
    devices: tuple[str, ...] = set_by("--device", ())  # "cpu", "gpu", "cuda:0", "fake:0@8"
    backends: tuple[str, ...] = set_by("--backend", ())
    precisions: tuple[str, ...] = set_by("--precision", ())
    modes: tuple[str, ...] = set_by("--mode", ())  # "plain" is the mode without a name
    settings: tuple[str, ...] = set_by("--set", ())  # "name=value", "name=64,100", "name=64..4096"
    threads: tuple[int, ...] = set_by("--threads", ())
    batch: tuple[int, ...] = set_by("--batch", ())
    python: str | None = set_by("--python", None)
    trace: str | None = set_by("--trace", None)  # file to write
    seed: int = set_by("--seed", 0)
    scenario_file: str | None = set_by("--scenarios", None)
    prices: tuple[str, ...] = set_by("--price", ())  # "cpu=0.10", per hour
    price_file: str | None = set_by("--prices", None)
    # Recorded devices to compare with, which need not be here.
    what_if: tuple[str, ...] = set_by("--what-if", ())

    @property
    def budget(self) -> float:
        """Seconds that the run may take, from the start of the process."""
        if self.resumes is not None:
            return float(self.resumes.budget_s)
        if self.budget_s is not None:
            return self.budget_s
        if self.every:
            return ALL_QUICK_BUDGET_S if self.quick else ALL_BUDGET_S
        if self.all_scenarios:
            return ALL_ROWS_QUICK_BUDGET_S if self.quick else ALL_ROWS_BUDGET_S
        if self.thorough:
            return THOROUGH_BUDGET_S
        if self.is_table:
            return TABLE_QUICK_BUDGET_S if self.quick else TABLE_BUDGET_S
        if self.quick:
            return QUICK_BUDGET_S
        return MODEL_BUDGET_S if isinstance(self.question, ModelQuestion) else DEFAULT_BUDGET_S

    @property
    def is_table(self) -> bool:
        """Whether it asks for the answers of scenarios, without their crossovers."""
        others = self.workloads, self.ceilings, self.question, self.crossover
        return not any(others)

    @property
    def extension_s(self) -> float:
        """Seconds by which a run may exceed `budget` for rows that are open at its end."""
        if self.budget_s is not None or self.thorough:
            return 0.0
        return QUICK_BUDGET_S if self.quick else DEFAULT_BUDGET_S

    @property
    def with_cpu(self) -> bool:
        return not self.devices or "cpu" in self.devices

    def admits(self, way: Case | Variant) -> bool:
        return (
            (not self.precisions or way.precision in self.precisions)
            and (not self.modes or (way.mode or "plain") in self.modes)
            and (not self.backends or way.backend in self.backends)
        )

    @property
    def names_compile(self) -> bool:
        return any("compile" in mode.split("+") for mode in self.modes)

    def arguments(self, *display: str) -> list[str]:
        """The command line of this request, with these options of display."""
        options = _given(self)
        if self.every:
            command = ["run", "--all"]
        elif self.workloads:
            command = ["run", *self.workloads]
        elif self.ceilings:
            command = ["ceilings"]
        elif (asked := self.question) is not None:
            command = ["advise", *_written({asked.option: asked.target, **_given(asked)})]
        else:
            command = ["advise", *self.scenarios]  # explicit, so that `runs TEXT` finds it
        for name in options.keys() & {"--threads", "--batch"}:
            options[name] = ",".join(map(str, options[name]))
        command += _written(options)
        of_script = self.question.arguments if self.question is not None else ()
        return [*command, *display, *(["--", *of_script] if of_script else [])]


def _given(options: Request | ModelQuestion | OwnQuestion) -> dict[str, Any]:
    """The options that are set, with their values."""
    known = {each.metadata["option"]: each for each in fields(options) if each.metadata}
    values = {name: getattr(options, each.name) for name, each in known.items()}
    return {name: value for name, value in values.items() if value != known[name].default}


def _written(values: Mapping[str, Any]) -> Iterator[str]:
    """The words of options: a flag has the value True, a repeated option a tuple."""
    for name, value in values.items():
        if value is True:
            yield name
        elif isinstance(value, float):
            yield from (name, str(value).removesuffix(".0"))
        else:
            texts = value if isinstance(value, tuple) else (str(value),)
            yield from (part for text in texts for part in (name, text))


def check(request: Request) -> None:
    """Raise UsageError for options that are wrong on any machine."""
    check_known("backend", request.backends, catalog.backends())
    check_known("precision", request.precisions, PRECISIONS)
    for device in request.devices:
        check_device(device)
    if fake_devices(request) and request.ceilings:
        raise UsageError("a simulated device has no ceilings")
    if not 1 <= request.budget <= LONGEST_BUDGET_S:  # also true for NaN
        raise UsageError(f"--budget must be between 1 and {LONGEST_BUDGET_S:g} s")
    if request.thorough and (request.quick or request.every):
        other = "--quick" if request.quick else "--all"
        raise UsageError(f"{other} and --thorough exclude each other")
    if request.force and not request.largest_batch:
        raise UsageError("--force belongs to --largest-batch")
    if request.trace is not None and request.largest_batch:
        raise UsageError("--trace profiles a race, but --largest-batch runs none")
    if request.all_scenarios and request.scenarios:
        names = " ".join(request.scenarios)
        raise UsageError(f"--all means every scenario: leave out --all or {names}")
    if request.question is not None:
        _check_question(request, request.question)
    for threads in request.threads:
        if not 1 <= threads <= MOST_THREADS:
            raise UsageError(f"--threads must be between 1 and {MOST_THREADS}, not {threads}")


def check_python(path: str | None) -> None:
    """Raise UsageError unless `path` is None or an executable file."""
    import shutil

    if path is not None and shutil.which(path) is None:
        raise UsageError(f"--python: {path} is not an executable file; {NAME_PYTHON}")


def _check_question(request: Request, question: ModelQuestion | OwnQuestion) -> None:
    option = question.option
    if request.scenarios:
        names = " ".join(request.scenarios)
        if option == f"--{COMMAND}" and "=" in names:
            raise UsageError(f"--over takes one axis: add --over {request.scenarios[0]}")
        raise UsageError(f"{option} replaces scenarios: leave out {option} or {names}")
    try:
        question.check()
    except ValueError as error:
        raise UsageError(str(error)) from None
    of_scenarios = "--scenarios", "--all", "--crossover", "--what-if", "--set"
    unused = (*of_scenarios, *UNUSED.get(question.kind, ()))
    if options := [name for name in unused if name in _given(request)]:
        raise UsageError(f"these options do not apply to {option}: {', '.join(options)}")
    check_batches(request.batch)
    if len(request.batch) > 1 and question.kind == MODEL:
        raise UsageError("a model takes one --batch")
    if question.kind == MODEL and set(request.backends) - {*ONNX_BACKENDS}:
        raise UsageError(f"--backend: an ONNX model runs on {' or '.join(ONNX_BACKENDS)}")
    check_known("mode", [word for mode in request.modes for word in mode.split("+")], MODES)


def check_batches(batches: Iterable[int]) -> None:
    """Raise UsageError for a batch that no workload or model can have."""
    for batch in batches:
        if not 1 <= batch <= MOST_BATCH:
            raise UsageError(f"--batch must be between 1 and {MOST_BATCH}, not {batch}")


def check_device(device: str) -> None:
    """Raise UsageError unless `device` is a valid name of a device, which need not exist here."""
    name, _, rest = device.partition(":")
    number, at, speed = rest.partition("@")
    kind = DEVICE_KINDS.get(name)
    if device in COLUMNS:
        return
    if kind is not None and kind.numbered and number.isascii() and number.isdecimal():
        if not at:
            return
        with suppress(ValueError):
            if kind.simulated and SLOWEST <= float(speed) <= FASTEST:
                return
            if kind.simulated:
                bounds = f"between {SLOWEST:g} and {FASTEST:g}, not {speed}"
                raise UsageError(f"the speed of {name}:{number} must be {bounds}")
    raise unknown("device", device, ["cpu", "gpu", "cuda:0", "fake:0", "fake:0@8"])


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
