"""The options of `advise --torch`, `--function` and `--command`: the user's own code."""

from __future__ import annotations

from dataclasses import dataclass

from ..text.sanitize import shown
from ..worker.code import COMMAND, TORCH, WORKLOAD, Code
from .scenario import Scenario


@dataclass(frozen=True)
class OwnQuestion:
    """The options that name the user's own code, and say what counts."""

    kind: str  # one of worker.code.KINDS
    target: str
    arguments: tuple[str, ...] = ()  # of a script
    objective: str = "latency"
    max_error: float | None = None  # relative; None: the limit that suits the precision
    train: bool = False
    over: tuple[str, ...] = ()  # "device=cpu,cuda": values of a command's placeholders
    until: str | None = None  # regular expression of the line up to which a command is timed
    pickled: bool = False  # --allow-pickle
    save_best: str | None = None  # folder

    def code(self, folder: str, directory: str, seed: int) -> Code:
        """What the workers get."""
        return Code(
            kind=self.kind,
            target=self.target,
            folder=folder,
            directory=directory,
            seed=seed,
            arguments=self.arguments,
            train=self.train,
            pickled=self.pickled,
            until=self.until,
            max_error=self.max_error,
        )

    def scenario(self) -> Scenario:
        """The scenario before anything is known about the code."""
        name = shown(self.code("", "", 0).name, 60)
        return Scenario(
            id=WORKLOAD,
            title=name,
            question="Where and how should this code run?",
            textbook="",
            workload=WORKLOAD,
            objective=self.objective,  # type: ignore[arg-type]  # checked before
            precisions=("fp32", "tf32", "bf16", "fp16", "int8", "fp64"),
            modes=None,
            params={"code": name} if self.kind != COMMAND else {},
        )

    @property
    def has_module(self) -> bool:
        """Whether it is a torch module."""
        return self.kind == TORCH
