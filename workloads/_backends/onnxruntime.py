"""ONNX Runtime.  It does not report the GPU memory that it allocates."""

from contextlib import suppress

from workbench.contract import Backend, Case
from workbench.worker import onnx_gpu
from workbench.worker.libraries import onnxruntime


class OnnxRuntime(Backend):
    name = "onnxruntime"
    install = f"`pip install onnxruntime`, or '{onnx_gpu.PACKAGE}' for an NVIDIA GPU"

    def start(self, device: str) -> None:
        """Load CUDA's libraries and open the device; an error is left to a case that needs them."""
        wanted = onnx_gpu.providers(onnx_gpu.CUDA, Case("", device, self.name, "fp32"), shared=True)
        with suppress(onnx_gpu.Unusable):
            onnx_gpu.open_session(onnxruntime, onnx_gpu.DOUBLING, None, wanted)


BACKEND = OnnxRuntime()
