"""Data-parallel training by TensorFlow's MirroredStrategy: one process, a replica per device."""

import hashlib
import os
from contextlib import suppress
from typing import Any

from workbench.contract import Accuracy, Case, Setup, Task, WorkloadError
from workbench.worker.launcher import launch_of
from workbench.worker.libraries import keras, np, tf

from .._shared.keras_task import network
from .._shared.network import mlp
from .replica import LEARNING_RATE, checked, drawn, judge, sampled, sizes_of, world_of


class Mirrored(Task):
    """One step updates all replicas, and has ended when their mean loss is read back.  On a CPU the
    replicas run on logical devices, which share TensorFlow's threads."""

    waits = finishes = True

    def __init__(self, case: Case, setup: Setup, most: int) -> None:
        self.case, self.world, self.seed = case, world_of(case), setup.seed
        with setup.phase("build"):
            self.hosted = drawn(case, setup.seed)
            self.devices = logical_devices(case, most)
            self.strategy = tf.distribute.MirroredStrategy(self.devices)
            with self.strategy.scope():
                model = network(mlp(sizes_of(case), setup.seed))
                self.optimiser = optimiser = keras.optimizers.SGD(LEARNING_RATE)
                self.weights = weights = model.trainable_variables
                optimiser.build(weights)
            self.initial = [weight.numpy() for weight in weights]

        def replica(data: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = model(data, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
                loss = tf.nn.compute_average_loss(losses)
            optimiser.apply(tape.gradient(loss, weights), weights)  # which all-reduces them
            return loss

        def update(data: Any, labels: Any) -> Any:
            losses = self.strategy.run(replica, (data, labels))
            return self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

        self.update = tf.function(update)
        with setup.phase("build" if case.device_kind == "cpu" else "transfer"):
            self.batch = self.shares(len(self.hosted[0]) // self.world)
        with setup.phase("compile"):
            self.update(*self.batch)
        self.reset()

    def shares(self, count: int) -> list[Any]:
        """The first `count` samples of each replica's equal share of the batch."""
        share = len(self.hosted[0]) // self.world

        def on(context: Any, part: Any) -> Any:
            number = context.replica_id_in_sync_group
            with tf.device(self.devices[number]):
                return tf.constant(part[number * share : number * share + count])

        distribute = self.strategy.experimental_distribute_values_from_function
        return [distribute(lambda context, part=part: on(context, part)) for part in self.hosted]

    def reset(self) -> None:
        """Restore the initial weights."""
        for weight, value in zip(self.weights, self.initial, strict=True):
            weight.assign(value)

    def step(self) -> None:
        self.latest_loss = float(self.update(*self.batch))

    def check(self) -> Accuracy:
        """One step at a learning rate of 1 changes the weights by the gradient; it is undone."""
        self.optimiser.learning_rate = 1.0
        self.update(*self.shares(checked(self.case)))
        self.optimiser.learning_rate = LEARNING_RATE
        trials = [self._trial(number) for number in range(self.world)]
        self.reset()
        return judge(self.case, self.seed, trials)

    def _trial(self, number: int) -> dict[str, Any]:
        """The change of one replica's weights, whose matrices are (inputs, outputs)."""
        local = self.strategy.experimental_local_results
        found = [local(weight.value)[number].numpy() for weight in self.weights]
        changes = [before - now for before, now in zip(self.initial, found, strict=True)]
        digest = hashlib.sha256(b"".join(each.tobytes() for each in found))
        gradient = np.concatenate([sampled(change.T.ravel()) for change in changes])
        return {"gradient": gradient, "weights": digest.hexdigest()}


def logical_devices(case: Case, most: int) -> list[str]:
    """A device of TensorFlow for each replica; the CPU is split into `most`."""
    world, kind = world_of(case), "CPU" if case.computes_on == "cpu" else "GPU"
    if launch_of(os.environ) is not None:
        text = "MirroredStrategy runs in one process, not in the ranks of a launcher"
        raise WorkloadError(text, hint="use --backend torch, or no launcher")
    found = tf.config.list_physical_devices(kind)
    with suppress(RuntimeError):  # TensorFlow has computed already, and keeps its devices
        if kind == "CPU":
            parts = [tf.config.LogicalDeviceConfiguration()] * max(most, world)
            tf.config.set_logical_device_configuration(found[0], parts)
        else:
            tf.config.set_visible_devices(found, kind)
    names = [device.name for device in tf.config.list_logical_devices(kind)]
    if len(names) < world:
        text = f"{world} replicas need a {kind} each, but TensorFlow has opened {len(names)}"
        hint = "omit --set world=..., or run scaling without other workloads"
        raise WorkloadError(text, code="no_device", hint=hint)
    chosen = 0 if kind == "CPU" else int(case.device.partition(":")[2])
    first = chosen if len(names) == len(found) else 0  # the only visible GPU is GPU:0
    return [names[(first + number) % len(names)] for number in range(world)]
