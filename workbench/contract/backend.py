"""The interface of a library that computes."""

import importlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

# The variables with which every worker gives OpenMP and BLAS libraries its number of threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class Backend:
    """A library that computes, as the engine and the workers see it.

    The name of its file is the import name of the library and its name in cases.  The engine reads
    the attributes; only workers call the methods, which may import the library.  Methods with a
    `device` are called for real GPUs only.
    """

    name: ClassVar[str]
    install: ClassVar[str]  # how to get the library if it is missing
    packages: ClassVar[tuple[str, ...]] = ()  # pip packages with it, if their names differ
    thread_variables: ClassVar[tuple[str, ...]] = ()  # besides those of OpenMP and BLAS libraries
    # The library reads its number of threads only once, so each number needs a worker of its own.
    threads_fixed_at_import: ClassVar[bool] = False
    # Workers keep the user's environment unchanged, without limits on threads, memory or GPUs.
    own_environment: ClassVar[bool] = False
    # Its cases are planned only if it is installed or named by --backend.
    optional: ClassVar[bool] = False
    # The range of tested versions: the lower bound of the extra in pyproject.toml, and the first
    # two numbers of the version in constraints.txt.
    oldest: ClassVar[str] = ""
    newest: ClassVar[str] = ""
    platforms: ClassVar[tuple[str, ...]] = ("CUDA",)  # values of `Gpu.platform` that it uses

    def version(self) -> str:
        """Import the library and return its version."""
        return str(importlib.import_module(self.name).__version__)

    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs that the library can use, each with fields of `records.machine.Gpu`."""
        return []

    def start(self, device: str) -> None:
        """Do one-time work that no case should pay for, such as opening the driver."""

    def load_rest(self, device: str) -> None:
        """Load parts that only some jobs need, such as cuDNN, outside of any timing."""

    def reset_memory_peak(self, device: str) -> None:
        """Start a new peak, which ignores memory that is allocated now."""

    def memory_peak_bytes(self, device: str) -> int | None:
        """Most memory allocated since the last reset; None if unknown."""
        return None

    def release(self, device: str) -> None:
        """Free the library's caches of memory, on the device and for copies to it."""

    def named_range(self, device: str, name: str) -> AbstractContextManager[Any]:
        """A range called `name` on the timeline of a system-wide profiler."""
        return nullcontext()
