"""The child process that asks the driver.  It answers the question in its arguments in JSON lines,
each written as soon as it is known, so that a crash loses no earlier answer.

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

# A child that hangs in the driver must not outlive its parent forever.
_ALONE_S = 120


def main(arguments: list[str]) -> None:
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
    """Write to the original standard output; output of libraries goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.alarm(_ALONE_S)
    for line in lines:
        signal.alarm(0)  # no time limit for the reader, which may pause
        answers.write(msgspec.json.encode(line) + b"\n")
        answers.flush()
        signal.alarm(_ALONE_S)
    # Skip nvmlShutdown and exit handlers, which can hang on a lost GPU.
    os._exit(0)
