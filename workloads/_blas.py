"""The number of threads of NumPy's matrix products, which NumPy itself cannot set."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from workbench.contract import WorkloadError

LIBRARIES = ("openblas", "libmkl_rt", "libblis")
SETTERS = (
    "scipy_openblas_set_num_threads64_",  # NumPy's own wheels
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
    "MKL_Set_Num_Threads",
    "bli_thread_set_num_threads",
)
VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def set_threads(count: int) -> None:
    """Let the BLAS that this process has loaded use `count` threads.

    WorkloadError where no BLAS takes the setting and the environment does not say it either.
    """
    done = False
    for library in _loaded():
        for setter in SETTERS:
            function = getattr(library, setter, None)
            if function is not None:
                function(ctypes.c_int(count))
                done = True
                break
    if not done and all(os.environ.get(variable) != str(count) for variable in VARIABLES):
        raise WorkloadError(
            f"NumPy's BLAS cannot be told to use {count} threads",
            code="threads_unsupported",
            hint=f"set {VARIABLES[0]}={count} in the environment",
        )


def _loaded() -> list[ctypes.CDLL]:
    """The BLAS libraries of this process, as Linux lists its mappings."""
    try:
        mappings = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    files = {line.split(maxsplit=5)[-1] for line in mappings.splitlines() if "/" in line}
    return [
        ctypes.CDLL(file)
        for file in sorted(files)
        if any(name in Path(file).name for name in LIBRARIES)
    ]
