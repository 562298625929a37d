"""A real module goes through the exporter and the lab to INT8 forms, with the engine's requests
answered in this process."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import machines
import msgspec
import pytest
from builders import context

from workbench.advisor.own.candidates import CodeSpace
from workbench.contract import Case, Setup, WorkloadError
from workbench.engine import own_exports
from workbench.engine.model_variants import LATE
from workbench.engine.own_exports import Exports
from workbench.planning.questions import OwnQuestion
from workbench.planning.request import Request
from workbench.pool.answers import ExportedCode
from workbench.pool.control import Control
from workbench.pool.pool import Answer, WorkerFailed
from workbench.records.code import CodeFacts
from workbench.records.reason import Reason
from workbench.report.report import Report
from workloads.lab.child import Lab
from workloads.own.workload import WORKLOAD

USER = Path(__file__).parents[2] / "fixtures" / "own"


class InProcess:
    """A pool without processes."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.longest_gpu_start_s = 0.0
        self.alive: dict[Any, set[str]] = {}
        self.import_s = {own_exports.EXPORTER: 1.0}
        self.early: list[Any] = []

    def starting(self, keys: Sequence[Any]) -> AbstractContextManager[None]:
        self.early += keys
        return nullcontext()

    def start(self, key: Any, _: float) -> None:
        self.alive.setdefault(key, set())

    def is_alive(self, key: Any) -> bool:
        return key in self.alive

    def held(self, key: Any) -> set[str]:
        return self.alive.get(key, set())

    def ask(self, key: Any, deadline_s: float, kind: Any, *, op: str, **request: Any) -> Any:
        request.pop("workload", None)
        try:
            found = getattr(WORKLOAD if op == "consult" else Lab(), op)(**request)
        except WorkloadError as error:
            raise WorkerFailed(Reason(error.code, str(error), error.hint)) from error
        return Answer(msgspec.convert(found, kind), False)


@pytest.fixture(params=["picture"])
def exports(tmp_path: Path, monkeypatch: Any, request: Any) -> Exports:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    question = OwnQuestion("torch", f"modules:{request.param}")
    code = question.code(str(tmp_path / "own"), str(USER), 0)
    facts = msgspec.convert(WORKLOAD.consult("examine", code=code.as_text()), CodeFacts)
    return Exports(
        code,
        [4, 8],
        msgspec.structs.replace(question.scenario(), batch=4),
        CodeSpace(facts, machines.cpu_server()[0].cpu, (2, 1), (), Request(question=question)),
        context(InProcess(tmp_path), Control(), Report(), lambda event: None),
    )


def accuracy(exports: Exports, case: Case) -> Any:
    return WORKLOAD.prepare(case, Setup(files=dict(exports.files(case)))).check()


def test_an_int8_form_of_the_module_races_at_both_batches(exports: Exports) -> None:
    exports.allow(60.0)
    assert exports.export()
    assert exports.takes(8)
    (case,) = exports.next_quantised(())
    assert (case.backend, case.precision, case.batch) == ("onnxruntime", "int8", 4)
    assert exports.files(case)["model"] != exports.exported.model
    for batch in (4, 8):
        at = replace(case, batch=batch)
        found = accuracy(exports, at)
        assert found.reference == "eager in float64"
        for threads in (1, 2):  # the search itself tries other numbers of threads
            leader = replace(at, threads=threads)
            near = exports.neighbours(leader)
            assert near and all(each.batch == 4 for each in near), "the row moves them to its own"
            assert any(each.quantization for each in near), "of the INT8 form, not of FP32"
        assert 0 < found.value < 0.1
    assert "int8" not in exports.left_out


@pytest.mark.parametrize("exports", ["detector"], indirect=True)
def test_boxes_do_not_hide_the_errors_of_scores_in_int8(exports: Exports) -> None:
    exports.allow(60.0)
    assert exports.export()
    (case,) = exports.next_quantised(())
    for batch in (4, 8):
        (found,) = accuracy(exports, replace(case, batch=batch)).outputs
        assert found.part in ("[:, 0:4]", "[:, 4:12]")
        exact = replace(case, precision="fp32", quantization=None, batch=batch)
        assert accuracy(exports, exact).outputs[0].part is None


def test_a_model_that_the_lab_cannot_use_is_left_out(exports: Exports, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"broken")
    exports.exported = ExportedCode(str(model), dynamic=False, operations=1, convolutions=0)
    exports.allow(60.0)
    assert exports.next_quantised(()) == []
    assert "model.onnx" in exports.left_out["int8"]


class Slow(InProcess):
    """Answers nothing in time, and dies of it."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.deadlines: list[float] = []

    def ask(self, key: Any, deadline_s: float, *_: Any, **__: Any) -> Any:
        self.deadlines.append(deadline_s)
        del self.alive[key]
        raise WorkerFailed(Reason("timeout", "no answer within 14.1 s; its log ends: W1126"))


def test_a_lab_that_is_too_slow_for_int8_forms_only_lacks_time(exports: Exports, tmp_path) -> None:
    exports = replace(exports, context=replace(exports.context, pool=Slow(tmp_path)))
    exports.exported = ExportedCode("model.onnx", dynamic=False, operations=1, convolutions=0)
    exports.allow(1.5)
    assert exports.next_quantised(()) == []
    assert exports.left_out["int8"] == LATE
    assert exports.late_forms() == "its INT8 forms"


def test_the_exporter_has_its_share_of_the_time_once_it_has_loaded_the_code(
    exports: Exports, tmp_path: Path
) -> None:
    pool = Slow(tmp_path)
    exports = replace(exports, context=replace(exports.context, pool=pool), load_s=9.0)
    exports.allow(20.0)
    assert not exports.export()
    assert not exports.export(), "it is tried once"
    assert pool.deadlines == [pytest.approx(8.0 + 9.6, abs=0.1)], (
        "importing torch has a deadline of its own"
    )
    assert (
        exports.left_out["onnx"] == "it was not done within its 18 s of the budget; raise --budget"
    )
    with patch.object(own_exports, "knows_compiler", lambda: True):
        exports.allow(26.0)
        assert not exports.may_compile(), "the probe would load the code, and so would compiling"
        exports.allow(50.0)
        assert exports.may_compile(), "a probe without an answer decides nothing"
        pool.import_s[own_exports.EXPORTER] = 7.5
        assert not exports.may_compile(), "where torch imports slowly, compiling is slow too"


def test_code_that_is_at_home_on_a_gpu_is_not_probed_on_the_cpu(exports: Exports) -> None:
    at_home = replace(exports, code=replace(exports.code, home="cuda:0"))
    with patch.object(Exports, "_probe", side_effect=AssertionError("it sees no GPU")):
        at_home.allow(600.0)
        at_home.may_compile()


def test_an_exporter_that_was_started_early_has_yet_to_load_the_code(exports, tmp_path) -> None:
    pool = Slow(tmp_path)
    exports = replace(exports, context=replace(exports.context, pool=pool), load_s=9.0)
    pool.start(own_exports.EXPORTER, 60.0)
    exports.allow(20.0)
    assert not exports.export()
    assert pool.deadlines == [pytest.approx(8.0 + 9.6, abs=0.1)]


@pytest.mark.parametrize(("precisions", "early"), [((), [own_exports.LAB]), (("fp32",), [])])
def test_the_lab_starts_while_a_module_is_exported_that_may_be_quantised(
    exports: Exports, tmp_path: Path, precisions: tuple[str, ...], early: list[Any]
) -> None:
    request = replace(exports.space.request, precisions=precisions)
    pool = InProcess(tmp_path)
    space, of_run = replace(exports.space, request=request), replace(exports.context, pool=pool)
    exports = replace(exports, context=of_run, space=space)
    exports.allow(60.0)
    assert exports.export()
    assert pool.early == early
    assert pool.is_alive(own_exports.LAB) == bool(early)
