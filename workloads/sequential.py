"""A loop that cannot be batched: each branch depends on the previous iteration's result."""

from collections.abc import Callable
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload
from workbench.worker.libraries import np, torch

from ._shared.torch_task import TorchTask, to_device

HALVINGS = 30  # for each root: from a bracket of 2 to one of 2e-9
BRACKET = (0.0, 2.0)  # holds every root, since 0 < target < 3
BITS = 40  # fraction bits: enough for the start and for all halvings
START_BITS = 20


class SequentialLoop(Workload):
    """Roots of x^3 + x = c by bisection, one after the other: the next c depends on the last root.

    Each halving must know on which side the root lies before the next one can start.  NumPy
    computes with its scalars, `python` with plain floats.  torch computes with tensors of one
    element, whose sign the host reads each time.  With `select` the device makes the choice
    (`torch.where`) and never waits for the host.
    """

    name = "sequential"
    title = "Sequential, data-dependent loop"
    teaches = "Where each step needs the last one's result, latency decides, not throughput."
    parameters = (Parameter("iterations", 300, "halvings, each dependent on the last", 1, 100_000),)
    quick = {"iterations": 90}
    variants = (
        Variant("cpu", "numpy", "fp64", threads=1),
        Variant("cpu", "numpy", "fp64", mode="python", threads=1),
        Variant("cpu", "torch", "fp64", threads=1),
        Variant("gpu", "torch", "fp64"),
        Variant("gpu", "torch", "fp64", mode="select"),
    )

    def work(self, case: Case) -> Work:
        iterations = float(case.params["iterations"])
        return Work(None, None, items=iterations, item="iterations", memory_bytes=1024.0)

    def prepare(self, case: Case, setup: Setup) -> Task:
        # Few digits: sums with a root are then exact, and all candidates take the same branches.
        units = np.random.default_rng(setup.seed).integers(1, 2**START_BITS)
        first = int(units) / 2**START_BITS
        return TorchRoots(case, setup, first) if case.backend == "torch" else Roots(case, first)


def bisect(iterations: int, first: Any, low: Any, high: Any) -> Any:
    """The last point tried after that many halvings, in the arithmetic of the arguments."""
    last, target, bottom, top = low, first, low, high
    for iteration in range(iterations):
        if iteration % HALVINGS == 0:
            target, bottom, top = first + last, low, high
        last = (bottom + top) * 0.5
        if last * last * last + last > target:
            top = last
        else:
            bottom = last
    return last


def select(iterations: int, first: Any, low: Any, high: Any) -> Any:
    """The same on torch tensors: computes both branches and keeps one result."""
    last, target, bottom, top = low, first, low, high
    for iteration in range(iterations):
        if iteration % HALVINGS == 0:
            target, bottom, top = first + last, low, high
        last = (bottom + top) * 0.5
        above = last * last * last + last > target
        bottom, top = torch.where(above, bottom, last), torch.where(above, last, top)
    return last


def exact(first: float, iterations: int) -> float:
    """The same in multiples of 2**-BITS, without any rounding."""
    unit = 1 << BITS
    start = int(first * unit)
    last, target, bottom, top = 0, start, 0, 0
    for iteration in range(iterations):
        if iteration % HALVINGS == 0:
            target, bottom, top = start + last, *(int(end * unit) for end in BRACKET)
        last = (bottom + top) // 2
        if last**3 + last * unit**2 > target * unit**2:
            top = last
        else:
            bottom = last
    return last / unit


class Roots(Task):
    """The search in the interpreter, with NumPy's scalars or plain floats.  Every candidate must
    take exactly the same branches."""

    search: Callable[..., Any] = staticmethod(bisect)
    root: Any = None

    def __init__(self, case: Case, first: float) -> None:
        self.case = case
        kind = float if case.mode == "python" else np.float64
        self.numbers: list[Any] = [kind(number) for number in (first, *BRACKET)]

    def step(self) -> None:
        self.root = self.search(int(self.case.params["iterations"]), *self.numbers)

    def check(self) -> Accuracy:
        self.step()
        expected = exact(float(self.numbers[0]), int(self.case.params["iterations"]))
        error = abs(float(self.root) - expected) / expected
        return Accuracy.within(error, 0.0, "the same in integer arithmetic")


class TorchRoots(Roots, TorchTask):
    """The search in torch, one element at a time."""

    def __init__(self, case: Case, setup: Setup, first: float) -> None:
        TorchTask.__init__(self, case)
        hosted = [torch.tensor(number, dtype=torch.float64) for number in (first, *BRACKET)]
        self.numbers = to_device(setup, case, *hosted)
        if case.mode == "select":
            self.search = select
        self.waits = self.search is bisect  # the host reads a sign at each branch

    def step(self) -> None:
        with torch.inference_mode():
            super().step()


WORKLOAD = SequentialLoop()
