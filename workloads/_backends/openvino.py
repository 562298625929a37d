"""OpenVINO on the CPU.  It reads the ONNX models that ONNX Runtime runs."""

from __future__ import annotations

from workbench.contract import Backend


class OpenVino(Backend):
    name = "openvino"
    install = "`pip install openvino`"
    optional = True
    oldest = "2025.0"


BACKEND = OpenVino()
