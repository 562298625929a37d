"""JAX, on CPUs and GPUs; its threads are XLA's."""

from __future__ import annotations

import os
from typing import Any

from workbench.contract import Backend, WorkloadError, kind_of


class Jax(Backend):
    name = "jax"
    install = "`pip install jax`, or jax[cuda13] for an NVIDIA GPU"
    optional = True
    oldest = "0.7"
    # The sizes of XLA's pools, which it reads when it opens the CPU (xla/pjrt/utils.cc).
    thread_variables = ("PJRT_NPROC", "NPROC")
    threads_fixed_at_import = True

    def start(self, device: str) -> None:
        device_named(device)


def device_named(name: str) -> Any:
    """The JAX device of a case; the test device `fake:N` computes on the CPU."""
    import jax

    if kind_of(name).on_host:
        jax.config.update("jax_platforms", "cpu")  # it would open GPUs and TPUs as well
        return jax.devices("cpu")[0]
    number = name.partition(":")[2]
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # it would take most of the memory
    jax.config.update("jax_cuda_visible_devices", number)  # it would open every GPU
    try:
        return next(d for d in jax.devices("gpu") if d.local_hardware_id == int(number))
    except (RuntimeError, StopIteration) as error:
        raise WorkloadError(
            f"JAX {jax.__version__} finds no device {name}",
            code="no_device",
            hint="for an NVIDIA GPU `pip install 'jax[cuda13]'`, or use --device cpu",
        ) from error


BACKEND = Jax()
