"""Inference with a multi-layer perceptron, FP32 and INT8: products without convolutions."""

from collections.abc import Iterator
from typing import Any

from workbench.contract import Case, Parameter, Setup, Task, Work, Workload
from workbench.worker.libraries import np

from ._shared import inference
from ._shared.network import CLASSES, mlp, mlp_multiplications

FEATURES = 784
INPUTS = 8
CALIBRATION_INPUTS = 32


class InferMlp(Workload):
    """Three hidden layers of `width`, He-initialised, on normal random inputs."""

    name = "infer_mlp"
    title = "Perceptron inference, FP32 and INT8"
    teaches = "Dynamic INT8 makes plain matrix products faster, though it slows conv nets down."
    parameters = (Parameter("width", 1024, "units of each hidden layer", 8, 16_384),)
    default_batch = 16
    quick = {"width": 512}
    small = {"batch": 1, "width": 8}
    variants = (*inference.VARIANTS, inference.BF16)

    def work(self, case: Case) -> Work:
        batch, sizes = case.batch or 1, self._sizes(case)
        weights = mlp_multiplications(sizes)
        size = case.element_bytes
        drawn, on_host = inference.input_bytes(case, 4.0 * batch * FEATURES, INPUTS)
        return Work(
            flops=2.0 * batch * weights,
            bytes_moved=float(size * weights + 4 * batch * sum(sizes)),
            items=batch,
            item="samples",
            memory_bytes=4.0 * (3 * weights + batch * sum(sizes)) + drawn,
            transfers="step",
            host_bytes=on_host,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        rng = np.random.default_rng(setup.seed + 1)  # the seed itself draws the weights
        shape = (case.batch or 1, FEATURES)

        def drawn(count: int) -> Iterator[Any]:
            return (rng.standard_normal(shape, dtype=np.float32) for _ in range(count))

        inputs, calibration = list(drawn(INPUTS)), drawn(CALIBRATION_INPUTS)
        layers = mlp(self._sizes(case), setup.seed)
        return inference.prepare(case, setup, layers, inputs, calibration)

    @staticmethod
    def _sizes(case: Case) -> tuple[int, ...]:
        width = int(case.params["width"])
        return FEATURES, width, width, width, CLASSES


WORKLOAD = InferMlp()
