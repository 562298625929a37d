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

    The name of its file is what the library is imported as, and what cases call it.  The engine
    reads the attributes; only workers call the methods, which may import the library.  A method
    that takes a `device` is called for GPUs only, never for the CPU or a simulated device.
    """

    name: ClassVar[str]
    install: ClassVar[str]  # how to get the library, where it is missing
    packages: ClassVar[tuple[str, ...]] = ()  # that contain it, if their names differ from it
    thread_variables: ClassVar[tuple[str, ...]] = ()  # besides those of OpenMP and BLAS libraries
    # The library reads its number of threads once, so each number needs a worker of its own.
    threads_fixed_at_import: ClassVar[bool] = False
    # Workers keep the user's environment: threads, precision and GPUs stay as the user set them.
    own_environment: ClassVar[bool] = False
    # Its cases are planned where it is installed or named by --backend, and not missed elsewhere.
    optional: ClassVar[bool] = False
    # The range of tested versions: the first that the extra in pyproject.toml allows, and the one
    # that constraints.txt pins, to its second number.
    oldest: ClassVar[str] = ""
    newest: ClassVar[str] = ""
    platforms: ClassVar[tuple[str, ...]] = ("CUDA",)  # GPU platforms it runs on: see `Gpu.platform`

    def version(self) -> str:
        """The version of the library, which this imports."""
        return str(importlib.import_module(self.name).__version__)

    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs that the library can use, each with fields of `records.machine.Gpu`."""
        return []

    def start(self, device: str) -> None:
        """Do what otherwise only the first case would pay for, such as opening the driver."""

    def load_rest(self, device: str) -> None:
        """Load what only some jobs need, such as cuDNN: it counts in no start-up and in no step."""

    def reset_memory_peak(self, device: str) -> None:
        """Start a new peak, towards which memory that is allocated now does not count."""

    def memory_peak_bytes(self, device: str) -> int | None:
        """Most memory allocated since the last reset; None where this is unknown."""
        return None

    def release(self, device: str) -> None:
        """Return memory that the library keeps for later, on the device or for copies to it."""

    def named_range(self, device: str, name: str) -> AbstractContextManager[Any]:
        """A range called `name` on the timeline of a system-wide profiler."""
        return nullcontext()
