"""Examining the user's code: on which device, with which inputs, and when it fails or hangs."""

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from simulated_own import DIED, FACTS, SimulatedOwn, raced
from simulated_run import IMPORT_S

from workbench.engine import own_code
from workbench.planning.questions import OwnQuestion
from workbench.planning.usage import UsageError
from workbench.pool.pool import HINTS, WorkerFailed
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.report import Report
from workbench.worker.code import MODULES, Code


class OnGpus(SimulatedOwn):
    """A module whose operators are CUDA's alone."""

    places: ClassVar[list[str]] = []
    error = Reason("user_code", "flash_attn needs CUDA")

    def consult_examine(self, request: dict[str, Any]) -> dict[str, Any]:
        place = Code.of(request["code"]).home
        self.places.append(place)
        if place == "cpu":
            raise WorkerFailed(self.error)
        return super().consult_examine(request)


@pytest.mark.parametrize(("devices", "places"), [((), ["cpu", "cuda:0"]), (("gpu",), ["cuda:0"])])
def test_a_module_that_fails_on_the_cpu_is_examined_on_a_gpu(devices, places) -> None:
    OnGpus.places.clear()
    report = Report.of(raced(OnGpus, gpu=True, devices=devices))
    assert OnGpus.places == places
    assert {candidate.case.device for candidate in report.candidates.values()} == {"cuda:0"}
    assert report.code.facts.needs_gpu == (None if devices else OnGpus.error)
    why = "it did not run on the CPU: flash_attn needs CUDA"
    assert report.code.facts.notes == ([] if devices else [why])


def test_a_function_that_fails_without_a_gpu_is_asked_again_on_one() -> None:
    class Function(OnGpus):
        facts: ClassVar = {**FACTS, "kind": "function", "name": "m:work", "batch": None}
        error = Reason("needs_gpu", "m:work cannot run on the CPU: No CUDA GPUs are available")

    OnGpus.places.clear()
    report = Report.of(raced(Function, gpu=True, own=OwnQuestion("function", "m:work")))
    assert OnGpus.places == ["cpu", "cuda:0"]
    assert report.code.facts.needs_gpu == Function.error
    assert [c.case.label for c in report.candidates.values()] == ["cuda:0/python"]


@pytest.mark.parametrize("fits", [True, False])
def test_a_module_of_which_the_gpu_has_no_room_for_copies_is_examined_on_the_cpu(fits) -> None:
    class Large(SimulatedOwn):
        places: ClassVar[list[str]] = []

        def consult_examine(self, request: dict[str, Any]) -> dict[str, Any]:
            place = Code.of(request["code"]).home
            self.places.append(place)
            if place != "cpu":
                raise WorkerFailed(Reason("no_memory", "CUDA out of memory"))
            if not fits:
                raise WorkerFailed(Reason("needs_gpu", "No CUDA GPUs are available"))
            return super().consult_examine(request)

    report = Report.of(raced(Large, gpu=True, devices=("gpu",)))
    assert Large.places == ["cuda:0", "cpu"]
    assert {candidate.case.device for candidate in report.candidates.values()} == {"cuda:0"}
    reasons = [c.reason.code for c in report.candidates.values() if c.reason and not c.blocks]
    assert reasons == ([] if fits else ["no_memory"])


def test_a_module_that_fails_everywhere_is_reported_with_its_first_error() -> None:
    class Broken(OnGpus):
        def consult_examine(self, request: dict[str, Any]) -> dict[str, Any]:
            with suppress(WorkerFailed):
                super().consult_examine(request)
                raise WorkerFailed(Reason("user_code", "and another"))
            raise WorkerFailed(self.error)

    report = Report.of(raced(Broken, gpu=True))
    (candidate,) = report.candidates.values()
    assert candidate.reason == OnGpus.error


@pytest.mark.parametrize("has_run", [True, False])
def test_a_module_of_a_script_may_need_a_gpu_too_once_the_script_has_run(
    has_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Scripted(OnGpus):
        def consult_examine(self, request: dict[str, Any]) -> dict[str, Any]:
            if has_run:
                Path(Code.of(request["code"]).folder).mkdir(parents=True, exist_ok=True)
                Path(Code.of(request["code"]).folder, MODULES).touch()
            return super().consult_examine(request)

    OnGpus.places.clear()
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    raced(Scripted, gpu=True, own=OwnQuestion("torch", "train.py"))
    assert OnGpus.places == ["cpu", "cuda:0"][: 1 + has_run]


@pytest.mark.parametrize(
    ("precision", "is_slow"), [("fp32", False), ("bf16", False), ("fp16", True)]
)
def test_a_training_of_weights_that_the_cpu_computes_slowly_is_noted(
    precision: str, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_code, "native", lambda name, _: name == "bf16")
    asked = {"modes": ("plain",), "backends": ("torch",)}
    for train in (True, False):
        question = OwnQuestion("torch", "shop.model:build", train=train)
        notes = Report.of(
            raced(facts={"precision": precision}, own=question, **asked)
        ).code.facts.notes
        assert any("its weights are FP16" in note for note in notes) == (is_slow and train)


def test_a_batch_that_may_be_none_is_noted() -> None:
    for options, is_noted in (({"batch": (1, 8)}, True), ({}, False)):
        report = Report.of(raced(facts={"resizable": False}, **options))
        assert any("was not confirmed" in note for note in report.code.facts.notes) == is_noted


def test_inputs_without_tensors_are_not_exported() -> None:
    report = Report.of(raced(facts={"inputs": []}))
    assert "would be a constant" in report.code.left_out["onnx"]
    assert not any(c.case.backend == "onnxruntime" for c in report.candidates.values())


def test_shares_of_a_scripts_modules_count_the_import_of_torch(tmp_path, monkeypatch) -> None:
    called = {"name": "Net", "calls": 9, "seconds": 2.0, "share": 0.5, "shapes": ["1x3"]}
    modules = [called, {**called, "seconds": 0.0, "share": 0.0}]
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    question = OwnQuestion("torch", "train.py")
    report = Report.of(raced(facts={"modules": modules}, own=question))
    first, unused = report.code.facts.modules
    assert first.share == 2.0 / (4.0 + IMPORT_S["torch"]) and unused.share == 0.0


HUNG = Reason("timeout", "no answer within 9 s", HINTS["timeout"])
RAISED = Reason("user_code", "shop.model: ValueError: no weights")


def test_a_batch_needs_a_common_axis() -> None:
    with pytest.raises(UsageError, match=r"^--batch: shop\.model:build has no .* inputs\(batch\)"):
        raced(facts={"batch": None, "resizable": False}, batch=(4,))


def test_an_archive_of_one_size_takes_no_other() -> None:
    facts = {"name": "net.pt2", "batch": 2, "resizable": False, "of_one_size": True}
    with pytest.raises(UsageError, match=r"net\.pt2 was exported for batch 2 alone;"):
        raced(facts=facts, batch=(4,))
    assert list(Report.of(raced(facts=facts, batch=(2,))).rows) == ["own"]


def test_a_module_that_fixes_its_batch_takes_no_other() -> None:
    facts = {"name": "shop.model:build", "batch": 2, "resizable": False, "of_one_size": True}
    with pytest.raises(UsageError, match=r"shop\.model:build takes batch 2 alone$"):
        raced(facts=facts, batch=(2, 4))


def test_code_that_hangs_gets_a_remedy_that_fits() -> None:
    (candidate,) = Report.of(raced(failures={"examine": HUNG})).rows["own"].candidates
    assert candidate.reason.hint == "make it return sooner, or raise --budget"
    assert candidate.reason.message == "shop.model:build: no answer within 9 s"


def test_a_module_gets_its_time_after_that_of_its_script(tmp_path, monkeypatch) -> None:
    class Slow(SimulatedOwn):
        def ask(self, key: Any, deadline_s: float, kind: Any, **request: Any) -> Any:
            if request.get("question") == "examine":
                calls_s.append(deadline_s - Code.of(request["code"]).seconds)
                raise WorkerFailed(Reason("timeout", "no answer", HINTS["timeout"]))
            return super().ask(key, deadline_s, kind, **request)

    calls_s: list[float] = []
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    events = raced(Slow, budget_s=60, own=OwnQuestion("torch", "train.py"))
    assert calls_s == [pytest.approx(30.0)]  # as those of a module that a builder gives
    (candidate,) = Report.of(events).rows["own"].candidates
    assert candidate.reason.hint == "raise --budget, or pass a smaller batch after --"


def test_a_script_that_ran_is_not_the_part_that_takes_too_long(tmp_path, monkeypatch) -> None:
    class Ran(SimulatedOwn):
        def consult(self, request: dict[str, Any]) -> dict[str, Any]:
            Path(Code.of(request["code"]).folder, MODULES).touch()
            raise WorkerFailed(HUNG)

    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    report = Report.of(raced(Ran, own=OwnQuestion("torch", "train.py")))
    (candidate,) = report.rows["own"].candidates
    words = "the calls that examine its module: no answer within 9 s"
    assert candidate.reason.message == words
    assert candidate.reason.hint == "raise --budget, or pass a smaller batch after --"


def test_a_wrong_name_is_a_usage_error() -> None:
    misnamed = Reason("bad_target", "there is no shop.model", "did you mean")
    with pytest.raises(UsageError, match=r"there is no shop.model \(did you mean\)"):
        raced(failures={"examine": misnamed})


@pytest.mark.parametrize(("reason", "named"), [(RAISED, ""), (DIED, "shop.model:build: ")])
def test_code_that_fails_is_data_and_fails_the_run(reason: Reason, named: str) -> None:
    report = Report.of(raced(failures={"examine": reason}))
    (candidate,) = report.rows["own"].candidates
    assert candidate.state == "failed"
    assert candidate.reason.message == f"{named}{reason.message}"
    assert candidate.reason.hint == reason.hint
    assert report.finished.exit_code == 1
    assert report.code is None


def test_code_that_fails_where_no_cpu_is_asked_for_failed_on_the_gpu() -> None:
    events = raced(failures={"examine": RAISED}, gpu=True, devices=("gpu",))
    report = Report.of(events)
    (candidate,) = report.rows["own"].candidates
    assert candidate.case.device == "cuda:0"


@pytest.mark.parametrize("lingers", [False, True])
def test_a_script_whose_threads_go_on_gets_another_process(lingers: bool) -> None:
    events = raced(facts={"lingers": lingers})
    until = next(n for n, e in enumerate(events) if isinstance(e, ev.CodeExamined))
    ended = [e.worker for e in events[:until] if isinstance(e, ev.WorkerEnded)]
    assert ended == ["cpu/torch"] * lingers
