"""The options of `advise --model`: the model, the objective, and the error limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ..text.sanitize import shown
from .objectives import OF_MODELS
from .option_fields import given, set_by, written

if TYPE_CHECKING:
    from .scenario import Scenario

MAX_ERROR = 0.02  # default limit of the relative error


def check_share(option: str, share: float | None) -> None:
    """Raise ValueError for a share that is none."""
    if share is not None and not 0 < share <= 1:  # NaN fails this comparison
        raise ValueError(f"{option} must be above 0, and 1 at most")


@dataclass(frozen=True)
class ModelQuestion:
    """The options of `advise --model`."""

    file: str
    objective: str = set_by("--objective", "latency")
    max_error: float | None = set_by("--max-error", None)
    min_agreement: float | None = set_by("--min-agreement", None)
    inputs: str | None = set_by("--inputs", None)
    shapes: tuple[str, ...] = set_by("--shape", ())  # "name=1,3,224,224"
    save_best: str | None = set_by("--save-best", None)
    option: ClassVar[str] = "--model"

    @property
    def metric(self) -> str:
        """The metric that `limit` applies to."""
        return "relative_error" if self.min_agreement is None else "disagreement"

    @property
    def limit(self) -> float:
        if self.min_agreement is not None:
            return 1.0 - self.min_agreement
        return MAX_ERROR if self.max_error is None else self.max_error

    def run_shapes(self) -> dict[str, list[int]]:
        """The requested shapes by input; ValueError says what is wrong with one."""
        found: dict[str, list[int]] = {}
        for text in self.shapes:
            name, equals, listed = text.rpartition("=")
            try:
                axes = [int(axis) for axis in listed.split(",")]
            except ValueError:
                axes = []
            if not (equals and name and axes) or min(axes) < 1:
                raise ValueError(f"--shape takes NAME=1,3,224,224, not {text!r}")
            if name in found:
                raise ValueError(f"--shape: {name} is given twice")
            found[name] = axes
        return found

    def scenario(self) -> Scenario:
        """The scenario before anything is known about the model."""
        from .scenario import Scenario

        name = shown(Path(self.file).name)
        return Scenario(
            id="model",
            title=name,
            question="Which variant of the model should be shipped, and where should it run?",
            textbook="",
            workload="model",
            objective=self.objective,  # type: ignore[arg-type]  # checked before
            precisions=("fp32", "fp16", "int8"),
            params={"file": name},
            max_error=self.limit,
        )

    def check(self) -> None:
        """Raise ValueError for options that no model could satisfy."""
        if not self.file:
            raise ValueError("--model takes the path of an .onnx file")
        for option, path in (("--model", self.file), ("--save-best", self.save_best or "")):
            try:
                path.encode()
            except UnicodeEncodeError:
                why = "is not UTF-8, and ONNX Runtime takes no other name; choose another"
                raise ValueError(f"{option}: the name {path} {why}") from None
        if self.objective not in OF_MODELS:
            raise ValueError(f"--objective is one of {', '.join(OF_MODELS)}")
        if self.max_error is not None and self.min_agreement is not None:
            raise ValueError("--max-error and --min-agreement exclude each other")
        check_share("--max-error", self.max_error)
        check_share("--min-agreement", self.min_agreement)
        self.run_shapes()

    def options(self) -> Iterator[str]:
        """The command-line options that ask the same."""
        return written({"--model": self.file, **given(self)})
