"""The form for a new run: turns its texts into a checked request."""

import math
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from workbench import catalog
from workbench.contract import PRECISIONS, Parameter, Workload, WorkloadError
from workbench.planning import scenarios
from workbench.planning.cases import fill_cases, is_lacking
from workbench.planning.number_lists import whole_numbers, words
from workbench.planning.plan import RowPlan
from workbench.planning.questions import MODEL, MODES, UNUSED, ModelQuestion
from workbench.planning.request import Request, check_python, fake_devices
from workbench.planning.rows import resolve
from workbench.planning.usage import UsageError
from workbench.records.machine import Machine
from workbench.text import units

from . import own_form
from .form_field import CURVE, RACE, FormField, choices, only_one

SCENARIOS = ""  # the entry for the scenarios, in place of a workload's name
OWN = "your own code"  # no workload has such a name
QUICK, THOROUGH = "quick", "thorough"
_EFFORT = only_one(
    "effort",
    "quick has smaller sizes and takes about 20 s, thorough has more rounds and takes 300 s",
    ("default", QUICK, THOROUGH),
    decides=True,
)
# Fields that hold several names, with their names in a request, or several whole numbers.
_NAMES = {"precision": "precisions", "backend": "backends", "mode": "modes", "device": "devices"}
_NUMBERS = ("batch", "threads")
# Options of the scenarios without a field in the form: kept from the run before.
OF_SCENARIOS = ("scenario_file", "crossover", "prices", "price_file", "what_if")
# Seconds for one candidate: with 0.95 s all of 21 had a turn, with 0.54 s only 17 of 37.
LEAST_S = 0.75


@dataclass(frozen=True)
class Checked:
    """The checked form.  `request` is that of the entry alone if there is an `error`.

    `wrong`: the key of the field that the error is about, or "" if that is not known.
    `is_missing`: no code has been named yet, which is no mistake before the start.
    """

    request: Request
    error: str = ""
    wrong: str = ""
    is_missing: bool = False
    outlook: str = ""
    lacks_time: bool = False  # some candidates may have no turn

    @property
    def command(self) -> str:
        return shlex.join(["workbench", *self.request.arguments()])


@dataclass
class RunForm:
    """The input so far, which starts with the values of the request `before`.

    `machine` and the names of `installed` packages come from an earlier run, and serve to reject
    what is missing; None if they are unknown.
    """

    before: Request
    machine: Machine | None = None
    installed: Collection[str] | None = None
    entry: str = field(init=False)
    texts: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        given = self.before
        asked = OWN if given.question else SCENARIOS
        self.entry = given.workloads[0] if given.workloads else asked
        self.texts = {
            "scenarios": ",".join(given.scenarios),
            **{key: ",".join(getattr(given, name)) for key, name in _NAMES.items()},
            **{key: ",".join(map(str, getattr(given, key))) for key in _NUMBERS},
            "effort": QUICK if given.quick else THOROUGH if given.thorough else "",
            "budget": self._given_budget,
            "python": given.python or "",
            **own_form.texts_of(given),
        }
        for setting in given.settings:
            name, _, text = setting.partition("=")
            self.texts[f"{self.entry}.{name}"] = text

    @property
    def _given_budget(self) -> str:
        return "" if self.before.budget_s is None else f"{self.before.budget_s:g}"

    def take(self, key: str, text: str) -> None:
        """Fill in a field.  An effort has its own budget, unless another one was typed."""
        if key == "effort" and self.texts["budget"] in ("", self._given_budget):
            self.texts["budget"] = "" if text else self._given_budget
        self.texts[key] = text

    @property
    def workload(self) -> Workload | None:
        """None for scenarios and one's own code; WorkloadError if its file cannot be used."""
        return None if self.entry in (SCENARIOS, OWN) else catalog.load(self.entry)

    def fields(self) -> list[FormField]:
        """The fields of the selected workload, in the order of the form."""
        workload = self.workload
        if self.entry == OWN:
            own, modes = own_form.about(self.texts.get("kind", "")), list(MODES[1:])
            offered, backends = list(PRECISIONS), list(catalog.backends())
        elif workload is None:
            names = _scenario_names(self.before.scenario_file)
            own = [choices("scenarios", "rows of the table", names, "default", decides=True)]
            offered, backends, modes = list(PRECISIONS), list(catalog.backends()), []
        else:
            own = [_parameter_field(workload, parameter) for parameter in workload.parameters]
            if workload.default_batch is not None:
                batch = str(workload.default_batch)
                own.append(FormField("batch", "batch", batch, "items in a step", several=CURVE))
            offered = [p for p in PRECISIONS if any(v.precision == p for v in workload.variants)]
            backends = sorted({v.backend for v in workload.variants})
            modes = list(dict.fromkeys(v.mode for v in workload.variants if v.mode))
        unused = UNUSED.get(self.texts.get("kind", ""), ()) if self.entry == OWN else ()
        cores = "as proposed" if workload is None else "all cores"
        common = [
            choices("precision", "number formats of the candidates", offered),
            choices("backend", "libraries that compete", self._available(backends)),
            *([choices("mode", "ways to run it", ["plain", *modes])] if modes else []),
            choices("device", "where it may run", self._devices()),
            FormField("threads", "threads", cores, "for every CPU candidate", several=RACE),
            _EFFORT,
            FormField("budget", "budget", f"{self._usual_s:g}", "wall time of the run", "seconds"),
            FormField("python", "python", "its own", "interpreter with your libraries"),
        ]
        return [each for each in (*own, *common) if f"--{each.key}" not in unused]

    @property
    def _usual_s(self) -> float:
        """The budget in seconds, for the entry and its effort, if none is typed."""
        is_model = self.entry == OWN and self.texts.get("kind") == MODEL
        effort, named = self.texts["effort"], self.texts["scenarios"].strip()
        is_table = self.entry == SCENARIOS
        return Request(
            workloads=() if is_table else (self.entry,),  # own code has the budget of a workload
            crossover=self.before.crossover and is_table,
            all_scenarios=self.before.all_scenarios and is_table and not named,
            question=ModelQuestion("") if is_model else None,
            quick=effort == QUICK,
            thorough=effort == THOROUGH,
        ).budget

    def _available(self, backends: Iterable[str]) -> list[str]:
        is_known = self.texts["python"].strip() == (self.before.python or "")
        return [n for n in backends if not (is_known and is_lacking(n, self.installed))]

    def _devices(self) -> list[str]:
        """The devices that are not simulated; "cpu" and "gpu" if the machine is unknown."""
        if self.machine is None:
            return ["cpu", "gpu"]
        gpus = [gpu.device for gpu in self.machine.gpus if not gpu.simulated]
        return ["cpu", *filter(None, gpus)]

    def check(self) -> Checked:
        """Check the input as the command line is checked."""
        try:
            request = self._request()
            outlook, lacks_time = _outlook(self._resolve(request), request.budget)
            return Checked(request, outlook=outlook, lacks_time=lacks_time)
        except (UsageError, WorkloadError) as error:
            is_missing = self.entry == OWN and "code" not in self.texts
            wrong = self._named(str(error))
            return Checked(self._request(bare=True), str(error), wrong, is_missing)

    def _named(self, error: str) -> str:
        """The key of the field whose option or parameter an error begins with."""
        name = error.removeprefix("--").partition(" ")[0].rstrip(":").replace("-", "_")
        name = "code" if name in own_form.OFFERED else name
        return next((key for key in self._keys() if key.rpartition(".")[2] == name), "")

    def _request(self, *, bare: bool = False) -> Request:
        """The request that the fields describe, or that of the entry alone."""
        keys = () if bare else self._keys()

        def text(key: str) -> str:
            return self.texts.get(key, "").strip() if key in keys else ""

        chosen: dict[str, tuple[str, ...]]
        kept: dict[str, Any] = {}
        if self.entry == SCENARIOS:
            chosen = {"scenarios": words([text("scenarios")]), "settings": ()}
            kept = {name: getattr(self.before, name) for name in OF_SCENARIOS}
            kept["all_scenarios"] = self.before.all_scenarios and not chosen["scenarios"]
        elif self.entry == OWN:
            chosen, kept = {}, {"question": own_form.question(self.before, text)}
        else:
            prefix = f"{self.entry}."
            given = [key for key in self.texts if key.startswith(prefix) and text(key)]
            settings = tuple(f"{key.removeprefix(prefix)}={text(key)}" for key in given)
            chosen = {"workloads": (self.entry,), "settings": settings}
        kept |= {key: whole_numbers(f"--{key}", text(key)) for key in _NUMBERS if text(key)}
        kept |= {name: words([text(key)]) for key, name in _NAMES.items()}
        return Request(
            **chosen,  # type: ignore[arg-type]
            **kept,
            budget_s=own_form.number(text("budget"), "--budget takes seconds"),
            quick=text("effort") == QUICK,
            thorough=text("effort") == THOROUGH,
            python=text("python") or None,
            seed=self.before.seed,
            strict=self.before.strict and "workloads" not in chosen,  # a run has no verdicts
            strict_samples=self.before.strict_samples,
        )

    def _keys(self) -> list[str]:
        """The keys of the fields; none if the workload's file cannot be used."""
        try:
            return [field.key for field in self.fields()]
        except WorkloadError:
            return []

    def _resolve(self, request: Request) -> list[RowPlan]:
        check_python(request.python)
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
    except UsageError:
        return scenarios.load()


def _parameter_field(workload: Workload, parameter: Parameter) -> FormField:
    """A parameter of the workload; an empty tuning field races the proposed values."""
    bounded = parameter.minimum is not None or parameter.maximum is not None
    spelled = isinstance(parameter.default, str)
    default = "as proposed" if parameter.tuning else str(parameter.default)
    allowed = [
        "tuning" if parameter.tuning else "",
        f"{parameter.range_text()} {parameter.unit}".strip() if bounded else parameter.unit,
    ]
    several = RACE if parameter.tuning else CURVE
    return FormField(
        key=f"{workload.name}.{parameter.name}",
        label=parameter.name,
        default=default,
        help=parameter.help,
        allowed="; ".join(part for part in allowed if part),
        several="" if spelled else several,
        choices=tuple(dict.fromkeys([default, *parameter.choices])) if parameter.choices else (),
        single=not parameter.tuning,
    )


def _outlook(rows: list[RowPlan], budget_s: float) -> tuple[str, bool]:
    """`7 rows, up to 6 candidates in each, about 2.1 s per candidate`, and whether that is too
    short; only the rows if the machine is unknown."""
    count, cases = len(rows), [len(row.cases) for row in rows]
    text, most, total = units.counted(count, "row"), max(cases, default=0), sum(cases)
    if not most:
        return text, False
    share_s = budget_s / total
    text += f", {'' if count == 1 else 'up to '}{units.counted(most, 'candidate')}"
    rough = units.clock(share_s) if share_s >= 9.95 else f"{share_s:.2g} s"  # two digits
    text += f"{' in each' if count > 1 else ''}, about {rough} per candidate"
    if share_s >= LEAST_S:
        return text, False
    enough = units.clock(math.ceil(total * LEAST_S / 10) * 10)
    return f"{text}: some may get no turn; {enough} would be enough", True
