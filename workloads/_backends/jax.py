"""JAX, on CPUs, GPUs and, unproven, TPUs; its threads are XLA's."""

from typing import Any

from workbench.contract import Backend, WorkloadError, kind_of
from workbench.worker.libraries import jax

FOR_CUDA = "jax[cuda13] for an NVIDIA GPU (jax[cuda12] with a driver below 580)"


class Jax(Backend):
    name = "jax"
    install = f"`pip install jax`, or {FOR_CUDA}"
    platforms = ("CUDA", "ROCm", "TPU")
    optional = True
    oldest, newest = "0.7", "0.10"
    # The sizes of XLA's pools, which it reads when it opens the CPU (xla/pjrt/utils.cc).
    thread_variables = ("PJRT_NPROC", "NPROC")
    threads_fixed_at_import = True

    def gpus(self) -> list[dict[str, Any]]:
        """The TPUs of this host."""
        found = [each for each in jax.local_devices() if each.platform == "tpu"]
        return [{"device": f"tpu:{d.id}", "name": d.device_kind, "platform": "TPU"} for d in found]

    def start(self, device: str) -> None:
        device_named(device)


def device_named(name: str) -> Any:
    """The JAX device of a case; the test device `fake:N` computes on the CPU."""
    if kind_of(name).on_host:
        jax.config.update("jax_platforms", "cpu")  # JAX would open GPUs and TPUs as well
        return jax.devices("cpu")[0]
    kind, _, number = name.partition(":")
    for option in ("jax_cuda_visible_devices", "jax_rocm_visible_devices"):
        jax.config.update(option, number)  # JAX would open every GPU
    try:
        if kind == "tpu":
            return next(d for d in jax.local_devices(backend="tpu") if d.id == int(number))
        return next(d for d in jax.devices("gpu") if d.local_hardware_id == int(number))
    except (RuntimeError, StopIteration) as error:
        text = f"JAX {jax.__version__} finds no device {name}"
        hint = f"install {FOR_CUDA}, or use --device cpu"
        raise WorkloadError(text, code="no_device", hint=hint) from error


BACKEND = Jax()
