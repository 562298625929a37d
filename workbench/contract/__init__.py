"""The interface of the three things that can be added: a workload, a backend, a kind of device.

A file in `workloads/` binds a `Workload` to `WORKLOAD`; a file in `workloads/_backends/` binds a
`Backend` to `BACKEND`.  The engine reads their descriptions, which import no backend; a worker
calls `prepare` and then times `Task.step`.  Standard library only: a worker may run under an
interpreter that has nothing but its backend.
"""

from ..errors import WorkloadError
from ..precisions import HALF, LEAST_CAPABILITY, PRECISIONS, REDUCED
from .backend import THREAD_VARIABLES, Backend
from .case import (
    COMPILED,
    LARGEST,
    MOST_BATCH,
    MOST_THREADS,
    SMALLEST,
    Case,
    Host,
    Parameter,
    ParameterValue,
    ParameterValues,
    Variant,
)
from .device import COLUMNS, DEVICE_KINDS, kind_of
from .result import Accuracy, Operator, OutputAccuracy, Profile, Work
from .task import DEFAULT_CACHE_BYTES, FAULTING_FRACTION, WAITING_FRACTION, DeviceTimer, Setup, Task
from .workload import Workload
