"""The child that speaks to the driver: `nvml [FIRST]`, `links`, `cuda`, `pulse SECONDS INDEX...`.

One JSON line per answer, written as soon as it is known, so that what was read before a
crash is kept.  For `nvml` an `NvmlHeader` and then a `Gpu` per line, from number FIRST on;
for `links` one `Links`, for `cuda` one `CudaAnswer`; for `pulse` a `GpuSample` of these GPUs
every so many seconds, until it is killed or nobody reads.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import msgspec

from ...records.machine import Gpu
from . import cuda_driver, nvml

# Should the parent die first, a child that hangs in the driver must not stay for ever.
_ALONE_S = 120


def main() -> None:
    """Answer on what was standard output; anything the libraries print goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    topic, *further = sys.argv[1:]
    lines: Iterator[nvml.NvmlHeader | Gpu | nvml.GpuSample | nvml.Links | cuda_driver.CudaAnswer]
    if topic == "nvml":
        lines = nvml.survey(int(further[0]) if further else 0)
    elif topic == "links":
        lines = iter((nvml.links(),))
    elif topic == "pulse":
        lines = nvml.pulses([int(index) for index in further[1:]], every_s=float(further[0]))
    else:
        lines = iter((cuda_driver.survey(),))
    _rearm()
    for line in lines:
        answers.write(msgspec.json.encode(line) + b"\n")
        answers.flush()
        _rearm()
    # Neither nvmlShutdown nor the libraries' exit handlers: both can hang on a lost GPU.
    os._exit(0)


def _rearm() -> None:
    if hasattr(signal, "alarm"):  # not on Windows
        signal.alarm(_ALONE_S)


if __name__ == "__main__":
    main()
