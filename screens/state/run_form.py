"""The form for a new run: turns its texts into a checked request."""

import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from workbench import catalog
from workbench.contract import PRECISIONS, Parameter, Workload, WorkloadError
from workbench.planning import scenarios
from workbench.planning.cases import fill_cases
from workbench.planning.model_question import ModelQuestion
from workbench.planning.own_question import MODES, OBJECTIVES, OwnQuestion
from workbench.planning.plan import RowPlan, resolve
from workbench.planning.request import Request, fake_devices, whole_numbers, words
from workbench.planning.usage import ScenarioError, UsageError, unknown
from workbench.records.machine import Machine
from workbench.text import units
from workbench.worker.code import COMMAND, KINDS, TORCH

SCENARIOS = ""  # the entry for the scenarios, in place of a workload's name
OWN = "your own code"  # no workload has such a name
# Options of the scenarios without a field in the form: kept from the run before.
OF_SCENARIOS = ("scenario_file", "crossover", "prices", "price_file", "what_if")
CURVE = "64,100 or 64..4096 make a curve"
RACE = "1,2,4 compete with one another"


@dataclass(frozen=True)
class FormField:
    """One input: `default` applies while it is empty, `allowed` is its range, `several` says what
    more than one value does."""

    key: str
    label: str
    default: str
    help: str
    allowed: str = ""
    several: str = ""

    @property
    def description(self) -> str:
        """The full help of the field."""
        allowed = f" ({self.allowed})" if self.allowed else ""
        several = f"; {self.several}" if self.several else ""
        return f"{self.label}: {self.help}{allowed}{several}"


_KINDS = (*KINDS, "model")
_SUBJECT = {"kind", "code", "over"}  # fields that say together what is raced
_OF_OWN_CODE = [
    FormField("kind", "kind", TORCH, f"any of {', '.join(_KINDS)}"),
    FormField("code", "code", "", "as after --torch, --function, --command or --model"),
    FormField("over", "over", "", "values of a command's {device}: device=cpu,cuda"),
    FormField("objective", "objective", "latency", f"any of {', '.join(OBJECTIVES)}"),
    FormField("batch", "batch", "its own", "items in a call", several=CURVE),
]


@dataclass(frozen=True)
class Checked:
    """The checked form.  `request` leaves out invalid fields; it may be started only if there is
    no `error`."""

    request: Request
    wrong: Collection[str] = ()
    error: str = ""
    outlook: str = ""

    @property
    def command(self) -> str:
        return shlex.join(["workbench", *self.request.arguments()])


@dataclass
class RunForm:
    """The input so far, which starts with the values of the request `before`.

    `machine` comes from an earlier run and makes it possible to reject missing devices; the names
    of the packages `installed` come from there as well.
    """

    before: Request
    machine: Machine | None = None
    installed: Collection[str] | None = None
    entry: str = field(init=False)
    quick: bool = field(init=False)
    texts: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        given = self.before
        own = given.question
        self.entry = given.workloads[0] if given.workloads else OWN if own else SCENARIOS
        self.quick = given.quick
        self.texts = {
            "scenarios": ",".join(given.scenarios),
            "batch": ",".join(map(str, given.batch)),
            "precision": ",".join(given.precisions),
            "backend": ",".join(given.backends),
            "mode": ",".join(given.modes),
            "device": ",".join(given.devices),
            "threads": ",".join(map(str, given.threads)),
            "budget": "" if given.budget_s is None else f"{given.budget_s:g}",
            "objective": own.objective if own is not None else "",
        }
        if given.own is not None:
            over = " ".join(given.own.over)
            self.texts |= {"kind": given.own.kind, "code": given.own.target, "over": over}
        elif given.model is not None:
            self.texts |= {"kind": "model", "code": given.model.file}
        for setting in given.settings:
            name, _, text = setting.partition("=")
            self.texts[f"{self.entry}.{name}"] = text

    @property
    def workload(self) -> Workload | None:
        """None for scenarios and one's own code; WorkloadError if its file cannot be used."""
        return None if self.entry in (SCENARIOS, OWN) else catalog.load(self.entry)

    def fields(self) -> list[FormField]:
        """The fields of the selected workload, in the order of the form."""
        workload = self.workload
        if self.entry == OWN:
            own, modes = _OF_OWN_CODE, list(MODES[1:])
            offered, backends = list(PRECISIONS), list(catalog.backends())
        elif workload is None:
            names = ", ".join(_scenario_names(self.before.scenario_file))
            own = [FormField("scenarios", "scenarios", "all", f"any of {names}")]
            offered, backends, modes = list(PRECISIONS), list(catalog.backends()), []
        else:
            own = [_parameter_field(workload, parameter) for parameter in workload.parameters]
            if workload.default_batch is not None:
                batch = str(workload.default_batch)
                own.append(FormField("batch", "batch", batch, "items in a step", several=CURVE))
            offered = [p for p in PRECISIONS if any(v.precision == p for v in workload.variants)]
            backends = sorted({v.backend for v in workload.variants})
            modes = list(dict.fromkeys(v.mode for v in workload.variants if v.mode))
        ways = f"any of plain, {', '.join(modes)}"
        mode = [FormField("mode", "mode", "all", ways)] if modes else []
        seconds = replace(self.before, budget_s=None, quick=self.quick, thorough=False).budget
        return [
            *own,
            FormField("precision", "precision", "all", f"any of {', '.join(offered)}"),
            FormField("backend", "backend", "all", f"any of {', '.join(backends)}"),
            *mode,
            FormField("device", "device", "cpu, each GPU", "cpu, gpu, cuda:0 ... or fake:0@8"),
            FormField("threads", "threads", "all cores", "for every CPU candidate", several=RACE),
            FormField("budget", "budget", f"{seconds:g}", "wall time of the run", "seconds"),
        ]

    def check(self) -> Checked:
        """Check the input as the command line is checked."""
        try:
            request = self._request()
            return Checked(request, outlook=_outlook(self._resolve(request), request.budget))
        except (UsageError, WorkloadError) as error:
            wrong = self._wrong()
            return Checked(self._request(without=wrong), wrong, str(error))

    def _wrong(self) -> list[str]:
        """The fields that are invalid whatever the others hold."""
        keys = self._keys()
        if self.entry == OWN and self._fails(set(keys) - _SUBJECT):
            return ["code" if self.texts.get("kind", "").strip() in ("", *_KINDS) else "kind"]
        return [key for key in keys if self._fails(set(keys) - _SUBJECT - {key})]

    def _fails(self, without: Collection[str]) -> bool:
        try:
            self._resolve(self._request(without))
        except UsageError:
            return True
        except WorkloadError:
            return False  # no field is at fault; `check` shows the error
        return False

    def _request(self, without: Collection[str] = ()) -> Request:
        def text(key: str) -> str:
            return "" if key in without else self.texts.get(key, "").strip()

        chosen: dict[str, tuple[str, ...]]
        kept: dict[str, Any] = {}
        if self.entry == SCENARIOS:
            chosen = {"scenarios": words([text("scenarios")]), "settings": ()}
            kept = {name: getattr(self.before, name) for name in OF_SCENARIOS}
            kept["all_scenarios"] = self.before.all_scenarios and not chosen["scenarios"]
        elif self.entry == OWN:
            chosen, kept = {}, self._question(text)
        else:
            prefix = f"{self.entry}."
            given = [key for key in self.texts if key.startswith(prefix) and text(key)]
            settings = tuple(f"{key.removeprefix(prefix)}={text(key)}" for key in given)
            chosen = {"workloads": (self.entry,), "settings": settings}
        batch, mode = (text(key) if key in self._keys() else "" for key in ("batch", "mode"))
        return Request(
            **chosen,  # type: ignore[arg-type]
            **kept,
            batch=whole_numbers("--batch", batch) if batch else (),
            precisions=words([text("precision")]),
            backends=words([text("backend")]),
            modes=words([mode]),
            devices=words([text("device")]),
            threads=whole_numbers("--threads", text("threads")) if text("threads") else (),
            budget_s=_seconds(text("budget")),
            quick=self.quick,
            python=self.before.python,
            seed=self.before.seed,
            strict=self.before.strict,
            strict_samples=self.before.strict_samples,
        )

    def _question(self, text: Callable[[str], str]) -> dict[str, ModelQuestion | OwnQuestion]:
        """The field of the request that names the user's model or code; options without a field
        stay as they were for the same code."""
        kind, target, objective = text("kind") or TORCH, text("code"), text("objective")
        given: dict[str, Any] = {"objective": objective or "latency"}
        if kind not in _KINDS:
            raise unknown("kind", kind, _KINDS)
        if kind == "model":
            model = self.before.model
            same = model if model is not None and model.file == target else ModelQuestion(target)
            return {"model": replace(same, **given)}
        given["over"] = tuple(text("over").split()) if kind == COMMAND else ()
        own = self.before.own
        is_same = own is not None and (own.kind, own.target) == (kind, target)
        return {"own": replace(own if own and is_same else OwnQuestion(kind, target), **given)}

    def _keys(self) -> list[str]:
        """The keys of the fields; none if the workload's file cannot be used."""
        try:
            return [field.key for field in self.fields()]
        except WorkloadError:
            return []

    def _resolve(self, request: Request) -> list[RowPlan]:
        rows = resolve(request, *scenarios.load_with(request.scenario_file))
        if self.machine is not None and not fake_devices(request):
            real = [gpu for gpu in self.machine.gpus if not gpu.simulated]
            known = [] if self.entry == OWN else rows  # the code's candidates follow in the run
            there = msgspec.structs.replace(self.machine, gpus=real)
            fill_cases(known, request, there, self.installed)
        return rows


def _scenario_names(file: str | None) -> Collection[str]:
    """Scenario names; without the user's file if it has become invalid, which `check` reports."""
    try:
        return scenarios.load_with(file)[0]
    except ScenarioError:
        return scenarios.load()


def _parameter_field(workload: Workload, parameter: Parameter) -> FormField:
    """A parameter of the workload; an empty tuning field races the proposed values."""
    bounded = parameter.minimum is not None or parameter.maximum is not None
    spelled = isinstance(parameter.default, str)
    allowed = [
        "tuning" if parameter.tuning else "",
        ", ".join(parameter.choices),
        f"{parameter.range_text()} {parameter.unit}".strip() if bounded else parameter.unit,
    ]
    several = RACE if parameter.tuning else CURVE
    return FormField(
        key=f"{workload.name}.{parameter.name}",
        label=parameter.name,
        default="as proposed" if parameter.tuning else str(parameter.default),
        help=parameter.help,
        allowed="; ".join(part for part in allowed if part),
        several="" if spelled else several,
    )


def _seconds(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise UsageError(f"--budget takes seconds, not {text!r}") from None


def _outlook(rows: list[RowPlan], budget_s: float) -> str:
    """`7 rows, up to 6 candidates each, about 2.1 s for one`; rows alone without a machine."""
    count = len(rows)
    most = max((len(row.cases) for row in rows), default=0)
    text = f"{count} row{'' if count == 1 else 's'}"
    if most:
        text += f", {'' if count == 1 else 'up to '}{most} candidate{'' if most == 1 else 's'}"
        share_s = budget_s / sum(len(row.cases) for row in rows)
        text += f"{' each' if count > 1 else ''}, about {units.duration(share_s)} for one"
    return text
