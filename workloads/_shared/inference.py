"""Inference of one network by every backend, from input on the host to answer on the host.

Phases: "build" makes (and quantises) the model.  "compile" opens the session of ONNX Runtime or
OpenVINO, which optimises its graph, or calls torch.compile.  "transfer" moves weights to a GPU.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

from workbench.contract import COMPILED, Accuracy, Case, Setup, Task, Variant
from workbench.worker.libraries import np, torch

from . import jax_task
from .network import Layer, exact_answers, relative_error, spread
from .onnx_model import graph
from .onnx_task import OnnxTask
from .quantisation import halved, quantise
from .session import CPU, BoundSession, provider_of
from .torch_task import TorchTask, compiled, dtype_of, graphed, module, to_device

VARIANTS = (
    Variant("cpu", "onnxruntime", "fp32"),
    *(Variant("cpu", "onnxruntime", "int8", method) for method in ("dynamic", "static")),
    Variant("cpu", "openvino", "fp32"),
    Variant("cpu", "openvino", "bf16"),
    Variant("cpu", "openvino", "bf16", mode="auto"),  # OpenVINO's default
    Variant("cpu", "openvino", "int8", "static"),
    *(Variant("cpu", "torch", "fp32", mode=mode) for mode in (None, "compile")),
    # The most promising come first, those that take longest to prepare last.
    *(Variant("gpu", "torch", precision) for precision in ("fp32", "fp16")),
    *(Variant("gpu", "torch", precision, mode="graph") for precision in ("fp32", "fp16")),
    Variant("gpu", "torch", "bf16"),
    Variant("gpu", "torch", "fp32", mode="compile"),
    *(Variant("gpu", "torch", "fp16", mode=mode) for mode in COMPILED),
    *(Variant("gpu", "onnxruntime", precision) for precision in ("fp16", "tf32", "fp32")),
    Variant("gpu", "onnxruntime", "fp16", mode="tensorrt"),
    Variant("gpu", "onnxruntime", "int8", "static", mode="tensorrt"),
    *(Variant("gpu", "openvino", precision) for precision in ("fp32", "fp16")),
)
BF16 = Variant("cpu", "torch", "bf16")
CONVOLVING = (  # for networks of convolutions
    *VARIANTS,
    Variant("cpu", "torch", "bf16", mode="nhwc"),  # without "nhwc", oneDNN reorders each input
    Variant("gpu", "torch", "fp16", mode="nhwc"),
    Variant("gpu", "torch", "fp16", mode="cudnn-benchmark"),
)
JAX = (Variant("cpu", "jax", "fp32"), Variant("gpu", "jax", "fp32"))

# A wrong answer is far beyond these limits; a scenario's own error limit may be tighter.
LIMITS = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 2e-2, "fp16": 1e-2, "int8": 0.1}
CHECKED = 128  # most samples of a check


def input_bytes(case: Case, of_each: float, count: int) -> tuple[float, float]:
    """Bytes of `count` inputs on the device of a case, and in main memory for a GPU, which holds
    one at a time."""
    if case.device_kind == "gpu":
        return of_each, count * of_each
    return count * of_each, 0.0


def prepare(
    case: Case,
    setup: Setup,
    layers: Sequence[Layer],
    inputs: Sequence[Any],
    calibration: Iterable[Any],
    checked: int = CHECKED,
) -> "InferenceTask":
    """A task that answers `inputs` in turn; only static INT8 uses `calibration`.  The check
    compares at most `checked` samples, spread over as many inputs as possible and within each."""
    kinds = {"torch": TorchInference, "jax": JaxInference}
    task: InferenceTask = kinds.get(case.backend, OnnxInference)(case)
    task.layers, task.inputs, task.checked = layers, inputs, checked
    task.load(setup, calibration)
    return task


class InferenceTask(Task):
    """One step answers one batch."""

    layers: Sequence[Layer]
    inputs: Sequence[Any]
    checked: int

    def __init__(self, case: Case) -> None:
        self.case = case

    @abstractmethod
    def load(self, setup: Setup, calibration: Iterable[Any]) -> None:
        """Make the model of `layers`, ready for a step."""

    @abstractmethod
    def infer(self, batch: Any) -> Any:
        """The network's output (batch, classes) as an array in host memory."""

    def check(self) -> Accuracy:
        chosen = self.inputs[: self.checked]
        rows = spread(len(chosen[0]), self.checked // len(chosen))
        inputs = np.concatenate([batch[rows] for batch in chosen])
        answers = np.concatenate([self.infer(batch)[rows] for batch in chosen])
        error = relative_error(answers, exact_answers(self.layers, inputs))
        reference = f"NumPy float64 forward pass of {len(inputs)} inputs"
        return Accuracy.within(error, LIMITS[self.case.precision], reference)


class OnnxInference(OnnxTask, InferenceTask):
    """The network in ONNX Runtime or OpenVINO."""

    def load(self, setup: Setup, calibration: Iterable[Any]) -> None:
        case, first = self.case, self.inputs[0]
        self.waits = provider_of(case) != CPU
        # OpenVINO converts and copies by itself.
        on_gpu = self.waits and case.backend != "openvino"
        with setup.phase("build"):
            model = graph(self.layers, first.shape)
            if method := case.quantization:
                model = quantise(model, method, calibration, symmetric=on_gpu)
            elif case.precision == "fp16" and on_gpu:
                model = halved(model)
        self.open(setup, case, model)
        if on_gpu:
            with setup.phase("compile"):
                self.session = BoundSession(self.session, case.device, first)
        self.feeds = cycle([{"input": batch} for batch in self.inputs])

    infer = OnnxTask.answer


class TorchInference(TorchTask, InferenceTask):
    """The network in torch, without gradients."""

    waits = finishes = True  # reads its answer back

    def load(self, setup: Setup, calibration: Iterable[Any]) -> None:
        mode, self.dtype = self.case.compile_mode, dtype_of(self.case)
        with setup.phase("build"):
            model = module(self.layers).to(self.dtype).eval().requires_grad_(False)
            # Inputs arrive in pageable memory, and every other library copies from there.
            self.hosted = [*map(torch.from_numpy, self.inputs)]
            self.feeds = cycle(self.hosted)
        (self.model,) = to_device(setup, self.case, self.laid_out(model))
        self.replay: Callable[[Any], Any] | None = None
        # CUDA graphs of torch.compile fail in inference mode (pytorch#135892).
        self.without_gradients = torch.no_grad if mode else torch.inference_mode
        self.activate()  # compiled and captured code depends on the settings
        if mode:
            with self.without_gradients():
                example = self._moved(self.hosted[0])
                self.model = compiled(setup, self.model, mode, example)
        if "graph" in self.modes:
            with setup.phase("compile"):
                self.replay = self._graph()

    def step(self) -> None:
        (self.replay or self._eager)(next(self.feeds))

    def _moved(self, batch: Any) -> Any:
        return self.moved(batch).to(self.dtype)

    def _output(self, batch: Any) -> Any:
        with self.without_gradients():
            return self.model(self._moved(batch)).float()

    def _eager(self, batch: Any) -> Any:
        return self._output(batch).cpu()  # waits for the GPU

    def _graph(self) -> Callable[[Any], Any]:
        """The whole step as a CUDA graph, both copies included, which waits for its answer.  A step
        first copies its batch to page-locked memory, since a graph cannot read any other."""
        given = self.page_locked(self.hosted[0].clone())
        found = self.page_locked(self._eager(given).clone())
        replay = graphed(lambda: found.copy_(self._output(given), non_blocking=True), [given])
        wait = self.waiter()

        def answer(batch: Any) -> Any:
            replay(batch)
            wait()
            return found

        return answer

    def infer(self, batch: Any) -> Any:
        answer = (self.replay or self._eager)(torch.from_numpy(batch))
        return answer.numpy().copy()  # a graph overwrites it

    def result(self) -> Any:
        return self._output(self.hosted[0])


class JaxInference(jax_task.JaxTask, InferenceTask):
    """The network as a jitted function that holds the weights, like a session of ONNX Runtime."""

    def load(self, setup: Setup, calibration: Iterable[Any]) -> None:
        network = partial(jax_task.forward, self.layers, jax_task.weights_of(self.layers))
        self.network = self.compiled(setup, network, self.inputs[0])
        self.feeds = cycle(self.inputs)

    def step(self) -> None:
        self.infer(next(self.feeds))

    def infer(self, batch: Any) -> Any:
        return np.asarray(self.network(batch))
