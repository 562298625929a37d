"""Trying the installed packages, in real processes."""

import sys
import tomllib
from pathlib import Path

import onnx
import onnx.checker
import pytest

from workbench import catalog
from workbench.catalog.files import backend_file, is_built_in
from workbench.machine.packages import software
from workbench.machine.packages.software import try_packages
from workbench.machine.packages.stack_trial import TRIALS, _cudnn
from workbench.worker.onnx_gpu import CONVOLUTION, DOUBLING


def test_what_is_installed_here_computes_on_the_cpu() -> None:
    found = try_packages(["torch", "onnxruntime"])
    assert found["torch"].failure is None and found["torch"].version
    assert found["torch"].devices["cpu"] is None
    assert found["onnxruntime"].failure is None
    assert found["onnxruntime"].devices["CPUExecutionProvider"] is None


@pytest.mark.parametrize(("written", "operator"), [(DOUBLING, "Add"), (CONVOLUTION, "Conv")])
def test_the_models_written_by_hand_are_onnx(written: bytes, operator: str) -> None:
    model = onnx.load_model_from_string(written)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == [operator]


@pytest.mark.parametrize(
    ("number", "text"), [(91002, "9.10.2"), (90100, "9.1.0"), (8907, "8.9.7"), (8200, "8.2.0")]
)
def test_cudnns_number_is_its_version(number: int, text: str) -> None:
    assert _cudnn(number) == text


def test_a_package_that_is_not_there_is_a_failure_in_words(tmp_path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    found = try_packages(["torch"], str(bare))
    assert found["torch"].failure == "No module named 'torch'"


CUDA_BUILD = """
import os
__version__, cuda_version = "1.31.1", "13.0"
def preload_dlls(): print("preloaded")
def set_default_logger_severity(_): pass
def get_available_providers(): return ["CUDAExecutionProvider", "CPUExecutionProvider"]
class InferenceSession:
    def __init__(self, model, options=None, providers=(), enable_fallback=1):
        self.used = [p if isinstance(p, str) else p[0] for p in providers]
        if self.used[0] != "CPUExecutionProvider":
            print("*** EP Error ***")
            os.write(2, b"Failed to load library /a/libx.so with error: liby.so: not there\\n")
            self.used = ["CPUExecutionProvider"]
    def get_providers(self): return self.used
    def run(self, outputs, feeds): return [feeds["x"].sum()]
"""


def test_a_cuda_build_that_falls_back_is_quoted_in_its_own_words(tmp_path, monkeypatch) -> None:
    (tmp_path / "onnxruntime.py").write_text(CUDA_BUILD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = try_packages(["onnxruntime"])["onnxruntime"]
    assert found.failure is None, "what it prints to stdout must not spoil the answer"
    assert found.libraries == {"CUDA": "13.0"}
    assert found.devices["CPUExecutionProvider"] is None
    assert "liby.so: not there" in (found.devices["CUDAExecutionProvider"] or "")


def test_a_crash_and_a_hang_are_failures_too(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = tmp_path / "crash"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    assert "SIGSEGV" in (try_packages(["torch"], str(crash))["torch"].failure or "")
    monkeypatch.setattr(software, "TRIAL_DEADLINE_S", 0.2)
    hang = tmp_path / "hang"
    hang.write_text("#!/bin/sh\nexec sleep 60\n")
    hang.chmod(0o755)
    assert "no answer" in (try_packages(["torch"], str(hang))["torch"].failure or "")


FAKES = {
    "openvino": """
__version__ = "2026.4.1-123-x"
class Core:
    available_devices = ["CPU", "GPU.0"]
    def read_model(self, model): return model
    def compile_model(self, model, device):
        if device != "CPU": raise RuntimeError("Exception from a.cpp:1:\\nno kernels\\n")
        return lambda inputs: [2 * inputs[0]]
""",
    "lightgbm": """
__version__ = "4.7.0"
class LGBMClassifier:
    def fit(self, data, labels): return self
    def predict(self, data): return data[:, 0] < 0
""",
    "jax": """
import numpy
from types import SimpleNamespace as Some
__version__ = "0.10.2"
def devices(kind=None): return [Some(platform=kind or "gpu", id=0)]
def device_put(array, device):
    if device.platform == "gpu": raise RuntimeError("no PTX")
    return array
def jit(function): return function
""",
    "tensorflow": "__version__ = '2.21.0'",
    "keras": """
import os, numpy
from types import SimpleNamespace as Some
__version__ = "3.15.1"
assert os.environ["KERAS_HOME"] == os.devnull, "it writes its settings there"
if os.environ["KERAS_BACKEND"] == "tensorflow":
    distribution = Some(list_devices=lambda kind: [f"{kind}:0"])
class device:
    def __init__(self, name):
        if "gpu" in name: raise RuntimeError("no PTX")
    def __enter__(self): pass
    def __exit__(self, *error): pass
ops = Some(ones=numpy.ones, sum=numpy.sum)
""",
}


def test_each_library_is_tried_on_each_device_that_it_finds(tmp_path, monkeypatch) -> None:
    for name, text in FAKES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = try_packages(FAKES)
    assert {name: trial.failure for name, trial in found.items()} == dict.fromkeys(FAKES)
    assert found["openvino"].version == "2026.4.1"
    assert found["openvino"].devices == {"cpu": None, "gpu.0": "no kernels"}
    assert found["lightgbm"].devices == {"cpu": "it computes wrong results"}
    assert found["jax"].devices == {"cpu": None, "gpu:0": "no PTX"}
    assert found["tensorflow"].devices == {"cpu": None, "gpu:0": "no PTX"}
    assert (found["tensorflow"].version, found["keras"].devices) == ("2.21.0", {"cpu": None})


EXCLUSIVE = """
import fcntl, os
__version__ = "1.0"
gpu = open(os.environ["EXCLUSIVE_GPU"], "w")
fcntl.flock(gpu, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
class LGBMClassifier:
    def fit(self, data, labels): return self
    def predict(self, data): return data[:, 0] > 0
XGBClassifier = LGBMClassifier
"""


def test_packages_are_tried_in_turn_where_a_gpu_admits_one_process(tmp_path, monkeypatch) -> None:
    names = ("xgboost", "lightgbm")
    for name in names:
        (tmp_path / f"{name}.py").write_text(EXCLUSIVE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("EXCLUSIVE_GPU", str(tmp_path / "gpu"))
    found = try_packages(names, at_once=False)
    assert {name: found[name].devices for name in names} == {n: {"cpu": None} for n in names}


def test_every_optional_backend_is_tried_and_its_tested_versions_are_those_we_install() -> None:
    root = Path(__file__).parents[3]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    required = {line for lines in extras.values() for line in lines}
    pinned = (root / "constraints.txt").read_text()
    for name in catalog.backends():
        backend = catalog.backend(name)
        if not backend.optional or not is_built_in(backend_file(name)):
            continue
        assert name in TRIALS
        for package in backend.packages or (name,):
            assert f"{package}>={backend.oldest}" in required
        pins = (f"\n{package}=={backend.newest}." for package in backend.packages or (name,))
        assert any(pin in pinned for pin in pins)
