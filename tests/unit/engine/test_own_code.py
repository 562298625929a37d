"""The rows of `advise --torch`, by the real engine on a made-up machine."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from simulated_own import DIED, SimulatedOwn, raced

from workbench.contract import Case
from workbench.engine import own_exports
from workbench.planning.questions import OwnQuestion
from workbench.planning.usage import UsageError
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.candidate import Row
from workbench.report.report import Report


@cache
def usual() -> list[ev.AnyEvent]:
    """The events of a run with default options, which no test changes."""
    return raced()


def labels(row: Row) -> list[str]:
    return [candidate.case.label for candidate in row.candidates]


def joined(events: list[ev.AnyEvent], row: str) -> list[set[str]]:
    """The labels that joined a row, step by step."""
    found = [e for e in events if isinstance(e, ev.CasesJoined) and e.scenario == row]
    return [{case.label for case in event.cases} for event in found]


def test_ways_join_from_the_cheapest_on_and_the_best_is_picked() -> None:
    events = usual()
    report = Report.of(events)
    own, large = report.rows["own"], report.rows["own[batch=8]"]
    planned = next(e for e in events if isinstance(e, ev.RacePlanned))
    assert [case.label for case in planned.cases] == ["cpu/torch/fp32/t2", "cpu/torch/fp32/t1"]
    steps = joined(events, "own")
    assert {"cpu/torch/fp32/nhwc/t2", "cpu/torch/bf16/t2", "cpu/torch/bf16/nhwc/t2"} <= steps[0]
    assert steps[1] == {f"cpu/onnxruntime/fp32/{way}" for way in ("t2", "nospin/t2", "t1")}
    assert steps[2] == {"cpu/onnxruntime/int8-static-u8s8-channel/t2"}
    assert own.verdict.choice == "cpu"
    assert "int8-static" in (own.verdict.pick or "")
    assert own.verdict.pick in report.candidates
    # Every kind that did well enough races at the other batch too.
    assert {"cpu/torch/fp32/t2", "cpu/onnxruntime/fp32/t2", "cpu/torch/bf16/nhwc/t2"} <= {
        *labels(large)
    }
    assert report.code.facts.name == "shop.model:build"


def test_the_code_as_written_has_the_threads_of_the_users_shell(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    report = Report.of(raced())
    assert labels(report.rows["own"])[:2] == ["cpu/torch/fp32/t1", "cpu/torch/fp32/t2"]
    assert report.code.facts.threads == 1


def test_the_row_that_finds_the_candidates_has_half_of_the_time_whatever_the_batches() -> None:
    events = raced(batch=(1, 2, 4, 8, 16, 32))
    first, second, *_ = (e.share_s for e in events if isinstance(e, ev.RaceStarted))
    assert first > 3 * second


@pytest.mark.parametrize(
    ("target", "early"), [("shop.model:build", [own_exports.EXPORTER]), ("shop.py", [])]
)
def test_the_exporter_starts_while_a_module_is_examined_but_not_next_to_a_script(
    target: str, early: list[WorkerKey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").touch()
    monkeypatch.chdir(tmp_path)
    begun: list[WorkerKey] = []

    class Early(SimulatedOwn):
        def starting(self, keys: Sequence[WorkerKey]) -> AbstractContextManager[None]:
            begun.extend(keys)
            return super().starting(keys)

        def consult_examine(self, request: dict[str, Any]) -> dict[str, Any]:
            assert begun == early
            return super().consult_examine(request)

    raced(Early, own=OwnQuestion("torch", target))
    assert begun[: len(early)] == early


def test_all_cases_are_of_the_workload_own() -> None:
    report = Report.of(usual())
    assert {case.workload for case in (c.case for c in report.candidates.values())} == {"own"}
    assert all(
        "/" not in case.params["code"] for case in (c.case for c in report.candidates.values())
    )


class Watched(SimulatedOwn):
    """Writes down each question, when it was asked, and how long the answer may take."""

    asked_at: ClassVar[list[tuple[str, float, float]]] = []
    saved: ClassVar[list[str]] = []  # ids

    def ask(self, key: Any, deadline_s: float, kind: Any, **request: Any) -> Any:
        name = request.get("question", request["op"])
        self.asked_at.append((name, self.control.now(), deadline_s))
        if name == "save":
            self.saved.append(request["picked"].id)
        return super().ask(key, deadline_s, kind, **request)


@pytest.mark.parametrize("budget_s", [40, 60, 120])
def test_no_question_may_outlast_the_row_that_asks_it(budget_s: float) -> None:
    Watched.asked_at.clear()
    events = raced(Watched, budget_s=budget_s)
    began = next(e for e in events if isinstance(e, ev.RaceStarted))
    ended_s = next(e.at_s for e in events if isinstance(e, ev.RaceEnded))
    kinds = ("export", "breaks", "inspect", "build", "mixed")
    found = [each for each in Watched.asked_at if each[0] in kinds and each[1] < ended_s]
    assert {"export", "inspect", "build"} <= {name for name, *_ in found}
    row_s = began.at_s + began.share_s
    assert [each for each in found if each[1] + each[2] > row_s] == []


def test_int8_is_left_out_where_onnx_runtime_is_far_behind() -> None:
    report = Report.of(raced(takes=lambda case: 8 if case.backend == "onnxruntime" else 1))
    assert report.code.left_out["int8"].startswith("the exported model in FP32 takes ")
    assert not any(c.case.precision == "int8" for c in report.candidates.values())
    assert any(c.case.is_compiled for c in report.candidates.values())


def test_a_gpu_that_wins_at_large_batches_has_a_crossover() -> None:
    found = Report.of(raced(gpu=True, budget_s=60.0)).rows["own"].verdict
    assert (found.crossover.below, found.crossover.above) == ("cpu", "gpu")
    assert found.crossover.value is not None and 1 < found.crossover.value <= 8


WITHOUT_EXPORT = {"export": Reason("not_exported", "it has no ONNX form: complex numbers")}


def test_a_module_that_cannot_be_exported_races_in_torch() -> None:
    report = Report.of(raced(failures=WITHOUT_EXPORT, budget_s=120))
    assert {c.case.backend for c in report.candidates.values()} == {"torch"}
    assert report.code.left_out["onnx"] == "it has no ONNX form: complex numbers"
    compiled = [c for c in report.candidates.values() if c.case.is_compiled]
    assert compiled and compiled[0].case.precision == "bf16"
    assert report.code.breaks == ["2x Tensor.item()"]


def test_a_compiled_candidate_near_the_leader_is_tried_with_other_threads() -> None:
    def takes(case: Case) -> float:
        return 1 / 8 if case.is_compiled and case.threads == 1 else 1

    events = raced(takes=takes, failures=WITHOUT_EXPORT, budget_s=120)
    verdict = Report.of(events).rows["own"].verdict
    assert (verdict.pick or "").endswith("/compile/t1")


def test_the_next_best_are_tried_with_the_threads_of_the_leader() -> None:
    """One thread suits ONNX Runtime so well that INT8 with two comes behind FP32 with one."""

    def takes(case: Case) -> float:
        alone = 0.8 / (3.4 if case.backend == "onnxruntime" else 1.0)
        return alone if case.threads == 1 else 1.0

    events = raced(takes=takes, batch=(1,))
    verdict = Report.of(events).rows["own"].verdict
    pick = (verdict and verdict.pick) or ""
    assert "onnxruntime/int8" in pick and pick.endswith("/t1")


class LateInt8(SimulatedOwn):
    """Exporting takes so long that INT8 leads shortly before the end; one thread suits it."""

    def consult_export(self, request: dict[str, Any]) -> dict[str, Any]:
        self.control.at_s += 16.0
        return super().consult_export(request)


def test_another_number_of_threads_is_tried_however_little_time_is_left() -> None:
    def takes(case: Case) -> float:
        return 0.4 if case.precision == "int8" and case.threads == 1 else 1.0

    verdict = Report.of(raced(LateInt8, takes, budget_s=36, batch=(1,))).rows["own"].verdict
    assert (verdict.pick or "").endswith("/t1")


def test_an_exporter_that_dies_leaves_the_others_racing() -> None:
    report = Report.of(raced(failures={"export": DIED}))
    assert report.code.left_out["onnx"] == DIED.message
    assert report.finished.exit_code == 0
    verdict = report.rows["own"].verdict
    assert (verdict.pick or "").endswith("/cpu/torch/bf16/nhwc/t2")


class WrongInt8(SimulatedOwn):
    """INT8 is by far the fastest, and over its limit."""

    def step_s(self, case: Case) -> float:
        return super().step_s(case) / (9 if case.precision == "int8" else 1)

    def accuracy(self, case: Case) -> dict[str, Any]:
        found = super().accuracy(case)
        return {**found, "value": 0.3} if case.precision == "int8" else found


def test_the_fastest_is_timed_once_and_never_picked_where_it_is_over_its_limit() -> None:
    report = Report.of(raced(WrongInt8))
    own = report.rows["own"]
    wrong = [c for c in own.candidates if c.case.precision == "int8"]
    others = [c for c in own.candidates if c.case.precision != "int8"]
    assert wrong and all(len(candidate.blocks) == 1 for candidate in wrong)
    assert all(
        min(c.samples_s) < min(other.samples_s) for c in wrong for other in others if other.blocks
    )
    assert own.verdict.pick in {c.case.id for c in others}
    assert not any(c.case.precision == "int8" for c in report.rows["own[batch=8]"].candidates)


class RightMixed(SimulatedOwn):
    """INT8 is over its limit, save where some nodes stay in FP32."""

    def step_s(self, case: Case) -> float:
        return super().step_s(case) * (1.1 if "mixed" in (case.quantization or "") else 1.0)

    def accuracy(self, case: Case) -> dict[str, Any]:
        found = super().accuracy(case)
        wrong = case.precision == "int8" and "mixed" not in (case.quantization or "")
        return {**found, "value": 0.3} if wrong else found


def test_a_fast_int8_form_over_its_limit_is_mixed_once() -> None:
    events = raced(RightMixed, budget_s=60)
    own = Report.of(events).rows["own"]
    assert "mixed" in (own.verdict.pick or "")
    searched = [e for e in events if isinstance(e, ev.ModelBuilding) and e.search]
    assert len(searched) == 1


class LateMixed(RightMixed):
    """An INT8 form takes so long to make that the first row has no time left to mix it."""

    def lab_build(self, request: dict[str, Any]) -> dict[str, Any]:
        self.control.at_s += 20.0
        return super().lab_build(request)


def test_a_further_row_mixes_the_int8_form_that_only_the_first_measured() -> None:
    first, large = Report.of(raced(LateMixed, budget_s=60)).rows.values()
    forms = [{c.case.quantization for c in row.candidates if c.blocks} for row in (first, large)]
    (made,) = forms[0] - {None}
    assert forms[1] - {None} == {f"{made}-mixed"}


def test_the_best_static_and_the_best_dynamic_form_race_at_another_batch() -> None:
    def takes(case: Case) -> float:  # three static forms lead
        return 1.3 if (case.quantization or "").startswith("dynamic") else 1.0

    own, large = Report.of(raced(takes=takes, budget_s=120)).rows.values()
    assert (own.picked.case.quantization or "").startswith("static")
    forms = {(c.case.quantization or "fp32").partition("-")[0] for c in large.candidates}
    assert forms == {"fp32", "static", "dynamic"}


def test_a_precision_that_pays_at_a_large_batch_only_races_there() -> None:
    def takes(case: Case) -> float:  # BF16 is the slowest at batch 1
        return (3.0 if case.batch == 1 else 0.3) if case.precision == "bf16" else 1.0

    own, large = Report.of(raced(takes=takes, budget_s=120)).rows.values()
    assert (own.picked.case.precision, large.picked.case.precision) == ("int8", "bf16")


class OneBatch(SimulatedOwn):
    dynamic = False


def test_an_export_for_one_batch_stays_out_of_the_other_row() -> None:
    report = Report.of(raced(OneBatch))
    assert any(c.case.backend == "onnxruntime" for c in report.rows["own"].candidates)
    assert all(c.case.backend == "torch" for c in report.rows["own[batch=8]"].candidates)


def test_a_module_of_one_batch_has_one_row() -> None:
    assert list(Report.of(raced(facts={"resizable": False})).rows) == ["own"]


def test_requested_batches_make_rows() -> None:
    assert list(Report.of(raced(batch=(1, 8))).rows) == ["own", "own[batch=8]"]
    assert list(Report.of(raced(batch=(8,))).rows) == ["own"]


def test_filters_leave_ways_out() -> None:
    report = Report.of(raced(backends=("torch",), precisions=("fp32",), threads=(2,)))
    assert set(labels(report.rows["own"])) <= {
        "cpu/torch/fp32/t2",
        "cpu/torch/fp32/nhwc/t2",
        "cpu/torch/fp32/compile/t2",
    }
    with pytest.raises(UsageError, match="no candidate is left"):
        raced(precisions=("fp64",), backends=("torch",))


def test_where_no_candidate_is_left_the_reason_is_named() -> None:
    with pytest.raises(UsageError, match=r"no candidate is left.*onnx: it has no ONNX form"):
        raced(failures=WITHOUT_EXPORT, backends=("onnxruntime",))


@pytest.mark.parametrize(
    "filters",
    [{"precisions": ("bf16",)}, {"modes": ("compile",)}, {"precisions": ("fp64", "bf16")}],
)
def test_what_the_filters_exclude_is_neither_exported_nor_quantised(filters: dict) -> None:
    Watched.asked_at.clear()
    report = Report.of(raced(Watched, **filters))
    assert not {name for name, *_ in Watched.asked_at} & {"export", "inspect", "build"}
    assert not report.code.left_out.keys() & {"onnx", "int8"}


def test_a_filter_on_fp32_builds_no_int8() -> None:
    Watched.asked_at.clear()
    report = Report.of(raced(Watched, precisions=("fp32",)))
    assert {c.case.backend for c in report.candidates.values()} == {"torch", "onnxruntime"}
    assert not {name for name, *_ in Watched.asked_at} & {"inspect", "build", "mixed"}


def test_a_precision_that_torch_does_not_compute_in_starts_without_torch() -> None:
    found = labels(Report.of(raced(precisions=("int8",))).rows["own"])
    assert found and all("onnxruntime/int8" in each for each in found)


def test_the_pick_of_the_first_batch_is_saved_once_after_all_races() -> None:
    question = OwnQuestion("torch", "shop.model:build", save_best="best")
    Watched.asked_at.clear()
    events = raced(Watched, own=question)
    report = Report.of(events)
    (saved_s,) = (at_s for name, at_s, _ in Watched.asked_at if name == "save")
    assert saved_s >= max(e.at_s for e in events if isinstance(e, ev.RaceEnded))
    own = report.rows["own"].verdict
    assert Watched.saved == [own.pick]
    saved = report.code.advice.saved
    assert saved.files == ["model.onnx", "reproduce.py"]


def test_what_cannot_be_saved_fails_the_run() -> None:
    failures = {"save": Reason("failed", "best exists already")}
    question = OwnQuestion("torch", "a:b", save_best="best")
    report = Report.of(raced(failures=failures, own=question))
    assert report.code.advice.saved.reason is not None
    assert report.finished.exit_code == 1


def test_the_journal_and_the_document_hold_the_code() -> None:
    report = Report.of(usual())
    document = report.document()
    assert document.code == report.code
    assert document.code is not report.code


def test_exported_models_do_not_race_where_the_cpu_does_not() -> None:
    code = Report.of(raced(gpu=True, devices=("cuda:0",))).code
    assert code.left_out["onnx"] == "exported models race on the CPU only"


@pytest.mark.parametrize("returned", [False, True])
def test_inputs_that_a_call_changes_are_exported_if_the_output_holds_the_changes(
    returned: bool,
) -> None:
    report = Report.of(raced(facts={"mutated": ["0.y"], "returns_changes": returned}))
    assert ("onnx" in report.code.left_out) is not returned


@pytest.mark.parametrize("options", [{"precisions": ("fp32",)}, {}])
def test_a_second_batch_starts_as_the_first_where_torch_is_left_out(options: dict) -> None:
    report = Report.of(raced(backends=("onnxruntime",), **options))
    rows = [row for row in report.rows.values() if row.plan.scenario.startswith("own")]
    first, second = (row.plan.cases for row in rows)
    assert first and [replace(case, batch=None) for case in first] == [
        replace(case, batch=None) for case in second
    ]
