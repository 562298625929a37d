"""Recognising real handwritten digits: a classic first network, trained to a known accuracy."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from workbench.contract import Accuracy, Case, Setup, Task, Variant, Work, Workload
from workbench.worker.libraries import jax, np, tf, torch

from ._shared import optdigits
from ._shared.jax_task import JaxTask, cross_entropy, forward, weights_of
from ._shared.keras_task import TensorFlowTask
from ._shared.network import mlp, mlp_multiplications, mlp_training_flops
from ._shared.optdigits import TRAINING
from ._shared.pictures import bilinear
from ._shared.torch_task import TorchTask, module, to_device
from ._shared.training import RepeatedTraining, require_batch, shuffled_batches, train_step

SIDE = 28
SIZES = (SIDE * SIDE, 128, 10)
LEARNING_RATE = 0.001
EPOCHS = 20  # epochs before the training starts again
CHECKED_BATCH = 64
FRAMEWORKS = ("torch", "tensorflow", "jax")
LIBRARIES = (
    *(Variant(kind, each, "fp32") for kind in ("cpu", "gpu") for each in FRAMEWORKS),
    Variant("cpu", "sklearn", "fp32"),
)
ACCURACY_FLOOR = 0.95  # measured over seeds: 0.972 to 0.981


class Digits(Workload):
    """A 784-128-10 perceptron, Adam, batches of 64, on 1,437 digits resampled to 28 x 28 pixels.

    One step is one optimiser step on the next batch of a shuffled epoch; the data are on the
    device.  After 20 epochs the training starts again, so that every step belongs to a training in
    progress.  The check trains once in full and measures the accuracy on the 360 unseen digits.
    scikit-learn draws initial weights of its own.  In mode "dataloader" torch's DataLoader makes
    the batches on the host, as in its tutorials.
    """

    name = "digits"
    title = "Handwritten digits"
    teaches = "A real, tiny training: the answer must be right before its speed means anything."
    default_batch = 64
    variants = (
        *LIBRARIES,
        *(Variant(kind, "torch", "fp32", mode="dataloader") for kind in ("cpu", "gpu")),
    )

    def work(self, case: Case) -> Work:
        batch = case.batch or 1
        weights = mlp_multiplications(SIZES)
        return Work(
            flops=mlp_training_flops(SIZES, batch),
            bytes_moved=4.0 * (10 * weights + batch * 2 * SIZES[0]),
            items=batch,
            item="samples",
            memory_bytes=memory_bytes(batch),
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        by_torch = FedDigits if case.mode == "dataloader" else TorchDigits
        return training(case, setup, by_torch, TensorFlowDigits, JaxDigits, ScikitLearnDigits)


def training(case: Case, setup: Setup, *kinds: Callable[[Case, Setup], Task]) -> Task:
    """The training by the library of the case; `kinds` has one for each in LIBRARIES."""
    require_batch(case, TRAINING, "training digits")
    return dict(zip((*FRAMEWORKS, "sklearn"), kinds, strict=True))[case.backend](case, setup)


def memory_bytes(batch: int) -> float:
    """Estimated peak of the training."""
    return 4.0 * (8 * mlp_multiplications(SIZES) + batch * sum(SIZES) * 4 + 2 * 1797 * SIZES[0])


def pictures() -> Any:
    """All digits as FP32 (1797, 784), those to train on first, and their labels."""
    images, labels = optdigits.load()
    weights = bilinear(optdigits.SIDE, SIDE)
    return (weights @ images @ weights.T).astype("float32").reshape(len(images), -1), labels


@cache  # a training to an accuracy asks after each epoch
def unseen_labels() -> Any:
    return optdigits.load()[1][TRAINING:]


class DigitTraining(RepeatedTraining):
    """One step is one optimiser step on one batch."""

    batch: int

    def start(self) -> None:
        """Begin again with the initial weights, in batches of `batch`."""
        self.left = EPOCHS * (TRAINING // self.batch)

    @abstractmethod
    def answers(self) -> Any:
        """The network's present answers to the unseen pictures, in host memory."""

    def test_accuracy(self) -> float:
        """The share of the unseen digits that the network recognises now."""
        return float((self.answers() == unseen_labels()).mean())

    def check(self) -> Accuracy:
        """Train for twenty epochs in batches of 64, whatever batch is timed; then start again."""
        timed, self.batch = self.batch, CHECKED_BATCH
        self.start()
        for _ in range(self.left):
            self.train()
        accuracy = self.test_accuracy()
        self.batch = timed
        self.start()
        reference = f"{len(unseen_labels())} unseen digits after {EPOCHS} epochs"
        passed = accuracy >= ACCURACY_FLOOR
        return Accuracy("test_accuracy", accuracy, reference, ACCURACY_FLOOR, passed)


class TorchDigits(DigitTraining, TorchTask):
    """The training in torch; the digits are on the device."""

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        self.batch, self.seed = case.batch or 1, setup.seed
        with setup.phase("build"):
            self.layers = mlp(SIZES, setup.seed)
            on_host = map(torch.from_numpy, pictures())
        self.pictures, self.labels = to_device(setup, case, *on_host)
        with setup.phase("build"):
            self.start()

    def start(self) -> None:
        super().start()
        self.network = module(self.layers).to(self.device)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE)
        self.batches = self.endless_batches()

    def endless_batches(self) -> Iterator[Sequence[Any]]:
        """Pictures and labels of each batch, on the device."""
        for chosen in shuffled_batches(TRAINING, self.batch, self.seed, self.device):
            yield self.pictures[chosen], self.labels[chosen]

    def train(self) -> None:
        self.latest_loss = train_step(self.network, self.optimiser, *next(self.batches))

    def answers(self) -> Any:
        with torch.inference_mode():
            return self.network(self.pictures[TRAINING:]).argmax(dim=1).cpu().numpy()


class FedDigits(TorchDigits):
    """The training in torch, with batches from a DataLoader in this process."""

    waits = True  # a copy from pageable memory waits for the queue

    def endless_batches(self) -> Iterator[Sequence[Any]]:
        from torch.utils.data import DataLoader, TensorDataset

        kept = TensorDataset(*(each[:TRAINING].cpu() for each in (self.pictures, self.labels)))
        order = torch.Generator().manual_seed(self.seed)
        loader = DataLoader(kept, self.batch, shuffle=True, drop_last=True, generator=order)
        while True:
            for batch in loader:
                yield [each.to(self.device) for each in batch]


class TensorFlowDigits(DigitTraining, TensorFlowTask):
    """The training in TensorFlow, with batches from tf.data, which shuffles on the host."""

    def __init__(self, case: Case, setup: Setup) -> None:
        self.batch = case.batch or 1
        with setup.phase("build"):
            super().__init__(case, mlp(SIZES, setup.seed), LEARNING_RATE)
            data, labels = pictures()
            self.unseen = data[TRAINING:]
            seen = slice(TRAINING)
            self.data = tf.data.Dataset.from_tensor_slices((data[seen], labels[seen]))
            self.seed = setup.seed
            self.streams = {size: self.stream(size) for size in (self.batch, CHECKED_BATCH)}
        self.begin(setup, self.streams[self.batch])

    def stream(self, size: int) -> Iterator[Any]:
        """Endless batches of `size`, in the order of the seed."""
        shuffled = self.data.shuffle(TRAINING, self.seed)
        return iter(shuffled.batch(size, drop_remainder=True).repeat().prefetch(2))

    def start(self) -> None:
        super().start()
        self.begin_again()
        self.batches = self.streams[self.batch]

    def answers(self) -> Any:
        return self.model(self.unseen).numpy().argmax(axis=1)


class JaxDigits(DigitTraining, JaxTask):
    """The training as a jitted optimiser step; the digits are on the device."""

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        with setup.phase("build"):
            self.layers = mlp(SIZES, setup.seed)
            weights = weights_of(self.layers)
            zeros = jax.tree.map(lambda weight: 0 * weight, weights)
            hosted = (0.0, weights, zeros, zeros), pictures()
        self.initial, self.data = self.placed(setup, hosted)
        self.batch, self.seed = case.batch or 1, setup.seed
        self.start()
        self.update = self.compiled(setup, self.adam, self.initial, *self.data, next(self.rows))
        self.start()

    def adam(self, state: Any, data: Any, labels: Any, rows: Any) -> Any:
        """The loss on these rows, and the next state (steps, weights, both moments)."""
        steps, weights, first, second = state
        loss = partial(cross_entropy, self.layers)
        found, slopes = jax.value_and_grad(loss)(weights, data[rows], labels[rows])
        steps += 1
        first = jax.tree.map(lambda m, s: 0.9 * m + 0.1 * s, first, slopes)
        second = jax.tree.map(lambda v, s: 0.999 * v + 0.001 * s**2, second, slopes)
        scale = (1 - 0.999**steps) ** 0.5
        rate = LEARNING_RATE * scale / (1 - 0.9**steps)
        moved = lambda w, m, v: w - rate * m / (v**0.5 + 1e-8 * scale)  # noqa: E731
        return found, (steps, jax.tree.map(moved, weights, first, second), first, second)

    def start(self) -> None:
        super().start()
        self.state, self.rows = self.initial, shuffled(self.batch, self.seed)

    def step(self) -> None:
        super().step()
        self.latest_loss.block_until_ready()

    def train(self) -> None:
        self.latest_loss, self.state = self.update(self.state, *self.data, next(self.rows))

    def answers(self) -> Any:
        return forward(self.layers, self.state[1], self.data[0][TRAINING:]).argmax(axis=1)


class ScikitLearnDigits(DigitTraining):
    """The training of scikit-learn's perceptron, a call of `partial_fit` for each batch."""

    def __init__(self, case: Case, setup: Setup) -> None:
        self.case, self.batch, self.seed = case, case.batch or 1, setup.seed
        with setup.phase("build"):
            self.data, self.labels = pictures()
            self.start()

    def start(self) -> None:
        from sklearn.neural_network import MLPClassifier

        super().start()
        self.rows = shuffled(self.batch, self.seed)
        self.model = MLPClassifier(
            SIZES[1:-1],
            alpha=0.0,
            batch_size=self.batch,
            learning_rate_init=LEARNING_RATE,
            shuffle=False,
            random_state=self.seed,
        )

    def train(self) -> None:
        rows = next(self.rows)
        self.model.partial_fit(self.data[rows], self.labels[rows], classes=range(10))
        self.latest_loss = self.model.loss_

    def answers(self) -> Any:
        return self.model.predict(self.data[TRAINING:])


def shuffled(batch: int, seed: int) -> Iterator[Any]:
    """The rows of endless batches."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(TRAINING)
        yield from order[: len(order) - len(order) % batch].reshape(-1, batch)


WORKLOAD = Digits()
