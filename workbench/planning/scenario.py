"""A scenario: one row of the advisor's table with its question, limits and sizes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ..contract import MOST_BATCH, MOST_THREADS
from ..stats.objectives import Objective

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Batch = Annotated[int, msgspec.Meta(ge=1, le=MOST_BATCH)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=MOST_THREADS)] | Literal["all"]
Text = Annotated[str, msgspec.Meta(max_length=200)]
MOST_WEIGHT = 1000.0
Weight = Annotated[float, msgspec.Meta(gt=0, le=MOST_WEIGHT)]


class Quick(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters, batch and weight that apply under --quick."""

    params: dict[str, int | float | str] = {}
    batch: Batch | None = None
    weight: Weight | None = None


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The natural size of a scenario, over which its crossover is searched."""

    name: str  # "batch", or a parameter of the workload
    low: Positive
    high: Positive


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits that a pick must meet; None: no limit."""

    latency_ms: Positive | None = None  # for a step: its p99 if that is the objective, else median
    memory_mib: Positive | None = None  # peak memory
    threads: Count | None = None


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row as `assets/scenarios.toml` documents it, field by field."""

    id: str
    title: Annotated[str, msgspec.Meta(max_length=60)]
    question: Text
    textbook: Literal["cpu", "gpu", ""] | None  # the usual advice; "": none; None: a plain run
    workload: str
    objective: Objective
    precisions: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    params: dict[str, int | float | str] = {}
    batch: Batch | None = None
    # precisions that race among themselves and are never picked; `apart` in the file
    reference_only: tuple[str, ...] = msgspec.field(name="apart", default=())
    modes: tuple[str, ...] | None = ()  # None: all
    gpu_modes: tuple[str, ...] = ()  # further ones, on GPUs only
    max_error: Positive | None = None
    threads: Annotated[tuple[Threads, ...], msgspec.Meta(min_length=1)] = ("all",)
    weight: Weight = 1.0
    source: Text = ""  # where the usual advice comes from
    on_request: bool = False  # races only by name or with --all
    limits: Limits = Limits()
    size: Size | None = None
    quick: Quick = Quick()

    @property
    def owes_verdict(self) -> bool:
        """Whether it races for an answer; the row of a plain run does not."""
        return self.textbook is not None

    @property
    def weighs_memory(self) -> bool:
        """Whether memory counts; each candidate then needs its own worker, since libraries keep
        memory that they have used."""
        return self.objective == "memory" or self.limits.memory_mib is not None

    @property
    def counts_start_up(self) -> bool:
        """Whether start-up counts; the row then needs fresh workers, with nothing loaded."""
        return self.objective == "time_to_result"

    @property
    def measures_tails(self) -> bool:
        return self.objective == "latency_p99"

    def modes_on(self, device_kind: str) -> tuple[str | None, ...]:
        """The admitted modes on a kind of device; None is the plain one."""
        return (None, *(self.modes or ()), *(self.gpu_modes if device_kind == "gpu" else ()))

    def quickened(self) -> Scenario:
        """The same scenario with its parameters, batch and weight for --quick."""
        return msgspec.structs.replace(
            self,
            params={**self.params, **self.quick.params},
            batch=self.quick.batch if self.quick.batch is not None else self.batch,
            weight=self.quick.weight if self.quick.weight is not None else self.weight,
        )
