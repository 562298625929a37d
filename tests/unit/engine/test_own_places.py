"""Where the user's module is examined, and what its inputs rule out, by the real engine."""

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from simulated_own import FACTS, SimulatedOwn, raced
from simulated_run import IMPORT_S

from workbench.planning.questions import OwnQuestion
from workbench.pool.pool import WorkerFailed
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
