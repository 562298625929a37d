"""A scenario: one row of the table, with its question, its limits and its sizes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ..stats.objectives import Objective

Share = Annotated[float, msgspec.Meta(gt=0)]


Count = Annotated[int, msgspec.Meta(ge=1)]


Threads = Count | Literal["all"]


MOST_WEIGHT = 1000.0


class ScenarioError(Exception):
    """A scenario file cannot be used; the message says where and why."""


class Quick(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What --quick replaces."""

    params: dict[str, int | float | str] = {}
    batch: Count | None = None


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The natural size of a scenario, over which its crossover is looked for."""

    name: str  # "batch", or a parameter of the workload
    low: Share
    high: Share


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a pick must keep; None: no limit."""

    latency_ms: Share | None = None  # of one step, median or p99 as counts
    memory_mib: Share | None = None  # peak
    threads: Count | None = None


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    title: str
    question: str
    textbook: Literal["cpu", "gpu", ""] | None  # "": no textbook has an answer; None: no question
    workload: str
    objective: Objective
    precisions: tuple[str, ...]
    params: dict[str, int | float | str] = {}
    batch: Count | None = None
    # precisions that race among themselves and are never picked; `apart` in the file
    reference_only: tuple[str, ...] = msgspec.field(name="apart", default=())
    modes: tuple[str, ...] | None = ()  # None: all
    max_error: Share | None = None
    threads: tuple[Threads, ...] = ("all",)
    weight: Annotated[float, msgspec.Meta(gt=0, le=MOST_WEIGHT)] = 1.0
    source: str = ""  # of the textbook's answer
    on_request: bool = False  # raced by name or with --all only
    limits: Limits = Limits()
    size: Size | None = None
    quick: Quick = Quick()

    @property
    def weighs_memory(self) -> bool:
        """Whether each candidate needs a worker of its own, since libraries keep what they had."""
        return self.objective == "memory" or self.limits.memory_mib is not None

    @property
    def counts_start_up(self) -> bool:
        """Whether the row needs workers of its own, in which nothing is loaded yet."""
        return self.objective == "time_to_result"

    def quickened(self) -> Scenario:
        """The same question at the smaller size of --quick."""
        return msgspec.structs.replace(
            self,
            params={**self.params, **self.quick.params},
            batch=self.quick.batch if self.quick.batch is not None else self.batch,
        )
