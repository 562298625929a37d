"""A wide multi-layer perceptron trained with Adam on all samples at once."""

from functools import partial
from itertools import repeat
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload
from workbench.worker.libraries import tf, torch

from ._shared.keras_task import TensorFlowTask, network
from ._shared.network import mlp, mlp_multiplications, mlp_training_flops, samples
from ._shared.torch_task import module, to_device
from ._shared.training import IGNORED, RepeatedTraining, TrainingTask, compare_losses

SIZES = (1000, 512, 256, 2)
LEARNING_RATE = 0.001
CHECKED_SAMPLES = 256
CHECKED_STEPS = 3
LIMITS = {"fp32": 1e-4, "bf16": 2e-2, "fp16": 5e-3}


class TrainMlpDeep(Workload):
    """A 1000-512-256-2 perceptron; one step is one full-batch epoch.  After `epochs` epochs the
    training starts again from the same weights, so every measured step belongs to it."""

    name = "train_mlp_deep"
    title = "Wide network, full-batch epochs"
    teaches = "Large dense layers over all samples at once keep a GPU busy from end to end."
    parameters = (
        Parameter("samples", 10_000, "training samples, all used in every epoch", 1, 1_000_000),
        Parameter("epochs", 10, "epochs before the training starts again", 1, 100_000),
    )
    quick = {"samples": 2000}
    small = {"samples": CHECKED_SAMPLES}
    variants = (
        Variant("cpu", "torch", "fp32"),
        Variant("cpu", "torch", "fp32", mode="compile"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32", mode="compile"),
        *(Variant(d, "tensorflow", "fp32", mode=m) for d in ("cpu", "gpu") for m in (None, "xla")),
        Variant("cpu", "tensorflow", "bf16"),
        Variant("gpu", "tensorflow", "fp16"),
        *(Variant(device, "keras", "fp32") for device in ("cpu", "gpu")),
    )

    def work(self, case: Case) -> Work:
        count = int(case.params["samples"])
        weights, values = mlp_multiplications(SIZES), count * (2 * SIZES[0] + 4 * sum(SIZES[1:]))
        return Work(
            flops=mlp_training_flops(SIZES, count),
            bytes_moved=float(case.element_bytes * values + 40 * weights),
            items=count,
            item="samples",
            memory_bytes=4.0 * (values + 8 * weights),
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        by_tensorflow = case.backend == "tensorflow"
        return TensorFlowEpochs(case, setup) if by_tensorflow else DeepMlpTraining(case, setup)


class DeepMlpTraining(RepeatedTraining, TrainingTask):
    """One step is one epoch; with Keras, its network in torch's own training loop."""

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        self.epochs = int(case.params["epochs"])
        with setup.phase("build"):
            self.layers = mlp(SIZES, setup.seed)
            count = int(case.params["samples"])
            hosted = samples(count, SIZES[0], SIZES[-1], setup.seed)
            made = network(self.layers) if case.backend == "keras" else module(self.layers)
        self.data, self.labels = to_device(setup, case, *map(torch.from_numpy, hosted))
        self.make_ready(setup, made, torch.optim.Adam, lr=LEARNING_RATE)
        self.initial = {name: x.clone() for name, x in self.network.state_dict().items()}
        self.compile(setup, self.batch())
        self.start()

    def batch(self) -> tuple[Any, Any]:
        return self.data, self.labels

    def start(self) -> None:
        """Restore the initial weights in place, so that compiled code stays valid."""
        self.left = self.epochs
        self.network.load_state_dict(self.initial)
        self.optimiser.state.clear()

    def train(self) -> None:
        self.update(self.batch())

    def check(self) -> Accuracy:
        """Train with only the first samples counting, compare with float64, start again."""
        counted = self.labels.clone()
        counted[CHECKED_SAMPLES:] = IGNORED
        losses = []
        for _ in range(CHECKED_STEPS):
            self.update((self.data, counted))
            losses.append(float(self.latest_loss))
        self.start()
        return compared(losses, self.case, self.layers, self.data, self.labels)


class TensorFlowEpochs(TensorFlowTask):
    """One step is one epoch."""

    def __init__(self, case: Case, setup: Setup) -> None:
        with setup.phase("build"):
            self.layers = mlp(SIZES, setup.seed)
            self.hosted = samples(int(case.params["samples"]), SIZES[0], SIZES[-1], setup.seed)
            super().__init__(case, self.layers, LEARNING_RATE)
        with setup.phase("build" if case.device_kind == "cpu" else "transfer"):
            self.batch = [*map(tf.constant, self.hosted)]
        self.begin(setup, repeat(self.batch))

    def start(self) -> None:
        self.left = int(self.case.params["epochs"])
        self.begin_again()

    def check(self) -> Accuracy:
        """Train on the first samples, compare with float64, start again."""
        first = [each[:CHECKED_SAMPLES] for each in self.batch]
        losses = [float(self.update(*first)) for _ in range(CHECKED_STEPS)]
        self.start()
        return compared(losses, self.case, self.layers, *map(torch.from_numpy, self.hosted))


def compared(losses: list[float], case: Case, layers: Any, data: Any, labels: Any) -> Accuracy:
    """The losses on the first samples, against those of float64."""
    first = data[:CHECKED_SAMPLES], labels[:CHECKED_SAMPLES]
    optimiser = partial(torch.optim.Adam, lr=LEARNING_RATE)
    return compare_losses(losses, module(layers), optimiser, *first, LIMITS[case.precision])


WORKLOAD = TrainMlpDeep()
