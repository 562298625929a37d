"""OpenVINO on the CPU and, unproven, on Intel's GPUs.  It reads the models of ONNX Runtime."""

from typing import Any

from workbench.contract import Backend


class OpenVino(Backend):
    name = "openvino"
    install = "`pip install openvino`"
    optional = True
    oldest, newest = "2025.0", "2026.4"
    platforms = ("OpenVINO", "XPU")

    def version(self) -> str:
        return super().version().partition("-")[0]  # the build and its branch follow

    def gpus(self) -> list[dict[str, Any]]:
        """Intel's GPUs, which torch calls XPUs: OpenVINO lists `GPU`, or `GPU.0`, `GPU.1`."""
        import openvino

        core = openvino.Core()
        listed = [name for name in core.available_devices if name.startswith("GPU")]
        names = [core.get_property(name, "FULL_DEVICE_NAME") for name in listed]
        about = {"platform": "OpenVINO"}
        return [{"device": f"xpu:{n}", "name": name, **about} for n, name in enumerate(names)]


BACKEND = OpenVino()
