"""Perceptrons in Keras 3, and their training by TensorFlow, a step in one graph."""

from collections.abc import Iterator, Sequence
from typing import Any

from workbench.contract import Case, Setup
from workbench.worker.libraries import keras, tf

from .._backends.tensorflow import use
from .torch_task import arithmetic
from .training import RepeatedTraining

POLICIES = {"bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
EPSILON = 4e-10  # Keras adds it before bias correction: in first steps as torch's 1e-8 after it


class TensorFlowTask(RepeatedTraining):
    """Adam on a perceptron: one step is one update, which has ended when its loss is read back.
    BF16 and FP16 are Keras's mixed precision; in mode "xla" XLA compiles the graph."""

    waits = finishes = True

    def __init__(self, case: Case, layers: Sequence[Any], rate: float) -> None:
        use(case.device)
        self.case = case
        self.model = model = network(layers, POLICIES.get(arithmetic(case), "float32"))
        adam = keras.optimizers.Adam(rate, epsilon=EPSILON)
        optimiser = keras.optimizers.LossScaleOptimizer(adam) if case.precision == "fp16" else adam
        weights = model.trainable_variables
        optimiser.build(weights)
        variables = (*model.variables, *optimiser.variables)
        initial = [(variable, tf.identity(variable.value)) for variable in variables]

        def update(inputs: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = tf.cast(model(inputs, training=True), tf.float32)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)
                loss = tf.reduce_mean(losses)
                scaled = optimiser.scale_loss(loss)
            optimiser.apply(tape.gradient(scaled, weights), weights)
            return loss

        def begin_again() -> None:
            for variable, value in initial:
                variable.assign(value)

        self.update = tf.function(update, jit_compile=case.mode == "xla")
        self.begin_again = tf.function(begin_again)

    def begin(self, setup: Setup, batches: Iterator[Any]) -> None:
        """Trace the update for the first of endless `batches`, which XLA then compiles."""
        self.batches = batches
        with setup.phase("compile"):
            self.update(*next(batches))
        self.start()

    def train(self) -> None:
        self.latest_loss = self.update(*next(self.batches))

    def step(self) -> None:
        super().step()
        self.latest_loss = float(self.latest_loss)  # waits


def network(layers: Sequence[Any], policy: str = "float32") -> Any:
    """A perceptron of Keras, whose weights are (inputs, outputs)."""
    model = keras.Sequential([keras.Input(layers[0].weight.shape[1:])])
    for layer in layers:
        model.add(keras.layers.Dense(len(layer.bias), "relu" if layer.relu else None, dtype=policy))
    model.set_weights([part for layer in layers for part in (layer.weight.T, layer.bias)])
    return model
