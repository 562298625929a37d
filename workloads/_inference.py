"""Inference of one network by either backend: the input comes from and the answer goes to the host.

Phases: "build" makes (and quantises) the model, "compile" opens the ONNX Runtime session, in
which its graph is optimised, and "transfer" moves a torch model's weights to a GPU.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from workbench.contract import Accuracy, Case, Setup, Task

from ._network import Layer, forward, relative_error
from ._onnx import graph, open_session, quantise
from ._torch import TorchTask, dtype_of, module, time_to_host, to_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Batch = NDArray[np.float32]

# A plainly wrong answer is far beyond these; a scenario's own error limit may be tighter.
LIMITS = {"fp32": 1e-4, "fp16": 1e-2, "int8": 0.1}


def prepare(
    case: Case,
    setup: Setup,
    layers: Sequence[Layer],
    inputs: Sequence[Batch],
    calibration: Iterable[Batch],
) -> InferenceTask:
    """The task of answering `inputs` in turn; `calibration` is for static INT8 only."""
    if case.backend == "torch":
        return TorchInference(case, setup, layers, inputs)
    with setup.phase("build"):
        model = graph(layers, inputs[0].shape)
        if case.quantization:
            model = quantise(model, case.quantization, calibration)
    with setup.phase("compile"):
        session = open_session(model, case)
    return OnnxInference(case, layers, inputs, session)


class InferenceTask(Task):
    """One step answers one batch."""

    case: Case
    layers: Sequence[Layer]
    inputs: Sequence[Batch]

    @abstractmethod
    def infer(self, batch: Batch) -> Any:
        """The network's output (batch, classes) as an array in host memory."""

    def check(self) -> Accuracy:
        import numpy as np

        inputs = np.concatenate(self.inputs)
        answers = np.concatenate([self.infer(batch) for batch in self.inputs])
        error = relative_error(answers, forward(self.layers, inputs))
        limit = LIMITS[self.case.precision]
        reference = f"NumPy float64 forward pass of {len(inputs)} inputs"
        return Accuracy("relative_error", error, reference, limit, error <= limit)


class OnnxInference(InferenceTask):
    """By ONNX Runtime."""

    def __init__(
        self, case: Case, layers: Sequence[Layer], inputs: Sequence[Batch], session: Any
    ) -> None:
        self.case, self.layers, self.inputs = case, layers, inputs
        self.session = session
        self.feeds = cycle([{"input": batch} for batch in inputs])

    def step(self) -> None:
        self.session.run(None, next(self.feeds))

    def infer(self, batch: Batch) -> Any:
        return self.session.run(None, {"input": batch})[0]


class TorchInference(TorchTask, InferenceTask):
    """By torch, without gradients."""

    def __init__(
        self, case: Case, setup: Setup, layers: Sequence[Layer], inputs: Sequence[Batch]
    ) -> None:
        import torch

        super().__init__(case)
        self.layers, self.inputs = layers, inputs
        self.dtype = dtype_of(case)
        with setup.phase("build"):
            network = module(layers).to(self.dtype).eval().requires_grad_(False)
            self.hosted = [torch.from_numpy(batch) for batch in inputs]
            if self.device.type == "cuda":
                self.hosted = [tensor.pin_memory() for tensor in self.hosted]
            self.feeds = cycle(self.hosted)
        (self.network,) = to_device(setup, case, network)

    def step(self) -> None:
        self._answer(next(self.feeds))

    def _answer(self, batch: Any) -> Any:
        import torch

        with torch.inference_mode():
            moved = batch.to(self.device, non_blocking=True).to(self.dtype)
            return self.network(moved).float().cpu()  # waits for the GPU

    def infer(self, batch: Batch) -> Any:
        import torch

        return self._answer(torch.from_numpy(batch)).numpy()

    def transfer_out_s(self) -> float | None:
        import torch

        with torch.inference_mode():
            output = self.network(self.hosted[0].to(self.device, self.dtype))
        return time_to_host(self.case, output)
