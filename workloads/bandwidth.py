"""Memory bandwidth by two kernels of STREAM (McCalpin 1995), in torch."""

from collections.abc import Callable
from typing import Any, ClassVar

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload
from workbench.worker.libraries import torch

from ._shared.network import worst
from ._shared.torch_task import TorchTask, to_device

ARRAYS = {"copy": 2, "triad": 3}
SCALAR = 3.0
FLOAT_BYTES = 4
PERIOD = 1 << 22  # elements drawn; arrays repeat them
AT_ONCE = 1 << 14  # elements checked at once: larger temporary arrays are slow to allocate


class Bandwidth(Workload):
    """copy: a = b; triad: a = b + 3 c.  Arrays that fit into a cache measure that cache.  Bytes are
    counted as in STREAM: each array once, without the cache lines that stores may fetch."""

    name = "bandwidth"
    title = "Memory bandwidth"
    teaches = "Most operations wait for memory, not for arithmetic; the size decides which memory."
    parameters = (
        Parameter("kernel", "triad", "operation", choices=tuple(ARRAYS)),
        Parameter("mib", 256.0, "size of each array", 0.004, 65_536, unit="MiB"),
    )
    quick = {"mib": 64.0}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("cpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32"),
    )

    def work(self, case: Case) -> Work:
        kernel = str(case.params["kernel"])
        moved = float(ARRAYS[kernel] * elements_of(case) * FLOAT_BYTES)
        host = moved if case.device_kind == "gpu" else 0.0  # where the arrays are drawn
        return Work(None, moved, items=moved, item="bytes", memory_bytes=moved, host_bytes=host)

    def prepare(self, case: Case, setup: Setup) -> Task:
        return BandwidthTask(case, setup)


def elements_of(case: Case) -> int:
    return max(1, int(float(case.params["mib"]) * 2**20) // FLOAT_BYTES)


class BandwidthTask(TorchTask):
    checks_latest = True

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        self.activate()  # memory is placed near the core that writes it first
        generator = torch.Generator().manual_seed(setup.seed)
        with setup.phase("build"):
            hosted = [
                random_array(elements_of(case), generator)
                for _ in range(ARRAYS[str(case.params["kernel"])])
            ]
        self.target, *self.sources = to_device(setup, case, *hosted)

    def step(self) -> None:
        if len(self.sources) == 1:
            self.target.copy_(self.sources[0])
        else:
            torch.add(self.sources[0], self.sources[1], alpha=SCALAR, out=self.target)

    def check(self) -> Accuracy:
        arrays = self.target, *self.sources
        place = self.device if self.device.type == "cuda" else "cpu"  # other GPUs may lack FP64
        return compared(
            lambda part: [each[part].to(place).double() for each in arrays],
            len(self.target),
            AT_ONCE if place == "cpu" else PERIOD,
        )


def compared(wide: Callable[[slice], list[Any]], length: int, at_once: int = AT_ONCE) -> Accuracy:
    """The accuracy of a kernel; `wide` gives a part of target and sources in float64."""
    errors = []
    for start in range(0, length, at_once):
        found, b, *c = wide(slice(start, start + at_once))
        expected = b + SCALAR * c[0] if c else b
        errors.append(float(abs(found - expected).max() / abs(expected).max()))
    return Accuracy.within(worst(errors), 1e-6, "float64")


def random_array(size: int, generator: Any) -> Any:
    """Normal random numbers, repeated after a few million to save time; all threads write."""
    drawn = torch.randn(min(size, PERIOD), generator=generator)
    array, whole = torch.empty(size), size - size % len(drawn)
    array[:whole].view(-1, len(drawn)).copy_(drawn)
    array[whole:].copy_(drawn[: size - whole])
    return array


WORKLOAD = Bandwidth()
