"""Parts of every JAX candidate: its device, its precision, and the networks."""

from collections.abc import Callable, Sequence
from typing import Any

from workbench.contract import Case, Setup, Task, WorkloadError
from workbench.worker.libraries import jax

from .._backends.jax import device_named
from .network import Conv, Layer


class JaxTask(Task):
    """A task whose steps wait for what they computed, as `block_until_ready` does."""

    waits = finishes = True

    def __init__(self, case: Case) -> None:
        self.case, self.device = case, device_named(case.device)
        self.activate()

    def activate(self) -> None:
        """Compute as the case says: JAX has no FP64 unless asked, and GPUs use TF32 for FP32."""
        jax.config.update("jax_enable_x64", self.case.precision == "fp64")
        jax.config.update("jax_default_matmul_precision", "highest")

    def placed(self, setup: Setup, arrays: Any) -> Any:
        """The arrays on the device, a transfer only if that is a GPU."""
        with setup.phase("build" if self.case.device_kind == "cpu" else "transfer"):
            return jax.block_until_ready(jax.device_put(arrays, self.device))

    def compiled(self, setup: Setup, function: Callable[..., Any], *example: Any) -> Any:
        """`function` by jax.jit, called once; WorkloadError if JAX ran it on another device."""
        from jax.sharding import SingleDeviceSharding

        made = jax.jit(function, in_shardings=SingleDeviceSharding(self.device))
        with setup.phase("compile"):
            results = jax.tree.leaves(jax.block_until_ready(made(*example)))
        for found in results:
            if not found.committed or found.devices() != {self.device}:
                text = f"JAX computes on {found.devices()} in place of {self.case.device}"
                raise WorkloadError(text, code="provider_fallback")
        return made


def weights_of(layers: Sequence[Layer]) -> list[Any]:
    """The weight and bias of each layer of a perceptron or a conv net, or None."""
    return [(getattr(layer, "weight", None), getattr(layer, "bias", None)) for layer in layers]


def cross_entropy(layers: Sequence[Layer], weights: Sequence[Any], x: Any, labels: Any) -> Any:
    """The mean loss of a classifier."""
    logs = jax.nn.log_softmax(forward(layers, weights, x))
    return -(logs * jax.nn.one_hot(labels, logs.shape[1])).sum(axis=1).mean()


def forward(layers: Sequence[Layer], weights: Sequence[Any], x: Any) -> Any:
    """The output of a perceptron, or of a conv net for pictures whose channels come first."""
    shapes = ("NHWC", "OIHW", "NHWC")  # the layout of JAX's own libraries
    x = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
    for layer, (weight, bias) in zip(layers, weights, strict=True):
        if isinstance(layer, Conv):
            strides = (layer.stride, layer.stride)
            x = jax.lax.conv_general_dilated(x, weight, strides, [(1, 1)] * 2, None, None, shapes)
        else:
            x = x.mean(axis=(1, 2)) if weight is None else x @ weight.T
        x = x if bias is None else x + bias
        x = jax.nn.relu(x) if getattr(layer, "relu", False) else x
    return x
