"""ONNX Runtime.  It does not report the GPU memory that it allocates."""

from __future__ import annotations

from workbench.contract import Backend


class OnnxRuntime(Backend):
    name = "onnxruntime"
    install = "`pip install onnxruntime`, or onnxruntime-gpu for an NVIDIA GPU"


BACKEND = OnnxRuntime()
