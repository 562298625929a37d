"""The rows of the table, read from `assets/scenarios.toml`; that file documents each field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ..assets import path as asset

Share = Annotated[float, msgspec.Meta(gt=0)]
Threads = Annotated[int, msgspec.Meta(ge=1)] | Literal["all"]


class ScenarioError(Exception):
    """A scenario file cannot be used; the message says where and why."""


class Quick(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What --quick replaces."""

    params: dict[str, int | float | str] = {}
    batch: int | None = None


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The natural size of a scenario, over which its crossover is looked for."""

    name: str  # "batch", or a parameter of the workload
    low: Share
    high: Share


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a pick must keep; None: no limit."""

    latency_ms: Share | None = None  # of one step, median or p99 as counts
    memory_mib: Share | None = None  # peak
    threads: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    title: str
    question: str
    textbook: Literal["cpu", "gpu", ""] | None  # "": no textbook has an answer; None: no question
    workload: str
    objective: Literal[
        "throughput", "latency", "latency_p99", "time_to_result", "cost", "memory", "energy"
    ]
    precisions: tuple[str, ...]
    params: dict[str, int | float | str] = {}
    batch: int | None = None
    apart: tuple[str, ...] = ()
    modes: tuple[str, ...] | None = ()  # None: all
    max_error: Share | None = None
    threads: tuple[Threads, ...] = ("all",)
    weight: Share = 1.0
    source: str = ""  # of the textbook's answer
    on_request: bool = False  # raced by name or with --all only
    limits: Limits = Limits()
    size: Size | None = None
    quick: Quick = Quick()

    def quickened(self) -> Scenario:
        """The same question at the smaller size of --quick."""
        return msgspec.structs.replace(
            self,
            params={**self.params, **self.quick.params},
            batch=self.quick.batch if self.quick.batch is not None else self.batch,
        )


class ScenarioFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scenario: list[Scenario]


def load(path: Path | None = None) -> dict[str, Scenario]:
    """Scenarios by id, in the file's order; ScenarioError names the file and what is wrong."""
    path = path or asset("scenarios.toml")
    try:
        rows = msgspec.toml.decode(path.read_bytes(), type=ScenarioFile).scenario
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    found: dict[str, Scenario] = {}
    for row in rows:
        if row.id in found:
            raise ScenarioError(f"{path}: scenario {row.id!r} is there twice")
        found[row.id] = row
    return found
