"""A model lab with a scripted worker, for tests of its candidates."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import builders
import msgspec
from lab_builders import answer, candidate, cpu
from msgspec.structs import replace

from workbench.contract import Case
from workbench.engine.model_lab import ModelLab
from workbench.engine.model_variants import LAB
from workbench.engine.variant_search import CandidateSearch
from workbench.planning.questions import ModelQuestion
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.pool.pool import Answer, WorkerFailed
from workbench.records import events as ev
from workbench.records.machine import Software
from workbench.records.model import Built
from workbench.records.reason import Reason
from workbench.report.candidate import Candidate
from workbench.report.report import Report
from workbench.worker.recipe import Recipe

STATIC = "int8-static-u8s8"
PREPARED = {
    "forms": [{"step": "as given", "size_bytes": 1000, "nodes": 3}],
    "multiply_adds": 500,
    "weights_bytes": 400,
    "products": {"Conv": 2, "MatMul": 1},
}


def failure(code: str, message: str = "it cannot be", hint: str | None = "mend it"):
    return WorkerFailed(Reason(code, message, hint))


class Clock:
    """The run's clock, moved by hand."""

    def __init__(self) -> None:
        self.at_s = 1.0

    def now(self) -> float:
        return self.at_s


class Child:
    """A pool whose one worker answers from `answers`: a dict, an exception, or a function that
    returns either."""

    scratch = Path("scratch")
    longest_gpu_start_s = 0.0

    def __init__(self, clock: Clock, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "inspect": answer("cnn"),
            "prepare": PREPARED,
            "providers": {},
            "build": self.build,
            **answers,
        }
        self.clock = clock
        self.asked: list[dict[str, Any]] = []
        self.deadlines: list[float] = []
        self.build_s = 0.0
        self.owned: list[Path] = []

    def folder_next_to(self, target: Path) -> Path:
        self.owned.append(target.absolute().with_name(".hidden"))
        return self.owned[-1]

    def start(self, key: object, deadline_s: float) -> None:
        assert key == LAB

    def ask(self, key: object, deadline_s: float, kind: Any, **request: Any) -> Answer[Any]:
        assert key == LAB
        self.asked.append(request)
        self.deadlines.append(deadline_s)
        reply = self.answers[request["op"]]
        if isinstance(reply, Callable):
            reply = reply(request)
        if isinstance(reply, Exception):
            raise reply
        return Answer(msgspec.convert(reply, kind), False)

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        self.clock.at_s += self.build_s
        return variant(request["recipe"])

    def ops(self) -> list[str]:
        return [request["op"] for request in self.asked]

    def recipes(self) -> list[str]:
        return [Recipe.of(r["recipe"]).label for r in self.asked if r["op"] == "build"]


def variant(recipe: dict[str, Any]) -> dict[str, Any]:
    file = f"{Recipe.of(recipe).label}.onnx"
    return {"file": file, "size_bytes": 300, "operators": {"QLinearConv": 2}, "coverage": 1.0}


class Bench:
    """A lab, its worker, and the events that it emitted."""

    def __init__(
        self,
        answers: dict[str, Any] | None = None,
        question: dict[str, Any] | None = None,
        gpus: Iterable[str] = (),
        **request: Any,
    ) -> None:
        asked = ModelQuestion("some/net.onnx", **(question or {}))
        self.clock = Clock()
        self.child = Child(self.clock, **(answers or {}))
        self.events: list[ev.AnyEvent] = []
        machine = builders.machine(*gpus)
        known = [  # as OpenVINO finds them
            replace(gpu, platform="OpenVINO") if "xpu" in gpu.device else gpu
            for gpu in machine.gpus
        ]
        machine = replace(machine, cpu=cpu(cores=4), gpus=known)
        given = Request(question=asked, **request)
        report = Report(machine=machine, software=Software("3.11", "python", {}, {}))
        context = builders.context(
            self.child, self.clock, report, self.events.append, request=given
        )
        self.lab = ModelLab(
            context, resolve(given, {})[0], asked, given.backends or ("onnxruntime",)
        )

    @classmethod
    def opened(cls, *arguments: Any, **request: Any) -> Self:
        """Such a bench, with all cases that enter before any speed is known."""
        made = cls(*arguments, **request)
        made.open()
        return made

    def open_row(self) -> list[Case]:
        """The cases that the row starts with."""
        (self.row,) = self.lab.rows()
        self.cases = list(self.row.cases)
        return self.cases

    def open(self, left_s: float = 20.0) -> list[Case]:
        """All cases that enter before any speed is known."""
        self.open_row()
        while self.join([], left_s):
            pass
        return self.cases

    @property
    def search(self) -> CandidateSearch:
        """The search among the variants of the opened model."""
        return self.lab.search

    @property
    def left_out(self) -> dict[str, str]:
        return self.lab.variants.left_out

    def built(self) -> list[Built]:
        return [event.built for event in self.events if isinstance(event, ev.ModelBuilt)]

    def measured(
        self,
        seconds: Callable[[Case], float],
        rounds: int = 2,
        errors: Callable[[Case], float] = lambda case: 1e-6,
    ) -> list[Candidate]:
        return [
            candidate(case, seconds(case), rounds=rounds, error=errors(case)) for case in self.cases
        ]

    def join(self, candidates: list[Candidate], left_s: float = 20.0) -> list[Case]:
        joined = self.search.join(candidates, left_s)
        self.cases += joined
        return joined


def label(case: Case) -> str:
    return case.label.partition("/")[2].partition("/")[2]


def labels(cases: Iterable[Case]) -> set[str]:
    return {label(case) for case in cases}
