"""The child process that asks the driver.  Its arguments say what about, and it answers in JSON
lines, each written as soon as it is known, so that everything read before a crash is kept.

`nvml`                      an `NvmlHeader`, then a `Gpu` per line
`links`                     one `Links`
`cuda`                      one `CudaAnswer`
`sample SECONDS INDEX...`   a `GpuSample` of these GPUs every SECONDS, until it is killed
"""

import os
import signal
import sys
from collections.abc import Iterable

import msgspec

from . import cuda_driver, nvml

# A child that hangs in the driver must not outlive its parent for ever.
_ALONE_S = 120


def main(arguments: list[str]) -> None:
    """Answer the question that the arguments ask."""
    topic, *further = arguments
    if topic == "nvml":
        answer(nvml.survey())
    elif topic == "links":
        answer([nvml.links()])
    elif topic == "sample":
        answer(nvml.samples([int(index) for index in further[1:]], every_s=float(further[0])))
    else:
        answer([cuda_driver.survey()])


def answer(lines: Iterable[object]) -> None:
    """Answer on what was standard output; anything the libraries print goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.alarm(_ALONE_S)
    for line in lines:
        signal.alarm(0)  # the reader stops while the run is paused or a worker compiles
        answers.write(msgspec.json.encode(line) + b"\n")
        answers.flush()
        signal.alarm(_ALONE_S)
    # Neither nvmlShutdown nor the libraries' exit handlers: both can hang on a lost GPU.
    os._exit(0)
