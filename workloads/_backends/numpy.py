"""NumPy, with the BLAS that it was built with."""

from workbench.contract import Backend


class NumPy(Backend):
    name = "numpy"
    install = "`pip install numpy`"
    threads_fixed_at_import = True  # by its BLAS


BACKEND = NumPy()
