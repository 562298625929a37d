"""The worker's own interpreter, for a user's function, which may use any library."""

import platform

from workbench.contract import Backend


class Python(Backend):
    name = "python"
    install = "--python names another interpreter"
    # Numba (NUMBA_NUM_THREADS), Polars and Rayon each document a variable of their own.
    thread_variables = ("NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS")
    threads_fixed_at_import = True  # by some of these libraries

    def version(self) -> str:
        return platform.python_version()


BACKEND = Python()
