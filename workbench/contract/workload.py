"""The interface of a kind of work."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from ..errors import WorkloadError
from .case import Case, Host, Parameter, ParameterValue, ParameterValues, Variant
from .result import Work
from .task import Setup, Task


class Workload(ABC):
    """One kind of work: its description, without imports, and its preparation in a worker."""

    name: ClassVar[str]
    title: ClassVar[str]
    teaches: ClassVar[str]  # the lesson in one sentence
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    default_batch: ClassVar[int | None] = None
    quick: ClassVar[Mapping[str, ParameterValue]] = {}  # smaller values, "batch" too, for --quick
    small: ClassVar[Mapping[str, int]] = {}  # the same for `small_probe`
    latency: ClassVar[bool] = False  # every sample is one step, so that tails are real
    # It has 3x3 convolutions, which Winograd's method does with fewer operations than counted.
    convolves: ClassVar[bool] = False
    # A case gets a worker of its own if it is compiled, since compiling a user's code may crash or
    # hang, or if it has loader processes, which are frozen only with their worker.
    isolates: ClassVar[bool] = False
    variants: ClassVar[tuple[Variant, ...]]

    @property
    def usual_objective(self) -> Literal["latency_p99", "throughput"]:
        """The objective of a row without a verdict."""
        return "latency_p99" if self.latency else "throughput"

    @abstractmethod
    def work(self, case: Case) -> Work:
        """The cost of one step of `case`."""

    @abstractmethod
    def prepare(self, case: Case, setup: Setup) -> Task:
        """Load `case`; WorkloadError if the library or device cannot do it."""

    def consult(self, question: str, **details: Any) -> dict[str, Any]:
        """Answer a question of the engine in a worker, such as the facts about a user's code;
        WorkloadError if there is no answer."""
        raise WorkloadError(f"{self.name} answers no questions")

    def small_probe(self, case: Case) -> Case | None:
        """The same job at a size that is quick even in an emulated precision; by default `small` in
        BF16.  None if steps are short anyway.

        A precision that the processor lacks can be 200 times slower, so it is tried at this size,
        against FP32, before the case itself is prepared.
        """
        sizes = {"batch": case.batch or 1, **case.params}
        larger = {name: least for name, least in self.small.items() if int(sizes[name]) > least}
        if case.precision != "bf16" or not larger:
            return None
        params = {name: larger.get(name, value) for name, value in case.params.items()}
        return replace(case, batch=larger.get("batch", case.batch), params=params)

    def tuning_values(self, parameter: str, host: Host, device_kind: str) -> ParameterValues:
        """The values of a tuning parameter that race unless the user names some; () if it does not
        matter on this kind of device."""
        return [next(p.default for p in self.parameters if p.name == parameter)]

    def values(self, given: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
        """The parameters that describe the job, with their given or default values."""
        return {p.name: given.get(p.name, p.default) for p in self.parameters if not p.tuning}
