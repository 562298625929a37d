"""Facts about a case: the cost of a step, the accuracy of its result, where its time goes."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Work:
    """The cost of one step, for rates and to refuse cases that do not fit."""

    flops: float | None  # floating-point or integer operations; a multiply-add counts as 2
    bytes_moved: float | None  # least traffic to and from memory
    items: float  # items per step; throughput is items per second
    item: str  # unit of `items`: "samples", "products", "runs"
    memory_bytes: float  # estimated peak; a case whose peak does not fit is not prepared
    transfers: str = ""  # when operands cross to a GPU: "step" (each), "setup" (once), "": mixed
    ranks: int = 1  # processes that share the step, each with a GPU or threads of its own
    host_bytes: float = 0.0  # for a GPU: main memory needed to prepare and check the case


@dataclass(frozen=True, slots=True)
class OutputAccuracy:
    """The accuracy of one output of a model over all checked samples, against the original."""

    name: str
    # Euclidean norm of the difference over that of the original's output; for labels, the share
    # that differs.
    relative_error: float
    cosine: float | None  # cosine of the angle between the two; None if either is all zeros
    # Share of labels that stay, or of rows or pixels by their largest entry; None without classes.
    top1_agreement: float | None
    worst_sample: int  # its place among those checked, whose order is random
    worst_error: float  # relative error of that sample
    # The part with both errors, such as "[:, 4:84]", where numbers of different size are joined.
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The result of a check.

    `metric` is "relative_error" or "disagreement" (less is better), "test_accuracy" (more is), or
    "none" without a comparison, for which `reference` gives the reason.  `passed` is judged by
    `limit`, which depends on the precision.  The advisor also applies the scenario's error limit.
    """

    metric: str  # "relative_error", ...
    value: float  # in the unit of the metric
    reference: str  # name of what it was compared with: "float64", ...
    limit: float  # worst value that passes
    passed: bool
    outputs: list[OutputAccuracy] = field(default_factory=list)  # one per output of a user's model
    # Upper bound (95%) of `value` on unseen inputs from the same source; None: unknown.
    error_bound: float | None = None
    held_out: bool = False  # it was checked on inputs that did not take part in choosing it
    inputs: int = 0  # number of inputs on which a user's model was checked

    @property
    def worst(self) -> float:
        """The value to compare with a limit."""
        return self.value if self.error_bound is None else self.error_bound

    @property
    def listed(self) -> list[OutputAccuracy]:
        """The outputs, if they say more than `value`: several, or one that has parts."""
        return self.outputs if len(self.outputs) > 1 or any(o.part for o in self.outputs) else []

    @classmethod
    def within(cls, error: float, limit: float, reference: str) -> "Accuracy":
        """A relative error, which passes up to `limit`; NaN does not pass."""
        return cls("relative_error", error, reference, limit, error <= limit)

    @classmethod
    def uncompared(cls, why: str) -> "Accuracy":
        return cls("none", 0.0, why, 0.0, True)


@dataclass(frozen=True)
class Operator:
    """One kind of operation in a profile."""

    name: str
    calls: int
    self_s: float  # seconds without those of operations that it called


@dataclass(frozen=True)
class Profile:
    """A short profiled pass.

    `events` are complete events of the Trace Event Format (Google, "Trace Event Format", 2016):
    `name`, `ph`, `ts` and `dur` in microseconds, `pid`, `tid`.
    """

    events: list[dict[str, Any]]
    operators: list[Operator]  # the longest, longest first
    total_s: float  # seconds of all operators, also those not listed, or else of the pass
    device: str  # where that time was spent: "cpu" or "gpu"
    fallback_s: float = 0.0  # part of `total_s` in nodes that a GPU's provider left to the CPU
