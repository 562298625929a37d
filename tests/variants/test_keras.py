"""Keras's perceptron and its training by TensorFlow, with both libraries played by torch."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from checking import fails_with
from tasks import losses

from workbench.contract import Case, Setup, Task
from workloads import digits, digits_to_accuracy
from workloads._backends import keras as keras_backend, tensorflow as tensorflow_backend
from workloads._backends.torch import Torch
from workloads.train_mlp_deep import WORKLOAD

PARAMS = {"samples": 300, "epochs": 2}
CASE = Case("train_mlp_deep", "cpu", "tensorflow", "fp32", threads=1, params=PARAMS)


class Variable:
    """A variable of Keras; `value` is a parameter of torch."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = torch.nn.Parameter(value)

    def assign(self, value: Any) -> None:
        with torch.no_grad():
            self.value.copy_(torch.as_tensor(value))


class Sequential(torch.nn.Module):
    def __init__(self, layers: list[Any]) -> None:
        super().__init__()
        (self.width,) = layers[0]
        self.layers: list[Any] = []

    def add(self, layer: Any) -> None:
        self.layers.append(layer)

    def set_weights(self, arrays: list[Any]) -> None:
        self.variables = [Variable(torch.from_numpy(array.copy())) for array in arrays]
        self.trainable_variables = self.variables
        assert self.variables[0].value.shape == (self.width, self.layers[0].units)
        self.kept = torch.nn.ParameterList([each.value for each in self.variables])

    def get_weights(self) -> list[Any]:
        return [each.value.detach().numpy() for each in self.variables]

    def forward(self, x: Any, training: bool = False) -> Any:
        x = torch.as_tensor(x)
        for layer, weight, bias in zip(self.layers, self.kept[::2], self.kept[1::2], strict=True):
            x = x @ weight + bias
            x = torch.relu(x) if layer.activation == "relu" else x
        return x if training or self.layers[0].units != 128 else x.detach()  # as NumPy reads it


class Adam:
    """As in keras/src/optimizers/adam.py."""

    factor = 1.0  # a test changes it

    def __init__(self, rate: float, epsilon: float) -> None:
        self.rate, self.epsilon = rate, epsilon

    def build(self, weights: list[Variable]) -> None:
        self.count = Variable(torch.zeros(()))
        self.moments = [[Variable(torch.zeros_like(w.value)) for w in weights] for _ in range(2)]
        self.variables = [self.count, *self.moments[0], *self.moments[1]]

    def scale_loss(self, loss: Any) -> Any:
        return loss

    def apply(self, slopes: Any, weights: list[Variable]) -> None:
        with torch.no_grad():
            self.count.value += 1
            step = self.count.value
            rate = self.rate * torch.sqrt(1 - 0.999**step) / (1 - 0.9**step) * self.factor
            for slope, weight, m, v in zip(slopes, weights, *self.moments, strict=True):
                m.value += (slope - m.value) * 0.1
                v.value += (slope**2 - v.value) * 0.001
                weight.value -= rate * m.value / (torch.sqrt(v.value) + self.epsilon)


class LossScale:
    """It scales by 8."""

    def __init__(self, inner: Adam) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def scale_loss(self, loss: Any) -> Any:
        return 8 * loss

    def apply(self, slopes: Any, weights: list[Variable]) -> None:
        self.inner.apply([slope / 8 for slope in slopes], weights)


class Data:
    """A tf.data.Dataset in memory, in the given order."""

    def __init__(self, arrays: tuple[Any, ...]) -> None:
        self.arrays, self.size = arrays, 1

    def shuffle(self, window: int, seed: int) -> Data:
        assert window == len(self.arrays[0])
        return self

    def batch(self, size: int, drop_remainder: bool) -> Data:
        made = Data(self.arrays)
        made.size = size
        return made

    def repeat(self) -> Data:
        return self

    def prefetch(self, count: int) -> Data:
        return self

    def __iter__(self) -> Any:
        while True:
            for first in range(0, len(self.arrays[0]) - self.size + 1, self.size):
                yield [torch.from_numpy(each[first : first + self.size]) for each in self.arrays]


class Tape(nullcontext[Any]):
    def __enter__(self) -> Tape:
        return self

    def gradient(self, loss: Any, weights: list[Variable]) -> Any:
        return torch.autograd.grad(loss, [weight.value for weight in weights])


@pytest.fixture
def library(monkeypatch) -> SimpleNamespace:
    """Modules `keras` and `tensorflow`; what they were asked for is noted."""
    noted = SimpleNamespace(policies=set(), compiled=[], visible=[], tf32=[], gpus=[])
    torch.set_num_threads(1)  # on a busy machine, threads of tiny steps wait for each other

    def dense(units: int, activation: str | None, dtype: str) -> Any:
        noted.policies.add(dtype)
        return SimpleNamespace(units=units, activation=activation)

    def function(made: Any, jit_compile: bool | None = None) -> Any:
        if jit_compile is None:
            return made
        noted.compiled.append(jit_compile)
        return lambda *batch: made(*batch).detach()

    def entropy(targets: Any, outputs: Any) -> Any:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    modules = {
        "keras": {
            "Input": lambda shape: shape,
            "Sequential": Sequential,
            "layers": SimpleNamespace(Dense=dense),
            "optimizers": SimpleNamespace(Adam=Adam, LossScaleOptimizer=LossScale),
        },
        "tensorflow": {
            "__version__": "2.21.0",
            "GradientTape": Tape,
            "cast": torch.Tensor.to,
            "config": SimpleNamespace(
                list_physical_devices=lambda kind: noted.gpus,
                set_visible_devices=lambda *choice: noted.visible.append(choice),
                experimental=SimpleNamespace(enable_tensor_float_32_execution=noted.tf32.append),
            ),
            "constant": torch.from_numpy,
            "data": SimpleNamespace(Dataset=SimpleNamespace(from_tensor_slices=Data)),
            "float32": torch.float32,
            "function": function,
            "identity": lambda tensor: tensor.detach().clone(),
            "nn": SimpleNamespace(sparse_softmax_cross_entropy_with_logits=entropy),
            "reduce_mean": torch.mean,
        },
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)  # torch looks whether there is a TensorFlow
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return noted


def prepared(case: Case) -> Task:
    return WORKLOAD.prepare(case, Setup(seed=0))


def test_it_trains_as_torch_does_and_starts_again(library) -> None:
    task = prepared(CASE)
    assert task.check().passed
    found = losses(task, 5)
    assert found[0] == found[2] == found[4] != found[1] == found[3]
    assert found == pytest.approx(losses(prepared(replace(CASE, backend="torch")), 5), rel=1e-4)
    assert task.waits and task.finishes


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_training_with_another_rate_is_found(library, monkeypatch, precision: str) -> None:
    case = replace(CASE, precision=precision)
    assert prepared(case).check().passed
    monkeypatch.setattr(Adam, "factor", 1.1)
    assert not prepared(case).check().passed


def test_precision_and_xla_are_asked_for(library) -> None:
    setup = Setup(seed=0)
    WORKLOAD.prepare(replace(CASE, mode="xla"), setup)
    assert setup.seconds["compile"] > 0
    assert (library.policies, library.compiled) == ({"float32"}, [True])
    prepared(replace(CASE, precision="bf16"))
    prepared(replace(CASE, precision="fp16"))
    assert library.policies == {"float32", "mixed_bfloat16", "mixed_float16"}
    assert library.compiled == [True, False, False]


def test_keras_on_torch_is_checked_as_torch_is(library) -> None:
    task = prepared(replace(CASE, backend="keras"))
    assert task.check().passed
    found = losses(task, 3)
    assert found[0] == found[2] != found[1]
    task.network.kept[2].register_hook(lambda slope: -slope)
    assert not task.check().passed


def test_digits_come_from_tf_data_and_are_learnt(library, monkeypatch) -> None:
    case = Case("digits", "cpu", "tensorflow", "fp32", threads=1, batch=700)
    task = digits.WORKLOAD.prepare(case, Setup(seed=0))
    found = task.check()
    assert found.passed and "360 unseen digits after 20 epochs" in found.reference
    seen = losses(task, 2 * digits.EPOCHS)  # two steps an epoch
    assert task.left == 0
    task.step()  # starts again
    assert task.loss() > seen[-1] and task.left == 2 * digits.EPOCHS - 1
    monkeypatch.setattr(Adam, "factor", 0.0)
    assert not digits.WORKLOAD.prepare(case, Setup(seed=0)).check().passed


def test_each_training_to_an_accuracy_sees_the_same_batches(library) -> None:
    params = {"target": 0.9}
    case = Case("digits_to_accuracy", "cpu", "tensorflow", "fp32", None, 1, 256, params=params)
    task: Any = digits_to_accuracy.WORKLOAD.prepare(case, Setup(seed=0))
    assert task.check().passed
    reported = [task.metrics(), *(task.step() or task.metrics() for _ in range(2))]
    assert reported[0] == reported[1] == reported[2]
    assert reported[0]["epochs"] > 1
    task.weights = lambda: [(-weight, bias) for weight, bias in type(task).weights(task)]
    assert not task.check().passed


def test_one_gpu_is_used_in_true_fp32(library) -> None:
    library.gpus += ["first", "second"]
    tensorflow_backend.BACKEND.start("cuda:1")
    assert (library.visible, library.tf32) == ([("second", "GPU")], [False])
    with fails_with("no_device", "finds no device cuda:2", hint="tensorflow[and-cuda]"):
        prepared(replace(CASE, device="cuda:2"))
    prepared(replace(CASE, device="fake:0"))
    assert len(library.visible) == 1


def test_a_gpu_is_chosen_by_its_number_after_all_were_opened(library, monkeypatch) -> None:
    places = []

    def opened(*_: Any) -> None:
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    def place(name: str) -> nullcontext[Any]:
        places.append(name)
        return nullcontext()

    library.gpus += ["first", "second"]
    monkeypatch.setattr(sys.modules["tensorflow"].config, "set_visible_devices", opened)
    monkeypatch.setattr(sys.modules["tensorflow"], "device", place, raising=False)
    prepared(replace(CASE, device="cuda:1"))
    assert (places, library.tf32) == (["GPU:1"], [False])


def test_bf16_is_tried_at_a_small_size_first() -> None:
    large = replace(CASE, params={**PARAMS, "samples": 10_000})
    assert WORKLOAD.small_probe(large) is None
    small = WORKLOAD.small_probe(replace(large, precision="bf16"))
    assert small.params == {**PARAMS, "samples": 256}


@pytest.mark.parametrize(
    ("backend", "variable", "seen"),
    [
        (tensorflow_backend.BACKEND, "KERAS_BACKEND", "tensorflow"),
        (tensorflow_backend.BACKEND, "KERAS_HOME", os.devnull),
        (keras_backend.BACKEND, "KERAS_BACKEND", "torch"),
        (keras_backend.BACKEND, "KERAS_HOME", os.devnull),
        (keras_backend.BACKEND, "KERAS_TORCH_DEVICE", "cpu"),
    ],
)
def test_what_is_read_at_the_import_is_set_before(
    tmp_path: Path, monkeypatch, backend: Any, variable: str, seen: str
) -> None:
    for name in ("keras", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(f"import os; __version__ = os.environ['{variable}']")
    monkeypatch.syspath_prepend(tmp_path)
    for name in (
        "TF_CPP_MIN_LOG_LEVEL",
        "KERAS_BACKEND",
        "KERAS_HOME",
        "KERAS_TORCH_DEVICE",
    ):
        monkeypatch.setenv(name, "of the user")
    assert backend.version() == seen
    assert "keras" in sys.modules
    for name in ("keras", "tensorflow"):
        sys.modules.pop(name, None)


def test_without_tensorflow_it_is_tensorflow_that_is_missing(monkeypatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ})
    for name in ("keras", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError) as missing:
        tensorflow_backend.BACKEND.version()
    assert missing.value.name == "tensorflow"


def test_keras_computes_where_torch_does(monkeypatch) -> None:
    places = []

    class Place(nullcontext[None]):
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            places.append(self.name)

        def __exit__(self, *_: object) -> None:
            places.clear()

    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(device=Place))
    monkeypatch.setattr(Torch, "start", lambda self, device: None)
    keras_backend.Keras().start("xpu:1")
    assert places == ["xpu:1"]
