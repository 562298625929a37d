"""Answering one picture at a time with a conv net: the latency of a small vision service."""

from collections.abc import Iterator
from typing import Any

from workbench.contract import Case, Parameter, Setup, Task, Work, Workload
from workbench.worker.libraries import np

from ._shared import inference, optdigits
from ._shared.network import CONVOLUTIONS, convnet_multiplications, trained_convnet

CALIBRATION_INPUTS = 32


class InferCnn(Workload):
    """A trained net of six 3x3 convolutions classifies coloured pictures of digits.

    All candidates share its weights.  Pictures come from the host and answers return to it, as in a
    service.
    """

    name = "infer_cnn"
    title = "Conv net inference, one picture at a time"
    teaches = "Small batches cannot fill a GPU; static INT8 makes a CPU with VNNI even faster."
    parameters = (
        Parameter("image", 64, "side of the square picture", minimum=16, maximum=512, unit="px"),
    )
    default_batch = 1
    quick = {"image": 32}
    small = {"batch": 1, "image": 16}
    latency = True
    convolves = True
    variants = (*inference.CONVOLVING, *inference.JAX)

    def work(self, case: Case) -> Work:
        batch, image = case.batch or 1, int(case.params["image"])
        weights = sum(9 * inputs * outputs for inputs, outputs, _ in CONVOLUTIONS)
        size = case.element_bytes
        picture = 3 * image * image
        widest = CONVOLUTIONS[0][1] * image * image  # the first layer's output is the largest
        drawn, on_host = inference.input_bytes(case, 4.0 * batch * picture, input_count(image))
        return Work(
            flops=2.0 * batch * convnet_multiplications(image),
            bytes_moved=float(size * weights + 4 * batch * picture),
            items=batch,
            item="images",
            # The check holds one picture's widest layer three times in float64.
            memory_bytes=4.0 * (3 * weights + 4 * batch * widest + 6 * widest) + drawn,
            transfers="step",
            host_bytes=on_host,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        batch, image = case.batch or 1, int(case.params["image"])
        rng = np.random.default_rng(setup.seed)
        images, _ = optdigits.load()

        def pictures(pool: Any, count: int) -> Iterator[Any]:
            for rows in rng.integers(0, len(pool), (count, batch)):
                yield optdigits.coloured(pool[rows], image, rng)

        inputs = list(pictures(images[optdigits.TRAINING :], input_count(image)))
        calibration = pictures(images[: optdigits.TRAINING], CALIBRATION_INPUTS)
        checked = max(2, min(inference.CHECKED, inference.CHECKED * 64**2 // image**2))
        return inference.prepare(case, setup, trained_convnet(), inputs, calibration, checked)


def input_count(image: int) -> int:
    """Number of different pictures; fewer where they are large, since float64 checks them all."""
    return max(2, min(16, 16 * 128**2 // image**2))


WORKLOAD = InferCnn()
