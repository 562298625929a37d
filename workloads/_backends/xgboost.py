"""XGBoost, on CPUs and NVIDIA GPUs."""

import importlib

from workbench.contract import Backend, WorkloadError


class XGBoost(Backend):
    name = "xgboost"
    install = "`pip install xgboost-cpu`, or xgboost for an NVIDIA GPU"
    packages = ("xgboost", "xgboost-cpu")
    optional = True
    oldest, newest = "2.1", "3.2"

    def start(self, device: str) -> None:
        if not importlib.import_module("xgboost").build_info().get("USE_CUDA"):
            text = f"this XGBoost {self.version()} has no CUDA and cannot use {device}"
            raise WorkloadError(text, code="no_device", hint="`pip install xgboost`")


BACKEND = XGBoost()
