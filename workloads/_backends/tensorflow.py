"""TensorFlow with its Keras, on CPUs and NVIDIA GPUs."""

import os

from workbench.contract import Backend, WorkloadError, kind_of
from workbench.worker.libraries import tf


class TensorFlow(Backend):
    name = "tensorflow"
    install = "`pip install tensorflow-cpu`, or tensorflow[and-cuda] for an NVIDIA GPU"
    packages = ("tensorflow", "tensorflow-cpu")
    optional = True
    platforms = ("CUDA", "ROCm")
    oldest, newest = "2.17", "2.21"
    # The sizes of its two pools, which it reads when it opens the CPU.
    thread_variables = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    threads_fixed_at_import = True

    def version(self) -> str:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
        os.environ.update(KERAS_BACKEND="tensorflow", KERAS_HOME=os.devnull)
        found = super().version()  # first, since a missing TensorFlow would be an error of Keras
        import keras  # noqa: F401

        return found

    def start(self, device: str) -> None:
        use(device)


def use(device: str) -> None:
    """Compute on one GPU, usually the only visible one, in true FP32; a CPU needs no choice."""
    if kind_of(device).on_host:
        return
    gpus, number = tf.config.list_physical_devices("GPU"), int(device.partition(":")[2])
    if number >= len(gpus):
        hint = f"{TensorFlow.install}; or use --device cpu"
        raise WorkloadError(f"TensorFlow finds no device {device}", code="no_device", hint=hint)
    try:
        tf.config.set_visible_devices(gpus[number], "GPU")
    except RuntimeError:  # `scaling` has opened all GPUs, which keep their numbers
        tf.device(f"GPU:{number}").__enter__()  # for the life of this worker
    tf.config.experimental.enable_tensor_float_32_execution(False)


BACKEND = TensorFlow()
