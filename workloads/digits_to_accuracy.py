"""Time to accuracy: training on the real digits until it recognises enough of the unseen ones."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Work, Workload, WorkloadError
from workbench.worker.libraries import jax

from . import digits
from ._shared import network
from ._shared.optdigits import TRAINING

MOST_EPOCHS = 100


class DigitsToAccuracy(Workload):
    """The training of `digits`, from the same initial weights to a test accuracy of `target`.

    One step is one whole training, tested on the 360 unseen digits after each epoch.  The seed
    fixes the initial weights and the order of batches, in each library in its own way, so that
    every training of a candidate is the same.  Operations are not counted, since the number of
    epochs is only known after the training.
    """

    name = "digits_to_accuracy"
    title = "Handwritten digits, time to accuracy"
    teaches = "The time until the network is good enough counts, not the speed of a single step."
    parameters = (Parameter("target", 0.97, "share of the unseen digits to recognise", 0.5, 0.98),)
    default_batch = 64
    quick = {"target": 0.9}
    variants = digits.LIBRARIES

    def work(self, case: Case) -> Work:
        memory = digits.memory_bytes(case.batch or 1)
        return Work(flops=None, bytes_moved=None, items=1, item="runs", memory_bytes=memory)

    def prepare(self, case: Case, setup: Setup) -> Task:
        return digits.training(case, setup, ByTorch, ByTensorFlow, ByJax, ByScikitLearn)


class ToAccuracy(digits.DigitTraining):
    """One step is one training, until the target is reached."""

    waits = finishes = True  # reads the answers back after each epoch
    case: Case
    epochs, reached = 0, 0.0

    @abstractmethod
    def weights(self) -> Iterable[Any]:
        """Weight (outputs, inputs) and bias of both layers, as they are now, as NumPy arrays."""

    def epoch(self) -> None:
        for _ in range(TRAINING // self.batch):
            self.train()

    @property
    def target(self) -> float:
        return float(self.case.params["target"])

    def step(self) -> None:
        self.start()
        for self.epochs in range(1, MOST_EPOCHS + 1):
            self.epoch()
            self.reached = self.test_accuracy()
            if self.reached >= self.target:
                return
        found = f"{self.reached:.3f} in {MOST_EPOCHS} epochs, not {self.target:g}"
        hint = "choose a lower target, a smaller --batch or another --seed"
        raise WorkloadError(f"the training reached {found}", code="not_reached", hint=hint)

    def check(self) -> Accuracy:
        """Train once, and test the trained weights in float64."""
        self.step()
        layers = [
            network.Dense(weight, bias, relu=not place)
            for place, (weight, bias) in enumerate(self.weights())
        ]
        answers = network.forward(layers, digits.pictures()[0][TRAINING:]).argmax(axis=1)
        accuracy = float((answers == digits.unseen_labels()).mean())
        reference = f"{len(answers)} unseen digits, the trained weights in float64"
        passed = accuracy >= self.target
        return Accuracy("test_accuracy", accuracy, reference, self.target, passed)

    def metrics(self) -> dict[str, float]:
        return {"epochs": self.epochs, "test_accuracy": self.reached}


class ByTorch(ToAccuracy, digits.TorchDigits):
    def weights(self) -> Iterable[Any]:
        return pairs([each.detach().cpu().numpy() for each in self.network.parameters()])


class ByTensorFlow(ToAccuracy, digits.TensorFlowDigits):
    def start(self) -> None:
        super().start()
        self.batches = self.stream(self.batch)  # from the first batch again

    def weights(self) -> Iterable[Any]:
        return pairs([each.T for each in self.model.get_weights()])


class ByJax(ToAccuracy, digits.JaxDigits):
    def weights(self) -> Iterable[Any]:
        weights: list[Any] = jax.device_get(self.state[1])
        return weights


class ByScikitLearn(ToAccuracy, digits.ScikitLearnDigits):
    """`fit` with a test after each epoch: a call of `partial_fit` for all training digits."""

    def start(self) -> None:
        super().start()
        self.model.set_params(shuffle=True)

    def epoch(self) -> None:
        training = slice(TRAINING)
        self.model.partial_fit(self.data[training], self.labels[training], classes=range(10))

    def weights(self) -> Iterable[Any]:
        return zip([each.T for each in self.model.coefs_], self.model.intercepts_, strict=True)


def pairs(arrays: Sequence[Any]) -> Iterable[Any]:
    return zip(arrays[::2], arrays[1::2], strict=True)


WORKLOAD = DigitsToAccuracy()
