"""Full-batch training data for multi-layer perceptrons, and their training in NumPy float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .network import Dense, Layer, cross_entropy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Update = Callable[[int, Any, Any], Any]  # (parameter number, value, gradient) to the new value


def samples(
    count: int, inputs: int, classes: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Normal random inputs (count, inputs), and their labels (count) by a linear rule."""
    import numpy as np

    rng = np.random.default_rng(seed)
    data = rng.standard_normal((count, inputs), dtype=np.float32)
    rule = rng.standard_normal((inputs, classes), dtype=np.float32)
    return data, (data @ rule).argmax(axis=1)


def reference_losses(
    layers: Sequence[Layer],
    data: NDArray[np.float32],
    labels: NDArray[np.int64],
    update: Update,
    steps: int,
) -> Iterator[float]:
    """The loss before each of `steps` full-batch steps, by hand-written backpropagation."""
    import numpy as np

    dense = [layer for layer in layers if isinstance(layer, Dense)]
    weights = [layer.weight.astype(np.float64) for layer in dense]
    biases = [layer.bias.astype(np.float64) for layer in dense]
    targets = np.eye(len(biases[-1]))[labels]
    for _ in range(steps):
        activations: list[Array] = [data.astype(np.float64)]
        for layer, weight, bias in zip(dense, weights, biases, strict=True):
            z = activations[-1] @ weight.T + bias
            activations.append(np.maximum(z, 0) if layer.relu else z)
        logits = activations.pop()
        yield cross_entropy(logits, labels)

        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        signal = exponentials / exponentials.sum(axis=1, keepdims=True) - targets
        signal /= len(data)
        for index in reversed(range(len(dense))):
            before = activations[index]
            weight_gradient, bias_gradient = signal.T @ before, signal.sum(axis=0)
            signal = (signal @ weights[index]) * (before > 0)
            weights[index] = update(2 * index, weights[index], weight_gradient)
            biases[index] = update(2 * index + 1, biases[index], bias_gradient)


def largest_deviation(losses: Sequence[float], expected: Sequence[float]) -> float:
    """The largest relative difference between two loss curves."""
    return max(abs(loss / right - 1) for loss, right in zip(losses, expected, strict=True))
