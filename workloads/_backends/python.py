"""The worker's own interpreter, for a user's function, which may use any library."""

import platform

from workbench.contract import Backend


class Python(Backend):
    name = "python"
    install = "--python names another interpreter"
    # Numba, Polars, Rayon, joblib (for scikit-learn's and LightGBM's `n_jobs`), XLA (for JAX) and
    # TensorFlow each have variables of their own.
    thread_variables = (
        "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "LOKY_MAX_CPU_COUNT",
        "PJRT_NPROC", "NPROC", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS",
    )  # fmt: skip
    threads_fixed_at_import = True  # by some of these libraries

    def version(self) -> str:
        return platform.python_version()


BACKEND = Python()
