"""A user's model as a workload: not listed, run as its case says, checked against the original."""

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import lab_models
import numpy as np
import onnx
import onnxruntime
import pytest
from checking import fails_with
from lab_builders import case

from workbench import catalog
from workbench.contract import Setup, Task, WorkloadError
from workbench.planning import scenarios
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.planning.usage import UsageError
from workbench.pool import guardian
from workloads._shared import session
from workloads.lab import samples, workload
from workloads.lab.child import Lab


def test_the_lab_plans_it_and_it_is_not_listed() -> None:
    assert "model" not in catalog.files()
    assert "model" not in catalog.load_all()[0]
    found = catalog.load("model")
    assert (found.name, found.variants, found.parameters) == ("model", (), ())
    with pytest.raises(UsageError, match="unknown workload 'model'"):
        resolve(Request(workloads=("model",)), scenarios.load())


@pytest.mark.parametrize("name", ["session", "torch", "nothing", ""])
def test_a_helper_of_workloads_is_not_a_workload(name: str) -> None:
    with pytest.raises(WorkloadError):
        catalog.load(name)


def test_its_work_is_counted_in_samples_or_in_runs() -> None:
    workload = catalog.load("model")
    assert workload.work(case()).item == "samples"
    alone = workload.work(replace(case(), batch=None))
    assert (alone.item, alone.items, alone.flops) == ("runs", 1, None)
    assert workload.work(replace(case(), batch=8)).items == 8


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    file = lab_models.folder_of(lab_models.perceptron(), tmp_path, (2, 16), count=5)
    return {"model": str(file), "folder": str(tmp_path), "metric": "relative_error"}


def prepared(files: dict[str, str], **of_case: Any) -> Task:
    """A task that no earlier one has been checked for."""
    for known in Path(files["folder"]).glob(f"*{samples.CHECKED}"):
        known.unlink()
    setup = Setup(files=files)
    task = catalog.load("model").prepare(case(**{"threads": 1, **of_case}), setup)
    assert set(setup.seconds) == {"compile"}
    return task


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
@pytest.mark.parametrize("mode", [None, "nospin", "basic", "extended", "bf16"])
def test_the_model_as_given_agrees_with_itself(files, mode, device) -> None:
    task = prepared(files, mode=mode, device=device, threads=None if ":" in device else 2)
    task.step()
    found = task.check()
    assert found.value < 1e-5
    assert found.passed
    assert "on 5 inputs" in found.reference
    (output,) = found.outputs
    assert output.cosine == pytest.approx(1.0)


def test_the_error_of_another_variant_is_measured(files, tmp_path) -> None:
    other = np.full((2, 8), 0.5, np.float32)
    references = samples.read(tmp_path / samples.REFERENCE)
    samples.write(tmp_path / samples.REFERENCE, [[other] for _ in references])
    found = prepared(files).check()
    assert found.value > 0.1
    assert found.passed  # the limit is the advisor's to apply
    agreeing = prepared({**files, "metric": "disagreement"}).check()
    assert agreeing.metric == "disagreement"
    assert 0 <= agreeing.value <= 1


def test_inputs_are_taken_in_turn(files) -> None:
    task = prepared(files)
    seen: list[Any] = []
    task.session = type("Session", (), {"run": lambda self, names, feed: seen.append(feed["x"])})()
    for _ in range(7):
        task.step()
    given = [sample[0] for sample in samples.read(Path(files["folder"]) / samples.INPUTS)]
    for got, wanted in zip(seen, [*given, *given[:2]], strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_very_slow_variant_is_checked_on_two_inputs(files, monkeypatch) -> None:
    monkeypatch.setattr(workload, "CHECKED_S", -1.0)
    assert "on 2 inputs" in prepared(files).check().reference


def off_by(folder: Path, error: float, name: str = samples.REFERENCE) -> None:
    """Change the answers that count as right, so that the model has this error."""
    right = samples.read(folder / name)
    samples.write(folder / name, [[array / (1 + error)] for (array,) in right])


@pytest.fixture
def promising(tmp_path: Path) -> dict[str, str]:
    """Forty samples that choose, and as many that check."""
    file = lab_models.folder_of(lab_models.perceptron(), tmp_path, (2, 16), count=40)
    for kept, apart in (
        (samples.INPUTS, samples.CHECK),
        (samples.REFERENCE, samples.CHECK_REFERENCE),
    ):
        samples.write(tmp_path / apart, samples.read(tmp_path / kept))
    files = {"model": str(file), "folder": str(tmp_path), "metric": "relative_error"}
    return {**files, "limit": "0.02"}


def test_a_variant_within_the_limit_is_checked_on_inputs_kept_apart(promising, tmp_path) -> None:
    off_by(tmp_path, 0.01)
    off_by(tmp_path, 0.03, samples.CHECK_REFERENCE)
    found = prepared(promising).check()
    assert found.held_out
    assert found.value == pytest.approx(0.03, rel=0.01)
    assert found.error_bound is not None and found.error_bound > found.value
    assert "on 40 held-out inputs" in found.reference and found.inputs == 40


def test_a_variant_over_the_limit_never_sees_them(promising, tmp_path) -> None:
    off_by(tmp_path, 0.0199)  # only its bound is over the limit
    (tmp_path / samples.CHECK_REFERENCE).unlink()
    found = prepared(promising).check()
    assert not found.held_out
    assert found.value < 0.02 < (found.error_bound or 0)


def test_the_model_as_given_and_random_inputs_promise_nothing(files, promising) -> None:
    given = {name: text for name, text in promising.items() if name != "limit"}
    assert prepared(given).check().error_bound is None
    Path(promising["folder"], samples.CHECK).unlink()
    assert prepared(promising).check().error_bound is None


def test_a_variant_too_slow_for_enough_inputs_promises_nothing(promising, monkeypatch) -> None:
    monkeypatch.setattr(workload, "CHECKED_S", -1.0)
    found = prepared(promising).check()
    assert (found.held_out, found.error_bound) == (True, None)
    found = prepared({**promising, "metric": "disagreement", "limit": "1"}).check()
    assert (found.held_out, found.error_bound) == (True, None)


def test_a_share_that_so_few_inputs_cannot_bound_is_not_promised(promising) -> None:
    """Forty that agree leave 7%, so a limit of 1% would refuse every variant."""
    found = prepared({**promising, "metric": "disagreement", "limit": "0.01"}).check()
    assert (found.value, found.held_out, found.error_bound) == (0.0, True, None)
    found = prepared({**promising, "metric": "disagreement", "limit": "0.1"}).check()
    assert found.error_bound == pytest.approx(1 - 0.025 ** (1 / 40))


def test_nothing_is_promised_by_the_inputs_that_check_alone(promising, monkeypatch) -> None:
    left = iter([39, 40])
    answers = workload.ModelTask._answers
    monkeypatch.setattr(
        workload.ModelTask, "_answers", lambda self, given: answers(self, given[: next(left)])
    )
    found = prepared(promising).check()
    assert "on 40 held-out inputs" in found.reference and found.error_bound is None


def test_few_inputs_choose_by_the_answers_of_cross_validation(promising, tmp_path) -> None:
    answers = [[array * 1.5] for (array,) in samples.read(tmp_path / samples.REFERENCE)]
    samples.write(tmp_path / f"model{samples.FOLDED}", answers)
    found = prepared(promising).check()
    assert (found.held_out, found.value) == (False, pytest.approx(0.5))


def test_openvino_answers_some_inputs_itself(promising, tmp_path, monkeypatch) -> None:
    right = samples.read(tmp_path / samples.REFERENCE)
    samples.write(tmp_path / f"model{samples.FOLDED}", right)
    task = prepared(promising)
    task.case = replace(task.case, backend="openvino")
    doubled = [[2 * array] for (array,) in right]
    monkeypatch.setattr(task, "_answers", lambda inputs: doubled)
    found = task.check()
    assert (found.held_out, found.value) == (True, pytest.approx(1.0))
    (tmp_path / samples.CHECK).unlink()
    (tmp_path / f"model-openvino{samples.CHECKED}").unlink()
    assert task.check().value == pytest.approx(1.0)


def test_other_threads_take_over_the_error_of_the_same_file(promising, monkeypatch) -> None:
    one, other = (prepared(promising, threads=count) for count in (1, 2))
    found = one.check()
    monkeypatch.setattr(other, "_answers", Mock(side_effect=AssertionError))
    assert other.check() == found
    assert found.held_out and found.outputs
    for changed in ({"metric": "disagreement"}, {"limit": 0.03}):
        for name, value in changed.items():
            monkeypatch.setattr(other, name, value)
        with pytest.raises(AssertionError):
            other.check()


def test_another_first_answer_is_checked_anew(promising, tmp_path) -> None:
    task = prepared(promising)
    task.check()
    inputs = samples.read(tmp_path / samples.INPUTS)
    task.inputs = [{"x": 2 * x} for (x,) in inputs]
    assert task.check().value > 0.1


def test_answers_of_another_shape_are_wrong(files, tmp_path) -> None:
    references = [[np.zeros((2, 3), np.float32)] for _ in range(5)]
    samples.write(tmp_path / samples.REFERENCE, references)
    with fails_with("wrong_result", "has shape", hint="export the model without that part"):
        prepared(files).check()


def test_its_profile_names_operators(files) -> None:
    found = prepared(files).profile(3)
    assert {"MatMul", "Gemm", "FusedMatMul", "FusedGemm"} & {o.name for o in found.operators}


def options(mode: str | None, threads: int = 3) -> Any:
    return session._options(mode, threads, None)


def test_the_words_of_the_mode_are_session_options() -> None:
    levels = onnxruntime.GraphOptimizationLevel
    assert options(None).graph_optimization_level == levels.ORT_ENABLE_ALL
    assert options("basic").graph_optimization_level == levels.ORT_ENABLE_BASIC
    both = options("extended+nospin")
    assert both.graph_optimization_level == levels.ORT_ENABLE_EXTENDED
    assert both.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert (both.intra_op_num_threads, both.inter_op_num_threads) == (3, 1)


@pytest.mark.parametrize(
    ("mode", "device", "provider"),
    [
        (None, "cpu", "CPUExecutionProvider"),
        ("nospin", "cpu", "CPUExecutionProvider"),
        (None, "fake:0", "CPUExecutionProvider"),
        (None, "cuda:1", "CUDAExecutionProvider"),
        ("openvino", "cpu", "OpenVINOExecutionProvider"),
        ("tensorrt", "cuda:0", "TensorrtExecutionProvider"),
        ("nospin+xnnpack", "cpu", "XnnpackExecutionProvider"),
    ],
)
def test_the_provider_of_a_case(mode: str | None, device: str, provider: str) -> None:
    assert session.provider_of(case(mode=mode, device=device)) == provider


def test_a_simulated_gpu_runs_every_candidate_on_the_cpu() -> None:
    assert session.provider_of(case(mode="tensorrt", device="fake:0")) == "CPUExecutionProvider"


class Asked:
    """A module `onnxruntime` whose sessions keep what they were asked for."""

    __version__ = "1.31.1"
    cuda_version = "13.0"
    SessionOptions: Any = None

    def __init__(self) -> None:
        self.providers: list[Any] = []
        self.options: Any = None

    def preload_dlls(self) -> None:
        print("to standard output")

    def get_available_providers(self) -> list[str]:
        return ["TensorrtExecutionProvider", "CUDAExecutionProvider"]

    def InferenceSession(self, model, options, *, providers, **_):  # noqa: N802
        self.providers, self.options = [name for name, _ in providers], options
        self.engines = providers[0][1].get("trt_engine_cache_path")
        return SimpleNamespace(get_providers=lambda: self.providers)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    real = importlib.import_module("onnxruntime")
    found.SessionOptions = real.SessionOptions
    monkeypatch.setattr(session, "onnxruntime", found)
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_the_cpu_takes_the_rest_of_shared_models_only(asked, shared, monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    wanted = ["TensorrtExecutionProvider", "CUDAExecutionProvider"]
    wished = case(mode="tensorrt", device="cuda:0", threads=None)
    session.open_session(b"", wished, shared=shared)
    assert asked.providers == (wanted + ["CPUExecutionProvider"] * shared)
    key = "session.disable_cpu_ep_fallback"
    if shared:
        with pytest.raises(RuntimeError):
            asked.options.get_session_config_entry(key)
    else:
        assert asked.options.get_session_config_entry(key) == "1"
    assert asked.options.intra_op_num_threads == (3 if shared else 1)


def test_engines_are_kept_by_weights_and_versions(asked, tmp_path, monkeypatch, capfd) -> None:
    """Their own names say nothing about the weights: another model's engine would answer."""
    monkeypatch.setenv("ORT_TENSORRT_CACHE_PATH", str(tmp_path / "engines"))
    monkeypatch.setitem(sys.modules, "onnxruntime", asked)
    wanted, file = case(mode="tensorrt", device="cuda:0"), tmp_path / "m.onnx"
    file.write_bytes(b"a")

    def kept(model: bytes | str) -> str:
        session.open_session(model, wanted)
        assert Path(asked.engines).is_dir()
        return asked.engines

    first = kept(b"a")
    assert Path(first).parent == tmp_path / "engines"
    assert kept(b"a") == first == kept(str(file))
    assert kept(b"b") != first
    asked.__version__ = "1.32.0"
    assert kept(b"a") != first
    assert capfd.readouterr().out == ""


def test_an_engine_of_weights_in_a_file_of_their_own_is_not_that_of_other_weights(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_TENSORRT_CACHE_PATH", str(tmp_path / "engines"))
    file, weights = tmp_path / "m.onnx", tmp_path / "m.weights"
    own = {"save_as_external_data": True, "location": weights.name, "size_threshold": 0}
    onnx.save(lab_models.perceptron(), file, **own)

    def kept() -> str:
        session.open_session(str(file), case(mode="tensorrt", device="cuda:0"))
        return asked.engines

    first = kept()
    assert kept() == first
    os.utime(weights, ns=(0, 0))  # written by another training
    assert kept() != first


def test_an_engine_has_the_time_of_a_compilation() -> None:
    assert case(mode="tensorrt").is_compiled
    assert case(mode="compile").is_compiled
    assert not case(mode="tf32").is_compiled and not case().is_compiled


def test_the_lab_offers_a_plug_in_before_its_libraries_are_loaded(monkeypatch) -> None:
    here = Asked()
    here.get_available_providers = lambda: ["CPUExecutionProvider"]
    monkeypatch.setitem(sys.modules, "onnxruntime", here)
    assert Lab().providers("", "") == {"cuda": "CUDAExecutionProvider"}
    here.cuda_version = ""
    assert Lab().providers("", "") == {}


@pytest.mark.parametrize("mode", ["coreml", "migraphx"])
def test_a_missing_provider_is_not_replaced(files, mode: str) -> None:
    with fails_with("provider_fallback"):
        session.open_session(files["model"], case(mode=mode), shared=True)


def guard(lines: str) -> None:
    """A guardian that hears `lines` and then its engine's end."""
    command = [sys.executable, "-I", "-S", guardian.__file__, "no-such-run"]
    subprocess.run(command, input=lines, text=True, check=True, timeout=30)


def test_the_guardian_removes_the_scratch_folder(tmp_path: Path) -> None:
    scratch, outside = tmp_path / "scratch of a run", tmp_path / "outside"
    (scratch / "deep").mkdir(parents=True)
    (scratch / "deep" / "form.onnx").write_bytes(b"x")
    (scratch / "link").symlink_to(outside)
    outside.mkdir()
    (outside / "kept").write_text("mine")
    other = tmp_path / ".hidden"  # of --save-best, whose worker was killed
    other.mkdir()
    guard(f"{scratch}\n{other}\n")
    assert not scratch.exists() and not other.exists()
    assert (outside / "kept").read_text() == "mine"


def test_a_guardian_without_a_scratch_folder_or_with_none_left(tmp_path: Path) -> None:
    guard("")
    guard(f"{tmp_path}/gone\n")
