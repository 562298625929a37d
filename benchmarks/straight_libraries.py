"""Plain scripts in the optional libraries, for comparison with the workloads: see `straight`."""

import itertools
from collections.abc import Callable
from typing import Any

from benchmarks.straight import Step, train
from workbench.contract import Case


def by_openvino(case: Case, task: Any) -> Step:
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": case.threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(task.model), "CPU", settings)
    request = compiled.create_infer_request()
    feeds = itertools.cycle([{"input": batch} for batch in task.inputs])
    return lambda: request.infer(next(feeds), share_inputs=True)


def jax_matmul(case: Case, task: Any) -> Step:
    import jax

    n = case.params["n"]
    a, b = (jax.random.normal(jax.random.key(seed), (n, n)) for seed in (0, 1))
    product = jax.jit(lambda a, b: a @ b)
    return lambda: product(a, b).block_until_ready()


def jax_train_mlp(case: Case, task: Any) -> Step:
    import jax

    def loss(weights: Any, x: Any, labels: Any) -> Any:
        for number, (weight, bias) in enumerate(weights):
            x = x @ weight + bias
            x = jax.nn.relu(x) if number < len(weights) - 1 else x
        picked = jax.nn.log_softmax(x)[jax.numpy.arange(len(labels)), labels]
        return -picked.mean()

    @jax.jit
    def update(weights: Any, x: Any, labels: Any) -> Any:
        found, slopes = jax.value_and_grad(loss)(weights, x, labels)
        return found, jax.tree.map(lambda w, s: w - 0.01 * s, weights, slopes)

    first = [(layer.weight.T.copy(), layer.bias) for layer in task.layers]

    def step() -> float:
        weights, x, labels = jax.device_put((first, task.data, task.labels))
        for _ in range(int(case.params["steps"])):
            found, weights = update(weights, x, labels)
        return float(found)

    return step


def jax_infer_cnn(case: Case, task: Any) -> Step:
    import jax
    import numpy as np

    from workloads._shared.jax_task import forward, weights_of

    weights = weights_of(task.layers)
    network = jax.jit(lambda x: forward(task.layers, weights, x))
    feeds = itertools.cycle(task.inputs)
    return lambda: np.asarray(network(next(feeds)))


def jax_digits(case: Case, task: Any) -> Step:
    import jax
    import numpy as np

    update = jax.jit(task.adam)
    rng, state = np.random.default_rng(0), [task.initial]
    rows = len(task.data[0]) * 4 // 5

    def step() -> float:
        chosen = rng.choice(rows, case.batch, replace=False)
        found, state[0] = update(state[0], *task.data, chosen)
        return float(found)

    return step


def sklearn_digits(case: Case, task: Any) -> Step:
    from sklearn.neural_network import MLPClassifier

    from workloads.digits import shuffled

    # The same weights and batches: steps take longer or less as a network learns.
    rows = shuffled(case.batch or 1, 0)
    model = MLPClassifier((128,), alpha=0.0, batch_size=case.batch, shuffle=False, random_state=0)

    def step() -> None:
        chosen = next(rows)
        model.partial_fit(task.data[chosen], task.labels[chosen], classes=range(10))

    return step


def jax_to_accuracy(case: Case, task: Any) -> Step:
    """As many epochs as the workload takes."""
    import jax
    import numpy as np

    from workloads._shared.jax_task import forward

    task.step()
    epochs, update, size = task.epochs, jax.jit(task.adam), case.batch or 1
    (data, labels), unseen = task.data, np.asarray(task.data[1][1437:])

    def step() -> None:
        rng, state = np.random.default_rng(0), task.initial
        for _ in range(epochs):
            for rows in rng.permutation(1437)[: 1437 - 1437 % size].reshape(-1, size):
                _, state = update(state, data, labels, rows)
            answers = forward(task.layers, state[1], data[1437:]).argmax(axis=1)
            float((answers == unseen).mean())

    return step


def tensorflow_training(case: Case) -> tuple[Any, Callable[..., Any], Callable[[], Any]]:
    """Keras's network for the digits, its update, and a function that makes endless batches."""
    import keras
    import tensorflow as tf

    from workloads._shared.network import mlp
    from workloads.digits import pictures

    model = keras_model(mlp((784, 128, 10), 0))
    update = tf.function(keras_update(model, keras.optimizers.Adam(0.001)))
    stored = tf.data.Dataset.from_tensor_slices(tuple(each[:1437] for each in pictures()))

    def batches() -> Any:
        shuffled = stored.shuffle(1437, 0).batch(case.batch, drop_remainder=True)
        return iter(shuffled.repeat().prefetch(2))

    return model, update, batches


def tensorflow_digits(case: Case, task: Any) -> Step:
    _, update, batches = tensorflow_training(case)
    stream = batches()
    return lambda: float(update(*next(stream)))


def tensorflow_to_accuracy(case: Case, task: Any) -> Step:
    """As many epochs as the workload takes, from where the last ended."""
    from workloads.digits import pictures

    task.step()
    model, update, batches = tensorflow_training(case)
    unseen, answers = (each[1437:] for each in pictures())

    def step() -> None:
        stream = batches()
        for _ in range(task.epochs):
            for _ in range(1437 // (case.batch or 1)):
                update(*next(stream))
            (model(unseen).numpy().argmax(axis=1) == answers).mean()

    return step


def sklearn_to_accuracy(case: Case, task: Any) -> Step:
    """As many epochs as the workload takes; a whole `fit` could not stop at an accuracy."""
    from sklearn.neural_network import MLPClassifier

    task.step()
    data, labels = task.data[:1437], task.labels[:1437]

    def step() -> None:
        model = MLPClassifier((128,), alpha=0.0, batch_size=case.batch, random_state=0)
        for _ in range(task.epochs):
            model.partial_fit(data, labels, classes=range(10))
            (model.predict(task.data[1437:]) == task.labels[1437:]).mean()

    return step


def sklearn_forest(case: Case, task: Any) -> Step:
    feeds, predict = itertools.cycle(task.batches), task.model.predict
    return lambda: predict(next(feeds))


def sklearn_trees(case: Case, task: Any) -> Step:
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = case.params["trees"]
    return lambda: HistGradientBoostingClassifier(max_iter=trees, early_stopping=False).fit(
        task.data, task.labels
    )


def xgboost_trees(case: Case, task: Any) -> Step:
    from xgboost import XGBClassifier

    settings = {"max_leaves": 31, "max_depth": 0, "grow_policy": "lossguide", "learning_rate": 0.1}
    settings |= {"n_estimators": case.params["trees"], "n_jobs": case.threads}
    return lambda: XGBClassifier(tree_method="hist", **settings).fit(task.data, task.labels)


def lightgbm_trees(case: Case, task: Any) -> Step:
    from lightgbm import LGBMClassifier

    settings = {"n_estimators": case.params["trees"], "n_jobs": case.threads, "verbosity": -1}
    return lambda: LGBMClassifier(**settings).fit(task.data, task.labels)


def keras_model(layers: Any) -> Any:
    import keras

    model = keras.Sequential([keras.Input(layers[0].weight.shape[1:])])
    for layer in layers:
        model.add(keras.layers.Dense(len(layer.bias), "relu" if layer.relu else None))
    return model


def keras_update(model: Any, optimiser: Any) -> Callable[[Any, Any], Any]:
    """One step of the training loop in TensorFlow's tutorials; returns the loss."""
    import keras
    import tensorflow as tf

    cost = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def update(inputs: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            found = cost(targets, model(inputs, training=True))
        slopes = tape.gradient(found, model.trainable_variables)
        optimiser.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        return found

    return update


def tensorflow_mlp_deep(case: Case, task: Any) -> Step:
    import keras
    import tensorflow as tf

    update = keras_update(keras_model(task.layers), keras.optimizers.Adam(0.001))
    data, labels = map(tf.constant, task.hosted)
    step = tf.function(lambda: update(data, labels))
    return lambda: float(step())


def tensorflow_scaling(case: Case, task: Any) -> Step:
    import keras
    import tensorflow as tf

    from workloads._ranks.replica import sizes_of
    from workloads._shared.network import mlp

    strategy = tf.distribute.MirroredStrategy(task.devices)
    with strategy.scope():
        model = keras_model(mlp(sizes_of(case), 0))
        sgd = keras.optimizers.SGD(0.01)
        sgd.build(model.trainable_variables)
    one = keras_update(model, sgd)

    @tf.function
    def update(*batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(one, batch), axis=None)

    return lambda: float(update(*task.batch))


def keras_mlp_deep(case: Case, task: Any) -> Step:
    import torch

    torch.set_num_threads(case.threads or 1)
    network = keras_model(task.layers)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.001)
    return train(network, optimiser, lambda: (task.data, task.labels))


SCRIPTS: dict[str, tuple[str, str, Callable[[Case, Any], Step]]] = {
    "digits/jax": ("jax", "fp32", jax_digits),
    "digits/sklearn": ("sklearn", "fp32", sklearn_digits),
    "digits/tensorflow": ("tensorflow", "fp32", tensorflow_digits),
    "digits_to_accuracy/jax": ("jax", "fp32", jax_to_accuracy),
    "digits_to_accuracy/sklearn": ("sklearn", "fp32", sklearn_to_accuracy),
    "digits_to_accuracy/tensorflow": ("tensorflow", "fp32", tensorflow_to_accuracy),
    "forest/sklearn": ("sklearn", "fp32", sklearn_forest),
    "infer_cnn/jax": ("jax", "fp32", jax_infer_cnn),
    "infer_cnn/openvino": ("openvino", "fp32", by_openvino),
    "infer_encoder/openvino": ("openvino", "fp32", by_openvino),
    "infer_mlp/openvino": ("openvino", "fp32", by_openvino),
    "matmul/jax": ("jax", "fp32", jax_matmul),
    "scaling/tensorflow": ("tensorflow", "fp32", tensorflow_scaling),
    "train_mlp/jax": ("jax", "fp32", jax_train_mlp),
    "train_mlp_deep/keras": ("keras", "fp32", keras_mlp_deep),
    "train_mlp_deep/tensorflow": ("tensorflow", "fp32", tensorflow_mlp_deep),
    "train_trees/lightgbm": ("lightgbm", "fp32", lightgbm_trees),
    "train_trees/sklearn": ("sklearn", "fp32", sklearn_trees),
    "train_trees/xgboost": ("xgboost", "fp32", xgboost_trees),
}
