"""The lab beside a child that answers as told: what opens the row, and who joins it later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import builders
import msgspec
import pytest
from lab_builders import accuracy, answer, contender, cpu

from workbench import events as ev
from workbench.contender import Contender
from workbench.contract import Case
from workbench.document import Reason
from workbench.lab import lab as labs
from workbench.lab.child import CHILD, NOT_USABLE, Refused
from workbench.lab.facts import Advice, Built
from workbench.lab.lab import ModelLab
from workbench.lab.question import ModelQuestion
from workbench.lab.recipe import Recipe
from workbench.request import Request, UsageError
from workbench.workers import Answer, WorkerFailed

STATIC = "int8-static-u8s8"
PREPARED = {
    "forms": [{"step": "as given", "size_bytes": 1000, "nodes": 3}],
    "multiply_adds": 500,
    "weights_bytes": 400,
    "products": {"Conv": 2, "MatMul": 1},
}


def failure(code: str, message: str = "it cannot be", hint: str | None = "mend it"):
    return WorkerFailed(Reason(code, message, hint), died=code in ("worker_died", "timeout"))


class Clock:
    """The run's clock, moved by hand."""

    def __init__(self) -> None:
        self.at_s = 1.0

    def now(self) -> float:
        return self.at_s


class Child:
    """A pool whose one worker answers by `said`: a dict, an exception, or what makes either."""

    scratch = Path("scratch")

    def __init__(self, clock: Clock, **said: Any) -> None:
        self.said: dict[str, Any] = {
            "inspect": answer("cnn"),
            "prepare": PREPARED,
            "providers": {},
            "build": self.build,
            **said,
        }
        self.clock = clock
        self.asked: list[dict[str, Any]] = []
        self.deadlines: list[float] = []
        self.build_s = 0.0

    def start(self, key: object, deadline_s: float) -> None:
        assert key == CHILD

    def is_alive(self, key: object) -> bool:
        return False  # the worker that times: nothing is profiled here

    def ask(self, key: object, deadline_s: float, **request: Any) -> Answer:
        assert key == CHILD
        self.asked.append(request)
        self.deadlines.append(deadline_s)
        reply = self.said[request["op"]]
        if isinstance(reply, Callable):
            reply = reply(request)
        if isinstance(reply, Exception):
            raise reply
        return Answer(reply, False)

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        self.clock.at_s += self.build_s
        return form(request["recipe"])

    def ops(self) -> list[str]:
        return [request["op"] for request in self.asked]

    def recipes(self) -> list[str]:
        return [Recipe.of(r["recipe"]).label for r in self.asked if r["op"] == "build"]


def form(recipe: dict[str, Any]) -> dict[str, Any]:
    file = f"{Recipe.of(recipe).label}.onnx"
    return {"file": file, "size_bytes": 300, "operators": {"QLinearConv": 2}, "coverage": 1.0}


class Bench:
    """A lab, its child, and the events it told."""

    def __init__(
        self,
        said: dict[str, Any] | None = None,
        question: dict[str, Any] | None = None,
        gpus: Iterable[str] = (),
        **request: Any,
    ) -> None:
        asked = ModelQuestion("some/net.onnx", **(question or {}))
        self.clock = Clock()
        self.child = Child(self.clock, **(said or {}))
        self.told: list[ev.AnyEvent] = []
        machine = builders.machine(*gpus)

        self.lab = ModelLab(
            asked,
            Request(model=asked, **request),
            pool=self.child,  # type: ignore[arg-type]
            machine=msgspec.structs.replace(machine, cpu=cpu(cores=4)),
            control=self.clock,  # type: ignore[arg-type]
            emit=self.told.append,
        )

    def open(self, left_s: float = 20.0) -> list[Case]:
        """Everyone who enters before anything is known of who is fast."""
        self.cases = list(self.lab.open().cases)
        while self.join([], left_s):
            pass
        return self.cases

    def built(self) -> list[Built]:
        return [event.built for event in self.told if isinstance(event, ev.ModelBuilt)]

    def measured(
        self,
        seconds: Callable[[Case], float],
        rounds: int = 2,
        errors: Callable[[Case], float] = lambda case: 1e-6,
    ) -> list[Contender]:
        return [
            contender(case, seconds(case), rounds=rounds, error=errors(case)) for case in self.cases
        ]

    def join(self, contenders: list[Contender], left_s: float = 20.0) -> list[Case]:
        joined = self.lab.join(contenders, left_s)
        self.cases += joined
        return joined


def label(case: Case) -> str:
    return case.label.partition("/")[2].partition("/")[2]


def labels(cases: Iterable[Case]) -> set[str]:
    return {label(case) for case in cases}


# ------------------------------------------------------------------ the row


def test_the_row_holds_the_model_and_its_forms() -> None:
    bench = Bench()
    row = bench.lab.open()
    assert labels(row.cases) == {"fp32/t4", "fp32/t1"}
    assert labels(bench.open()) == {
        "fp32/t4",
        "fp32/t1",
        f"{STATIC}/t4",
        f"{STATIC}-channel/t4",
        f"{STATIC}-products-channel/t4",
        "int8-dynamic/t4",
        "int8-dynamic-products/t4",
    }
    scenario = row.scenario
    assert (scenario.id, scenario.title, scenario.batch) == ("model", "net.onnx", 1)
    assert (scenario.objective, scenario.max_error) == ("latency", 0.02)
    assert scenario.precisions == ("fp32", "fp16", "int8")
    assert row.entries is bench.lab
    inspected = next(e.facts for e in bench.told if isinstance(e, ev.ModelInspected))
    assert (inspected.multiply_adds, inspected.weights_bytes) == (500, 400)
    assert {built.recipe for built in bench.built()} == set(bench.child.recipes())
    assert "int8-static-s8s8" in bench.lab.left_out


def test_the_child_is_told_where_files_are_and_what_was_asked() -> None:
    inputs = {"inputs": "data.npz", "shapes": ("x=1,4",)}
    bench = Bench(question=inputs, batch=(3,), seed=7)
    bench.open()
    inspect = bench.child.asked[0]
    assert Path(inspect["model"]).is_absolute() and inspect["model"].endswith("some/net.onnx")
    assert Path(inspect["inputs"]).is_absolute()
    assert (inspect["shapes"], inspect["batch"], inspect["seed"]) == ({"x": [1, 4]}, 3, 7)
    assert all(request["folder"] == "scratch" for request in bench.child.asked)
    assert max(bench.child.deadlines) <= 0.4 * 30


def test_each_case_runs_the_file_of_its_form() -> None:
    bench = Bench(question={"min_agreement": 0.9})
    for case in bench.open():
        files = bench.lab.files(case)
        assert (files["folder"], files["metric"]) == ("scratch", "disagreement")
        if case.quantization is None:
            assert files["model"].endswith("some/net.onnx")
        else:
            assert files["model"] == f"int8-{case.quantization}.onnx"


def test_a_form_that_cannot_be_built_is_told_and_does_not_race() -> None:
    def build(request: dict[str, Any]):
        dynamic = request["recipe"]["method"] == "dynamic"
        return failure("bad_model", "no kernel for it") if dynamic else form(request["recipe"])

    bench = Bench({"build": build})
    assert not any("dynamic" in label(case) for case in bench.open())
    reasons = {b.recipe: b.reason.message for b in bench.built() if b.reason}
    assert reasons == {
        "int8-dynamic": "no kernel for it",
        "int8-dynamic-products": "no kernel for it",
    }
    assert labels(bench.cases) >= {"fp32/t4", f"{STATIC}/t4"}


def test_without_any_form_the_model_races_alone() -> None:
    bench = Bench({"build": failure("worker_died", "it died")})
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert len(bench.child.recipes()) == len(set(bench.child.recipes()))  # none is tried again


@pytest.mark.parametrize("code", [*NOT_USABLE, "missing_package", "no_memory"])
def test_a_model_that_cannot_be_used_is_refused_in_one_line(code: str) -> None:
    bench = Bench({"inspect": failure(code, "it is no ONNX model", "export it again")})
    with pytest.raises(UsageError) as refused:
        bench.open()
    assert str(refused.value) == "some/net.onnx: it is no ONNX model (export it again)"
    assert bench.told == []


def test_without_a_hint_there_are_no_parentheses() -> None:
    with pytest.raises(UsageError, match=r"^some/net\.onnx: it is no ONNX model$"):
        Bench({"inspect": failure("bad_model", "it is no ONNX model", None)}).open()


def test_a_message_that_names_the_file_stands_for_itself() -> None:
    with pytest.raises(UsageError, match=r"^/a/net\.onnx does not exist$"):
        Bench({"inspect": failure("bad_model", "/a/net.onnx does not exist", None)}).open()


@pytest.mark.parametrize("code", ["worker_died", "timeout", "internal_error"])
def test_a_child_that_dies_of_it_is_an_outcome(code: str) -> None:
    bench = Bench({"inspect": failure(code, "killed by SIGKILL")})
    with pytest.raises(Refused) as refused:
        bench.open()
    assert refused.value.reason.code == code
    (case,) = bench.lab.refused().cases
    assert label(case) == "fp32/t4"


def test_a_preparation_that_fails_costs_the_forms_only() -> None:
    bench = Bench({"prepare": failure("timeout", "no answer within 8 s")})
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert "no answer within 8 s" in bench.lab.left_out["int8"]
    facts = bench.lab.facts
    assert facts is not None and facts.forms[-1].reason is not None
    assert bench.child.recipes() == []


def test_a_spent_budget_leaves_forms_out_with_the_reason() -> None:
    bench = Bench(budget_s=10.0)
    bench.cases = list(bench.lab.open().cases)
    assert len(bench.join([], left_s=5.0)) == 1  # one at a time
    assert bench.join([], left_s=1.0) == []
    bench.lab.advise(Advice([], "", None))
    late = {name for name, why in bench.lab.left_out.items() if why == labs.NO_TIME}
    assert len(late) == 4
    assert not labels(bench.cases) & {f"{name}/t4" for name in late}


def test_after_a_build_that_took_too_long_no_other_is_begun() -> None:
    bench = Bench({"build": failure("timeout", "no answer within 10 s")})
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert len(bench.child.recipes()) == 1
    assert list(bench.lab.left_out.values()).count(labs.NO_TIME) == 4


def test_filters_that_leave_nothing_are_told() -> None:
    with pytest.raises(UsageError, match="no form of the model is left with these filters"):
        Bench(precisions=("fp64",)).open()


def test_a_precision_asked_for_is_all_that_is_built() -> None:
    bench = Bench(precisions=("fp32",))
    assert labels(bench.open()) == {"fp32/t4", "fp32/t1"}
    assert bench.child.recipes() == []


def test_a_gpu_needs_an_onnxruntime_that_can_use_it() -> None:
    without = Bench(gpus=["cuda:0"])
    without.open()
    assert "install onnxruntime-gpu" in without.lab.left_out["cuda:0"]
    with_it = Bench({"providers": {"cuda": "CUDAExecutionProvider"}}, gpus=["cuda:0"])
    on_gpu = [case for case in with_it.open() if case.device == "cuda:0"]
    assert {case.precision for case in on_gpu} == {"fp32", "fp16"}
    assert {with_it.lab.provider(case) for case in on_gpu} == {"CUDAExecutionProvider"}


def test_providers_that_cannot_be_asked_for_are_left_out() -> None:
    bench = Bench({"providers": failure("worker_died", "it died")})
    bench.open()
    assert bench.lab.left_out["other providers"] == "it died"


def test_energy_is_asked_for_where_it_can_be_read(monkeypatch) -> None:
    monkeypatch.setattr(labs, "package_energy_j", lambda: (None, "only root may read it"))
    bench = Bench(question={"objective": "energy"})
    with pytest.raises(UsageError, match="only root may read it; latency counts without it"):
        bench.open()
    assert bench.child.asked == []
    monkeypatch.setattr(labs, "package_energy_j", lambda: (1.0, ""))
    bench = Bench(
        {"providers": {"cuda": "CUDAExecutionProvider"}}, {"objective": "energy"}, ["cuda:0"]
    )
    assert {case.device for case in bench.open()} == {"cpu"}
    assert "only the processors' energy" in bench.lab.left_out["cuda:0"]


# ------------------------------------------------------------------- joining


def by_form(**seconds: float) -> Callable[[Case], float]:
    """Seconds by what the label begins with, 1 ms otherwise."""

    def found(case: Case) -> float:
        return next((s for word, s in seconds.items() if label(case).startswith(word)), 1e-3)

    return found


def test_nobody_joins_before_the_leader_has_two_rounds() -> None:
    bench = Bench()
    bench.open()
    assert bench.join(bench.measured(by_form(fp32=5e-4), rounds=1)) == []
    assert bench.join([contender(case, 0, samples=[]) for case in bench.cases]) == []


def test_beside_the_leader_its_neighbours_and_rivals_join() -> None:
    bench = Bench()
    bench.open()
    single = label(bench.cases[1])
    assert single == "fp32/t1"
    joined = labels(bench.join(bench.measured(lambda c: 5e-4 if label(c) == single else 1e-3)))
    assert {"fp32/t2", "fp32/extended/t1"} <= joined
    assert any(name.startswith("int8") and name.endswith("/t1") for name in joined)
    assert "fp32/t4" not in joined  # it is there already


def test_a_leader_in_int8_has_neighbours_that_must_be_built() -> None:
    bench = Bench()
    bench.open()
    before = len(bench.child.recipes())
    fast = lambda c: 2e-4 if label(c) == f"{STATIC}-products-channel/t4" else 1e-3  # noqa: E731
    joined = labels(bench.join(bench.measured(fast)))
    assert f"{STATIC}-products/t4" in joined
    assert f"{STATIC}-products-channel/t2" in joined
    assert f"{STATIC}-products-channel/nospin/t4" in joined
    assert bench.child.recipes()[before:] == [f"{STATIC}-products"]


def test_whoever_joins_is_new_and_in_the_end_nobody_does() -> None:
    bench = Bench()
    bench.open()
    for rounds in range(2, 12):
        seen = set(bench.cases)
        joined = bench.join(bench.measured(by_form(fp32=5e-4), rounds=rounds))
        assert not seen & set(joined)
        assert len(bench.cases) <= labs.MOST_CONTENDERS
    assert joined == []


def test_a_full_row_takes_nobody() -> None:
    bench = Bench()
    bench.open()
    crowd = bench.measured(by_form(fp32=5e-4))
    crowd += [contender(crowd[-1].case, 2e-3)] * (labs.MOST_CONTENDERS - len(crowd))
    assert bench.join(crowd) == []


def test_a_thorough_race_has_had_everyone_from_the_start() -> None:
    bench = Bench(thorough=True)
    bench.open()
    assert bench.join(bench.measured(by_form(fp32=5e-4), rounds=4)) == []


def test_too_late_nobody_joins() -> None:
    bench = Bench()
    bench.open()
    assert bench.join(bench.measured(by_form(fp32=5e-4)), left_s=1.0) == []


def test_a_gpu_has_no_neighbours() -> None:
    bench = Bench(gpus=["fake:0"], devices=("fake:0",))
    assert {case.device for case in bench.open()} == {"fake:0"}
    assert bench.join(bench.measured(by_form())) == []


# ------------------------------------------------------------- mixed forms


def mix(request: dict[str, Any]) -> dict[str, Any]:
    recipe = {**request["recipe"], "excluded": ["conv", "gemm"]}
    return {**form(recipe), "recipe": recipe}


def off(*forms: str) -> Callable[[Case], float]:
    return lambda case: 0.1 if any(label(case).startswith(f) for f in forms) else 1e-6


def mixing(seconds: Callable[[Case], float], errors: Callable[[Case], float], **said: Any) -> Bench:
    bench = Bench({"mixed": mix, **said})
    bench.open()
    bench.first_joined = bench.join(bench.measured(seconds, errors=errors))  # type: ignore[attr-defined]
    return bench


def test_a_static_form_that_is_fast_but_too_far_off_is_mixed() -> None:
    bench = mixing(by_form(**{STATIC: 2e-4}), off(STATIC))
    (mixed,) = bench.first_joined
    assert mixed.quantization.endswith("-mixed")
    (asked,) = (request for request in bench.child.asked if request["op"] == "mixed")
    assert (asked["metric"], asked["limit"]) == ("relative_error", 0.02)
    assert 0 < asked["seconds"] < 20
    last = bench.built()[-1]
    assert (last.excluded, last.coverage, last.reason) == (["conv", "gemm"], 1.0, None)
    assert bench.lab.files(mixed)["model"].endswith("-mixed.onnx")


def test_it_is_mixed_once() -> None:
    bench = mixing(by_form(**{STATIC: 2e-4}), off(STATIC))
    bench.join(bench.measured(by_form(**{STATIC: 2e-4}), rounds=4, errors=off(STATIC)))
    assert bench.child.ops().count("mixed") == 1


def test_of_several_the_nearest_to_the_limit_is_mixed() -> None:
    errors = {f"{STATIC}/t4": 0.3, f"{STATIC}-channel/t4": 0.05}
    bench = mixing(by_form(**{STATIC: 2e-4}), lambda case: errors.get(label(case), 0.2))
    # Everything is over the limit, the model as given too: without a leader nothing is worth it.
    assert bench.first_joined == []
    bench = mixing(
        by_form(**{STATIC: 2e-4}),
        lambda case: errors.get(label(case), 1e-6 if case.precision == "fp32" else 0.2),
    )
    (asked,) = (request for request in bench.child.asked if request["op"] == "mixed")
    assert Recipe.of(asked["recipe"]).label == f"{STATIC}-channel"


@pytest.mark.parametrize(
    ("seconds", "errors"),
    [
        (by_form(**{STATIC: 2e-4}), off()),  # within the limit
        (by_form(**{STATIC: 2e-3}), off(STATIC)),  # slower anyway
        (by_form(**{STATIC: 9.7e-4}), off(STATIC)),  # hardly faster
        (by_form(**{"int8-dynamic": 2e-4}), off("int8-dynamic")),  # its ranges are its inputs' own
    ],
)
def test_what_is_not_worth_mixing(seconds, errors) -> None:
    assert "mixed" not in mixing(seconds, errors).child.ops()


def test_a_mix_that_fails_is_told_and_the_race_goes_on() -> None:
    reason = failure("unsupported", "no node of it may stay in INT8")
    bench = mixing(by_form(**{STATIC: 2e-4}), off(STATIC), mixed=reason)
    last = bench.built()[-1]
    assert last.recipe.endswith("-mixed") and last.recipe.startswith(STATIC)
    assert last.reason is not None and last.reason.message == "no node of it may stay in INT8"
    assert bench.first_joined  # the neighbours of the leader
    assert not any("mixed" in label(case) for case in bench.first_joined)


def test_a_contender_without_an_answer_is_not_mixed() -> None:
    bench = Bench({"mixed": mix})
    bench.open()
    unknown = bench.measured(by_form(**{STATIC: 2e-4}), errors=off(STATIC))
    for each in unknown:
        each.accuracy = None if each.case.quantization else accuracy(1e-6)
    bench.join(unknown)
    assert "mixed" not in bench.child.ops()


# ------------------------------------------------------------------- saving


def test_the_pick_is_saved_where_the_user_said() -> None:
    saved = {"file": "/x/best.onnx", "size_bytes": 300, "difference": 0.0}
    bench = Bench({"save": saved}, {"save_best": "out/best.onnx"})
    static = next(case for case in bench.open() if label(case) == f"{STATIC}/t4")
    found = bench.lab.save(static)
    assert (found.file, found.size_bytes, found.reason) == ("out/best.onnx", 300, None)
    asked = bench.child.asked[-1]
    assert asked["form"] == f"{STATIC}.onnx"
    assert Path(asked["destination"]).is_absolute()


def test_what_could_not_be_saved_is_told() -> None:
    bench = Bench({"save": failure("no_space", "the disk is full")}, {"save_best": "out/b.onnx"})
    (case, *_) = bench.open()
    found = bench.lab.save(case)
    assert found.reason is not None and found.reason.message == "the disk is full"
    assert found.size_bytes is None


def test_the_fastest_run_of_the_model_as_given_is_the_yardstick() -> None:
    bench = Bench()
    bench.open()
    seconds = {"fp32/t4": 3e-3, "fp32/t1": 2e-3}
    measured = bench.measured(lambda case: seconds.get(label(case), 1e-3))
    found = bench.lab.yardstick(measured)
    assert found is not None and found.endswith("fp32/t1")
    assert bench.lab.yardstick([c for c in measured if c.case.quantization]) is None
