"""XGBoost, on CPUs and NVIDIA GPUs."""

from workbench.contract import Backend


class XGBoost(Backend):
    name = "xgboost"
    install = "`pip install xgboost-cpu`, or xgboost for an NVIDIA GPU"
    packages = ("xgboost", "xgboost-cpu")
    optional = True
    oldest, newest = "2.1", "3.2"


BACKEND = XGBoost()
