"""The interface of the three things that can be added: a workload, a backend, a kind of device.

A file in `workloads/` binds a `Workload` to `WORKLOAD`; a file in `workloads/_backends/` binds a
`Backend` to `BACKEND`.  The engine reads their descriptions, which import no backend; a worker
calls `prepare` and then times `Task.step`.  Standard library only: a worker may run under an
interpreter that has nothing but its backend.
"""

from ..errors import WorkloadError as WorkloadError
from ..precisions import (
    HALF as HALF,
    LEAST_CAPABILITY as LEAST_CAPABILITY,
    PRECISIONS as PRECISIONS,
    REDUCED as REDUCED,
)
from .backend import THREAD_VARIABLES as THREAD_VARIABLES, Backend as Backend
from .case import (
    COMPILED as COMPILED,
    LARGEST as LARGEST,
    MOST_BATCH as MOST_BATCH,
    MOST_THREADS as MOST_THREADS,
    SMALLEST as SMALLEST,
    Case as Case,
    Host as Host,
    Parameter as Parameter,
    ParameterValue as ParameterValue,
    ParameterValues as ParameterValues,
    Variant as Variant,
)
from .device import COLUMNS as COLUMNS, DEVICE_KINDS as DEVICE_KINDS, kind_of as kind_of
from .result import (
    Accuracy as Accuracy,
    Operator as Operator,
    OutputAccuracy as OutputAccuracy,
    Profile as Profile,
    Work as Work,
)
from .task import (
    DEFAULT_CACHE_BYTES as DEFAULT_CACHE_BYTES,
    FAULTING_FRACTION as FAULTING_FRACTION,
    WAITING_FRACTION as WAITING_FRACTION,
    DeviceTimer as DeviceTimer,
    Setup as Setup,
    Task as Task,
)
from .workload import Workload as Workload
