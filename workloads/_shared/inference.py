"""Inference of one network by either backend, from input on the host to answer on the host.

Phases: "build" makes (and quantises) the model.  "compile" opens the ONNX Runtime session, which
optimises its graph, or calls torch.compile.  "transfer" moves a torch model's weights to a GPU.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from workbench.contract import Accuracy, Case, Profile, Setup, Task, Variant

from . import profiling
from .network import Layer, forward, relative_error
from .onnx_model import graph
from .quantisation import halved, quantise
from .session import CPU, BoundSession, open_session, provider_of
from .torch_task import TorchTask, compiled, dtype_of, module, time_to_host, to_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Batch = NDArray[np.float32]

VARIANTS = (
    Variant("cpu", "onnxruntime", "fp32"),
    Variant("cpu", "onnxruntime", "int8", "dynamic"),
    Variant("cpu", "onnxruntime", "int8", "static"),
    Variant("cpu", "torch", "fp32"),
    Variant("cpu", "torch", "fp32", mode="compile"),
    Variant("gpu", "torch", "fp32"),
    Variant("gpu", "torch", "fp32", mode="compile"),
    Variant("gpu", "torch", "fp16"),
    Variant("gpu", "torch", "fp16", mode="compile"),
    Variant("gpu", "onnxruntime", "fp16"),
    Variant("gpu", "onnxruntime", "tf32"),
    Variant("gpu", "onnxruntime", "fp32"),
    Variant("gpu", "onnxruntime", "fp16", mode="tensorrt"),
    Variant("gpu", "onnxruntime", "int8", "static", mode="tensorrt"),
)

# A wrong answer is far beyond these limits; a scenario's own error limit may be tighter.
LIMITS = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 2e-2, "fp16": 1e-2, "int8": 0.1}
CHECKED = 128  # most samples of a check


def prepare(
    case: Case,
    setup: Setup,
    layers: Sequence[Layer],
    inputs: Sequence[Batch],
    calibration: Iterable[Batch],
    checked: int = CHECKED,
) -> InferenceTask:
    """A task that answers `inputs` in turn; only static INT8 uses `calibration`.

    The check compares about `checked` samples, taken from all inputs.
    """
    if case.backend == "torch":
        return TorchInference(case, setup, layers, inputs, checked)
    return OnnxInference(case, setup, layers, inputs, checked, calibration)


class InferenceTask(Task):
    """One step answers one batch."""

    case: Case
    layers: Sequence[Layer]
    inputs: Sequence[Batch]
    checked: int

    @abstractmethod
    def infer(self, batch: Batch) -> Any:
        """The network's output (batch, classes) as an array in host memory."""

    def check(self) -> Accuracy:
        import numpy as np

        each = max(1, self.checked // len(self.inputs))
        inputs = np.concatenate([batch[:each] for batch in self.inputs])
        answers = np.concatenate([self.infer(batch)[:each] for batch in self.inputs])
        error = relative_error(answers, forward(self.layers, inputs))
        limit = LIMITS[self.case.precision]
        reference = f"NumPy float64 forward pass of {len(inputs)} inputs"
        return Accuracy.within(error, limit, reference)


class OnnxInference(InferenceTask):
    def __init__(
        self,
        case: Case,
        setup: Setup,
        layers: Sequence[Layer],
        inputs: Sequence[Batch],
        checked: int,
        calibration: Iterable[Batch],
    ) -> None:
        self.case, self.layers, self.inputs, self.checked = case, layers, inputs, checked
        self.waits = on_gpu = provider_of(case) != CPU
        with setup.phase("build"):
            self.model = graph(layers, inputs[0].shape)
            if method := case.quantization:
                self.model = quantise(self.model, method, calibration, symmetric=on_gpu)
            elif case.precision == "fp16" and on_gpu:
                self.model = halved(self.model)
        with setup.phase("compile"):
            self.session = open_session(self.model, case)
            if on_gpu:
                self.session = BoundSession(self.session, case.device, inputs[0])
        self.feeds = cycle([{"input": batch} for batch in inputs])

    def step(self) -> None:
        self.session.run(None, next(self.feeds))

    def infer(self, batch: Batch) -> Any:
        return self.session.run(None, {"input": batch})[0].copy()  # the next run may overwrite it

    def profile(self, steps: int) -> Profile:
        return profiling.by_onnxruntime(self.model, self.case, self.feeds, steps)


class TorchInference(TorchTask, InferenceTask):
    """By torch, without gradients."""

    waits = True  # reads its answer back

    def __init__(
        self,
        case: Case,
        setup: Setup,
        layers: Sequence[Layer],
        inputs: Sequence[Batch],
        checked: int,
    ) -> None:
        import torch

        super().__init__(case)
        self.layers, self.inputs, self.checked = layers, inputs, checked
        self.dtype = dtype_of(case)
        with setup.phase("build"):
            model = module(layers).to(self.dtype).eval().requires_grad_(False)
            self.hosted = [torch.from_numpy(batch) for batch in inputs]
            if self.on_gpu:
                self.hosted = [tensor.pin_memory() for tensor in self.hosted]
            self.feeds = cycle(self.hosted)
        (self.model,) = to_device(setup, case, model)
        if case.mode == "compile":
            self.activate()
            with torch.inference_mode():
                self.model = compiled(setup, self.model, self._moved(self.hosted[0]))

    def step(self) -> None:
        self._answer(next(self.feeds))

    def _moved(self, batch: Any) -> Any:
        return batch.to(self.device, non_blocking=True).to(self.dtype)

    def _answer(self, batch: Any) -> Any:
        import torch

        with torch.inference_mode():
            return self.model(self._moved(batch)).float().cpu()  # waits for the GPU

    def infer(self, batch: Batch) -> Any:
        import torch

        return self._answer(torch.from_numpy(batch)).numpy()

    def transfer_out_s(self) -> float | None:
        import torch

        with torch.inference_mode():
            output = self.model(self._moved(self.hosted[0]))
        return time_to_host(self.case, output)
