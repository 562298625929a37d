"""LightGBM on the CPU."""

from workbench.contract import Backend


class LightGBM(Backend):
    name = "lightgbm"
    install = "`pip install lightgbm`"
    optional = True
    oldest, newest = "4.5", "4.7"


BACKEND = LightGBM()
