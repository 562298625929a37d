"""The training step of a program's module, as the trainer of PyTorch Lightning calls it: the loss
comes from several modules in it."""

import inspect
from types import FrameType
from typing import Any

from workbench.worker.libraries import torch

from .tree import Example

STEP = "training_step"


def step_of(frame: FrameType | None) -> tuple[Any, Example] | None:
    """The module whose training step makes a call from `frame`, and the inputs of that step; None
    without one, or if the step updates weights itself."""
    while frame is not None:
        if frame.f_code.co_name == STEP:
            names, rest, keywords, _ = inspect.getargvalues(frame)
            known: dict[Any, Any] = frame.f_locals
            count = frame.f_code.co_argcount
            owner, *given = [known[name] for name in names[:count]] or [None]
            if isinstance(owner, torch.nn.Module):
                named = {name: known[name] for name in names[count:]} | known.get(keywords, {})
                is_whole = getattr(owner, "automatic_optimization", True)  # Lightning's
                return (owner, Example((*given, *known.get(rest, ())), named)) if is_whole else None
        frame = frame.f_back
    return None


def stepping(owner: Any) -> Any:
    """A module that makes a training step of `owner` and returns what that returns."""

    class Stepping(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
        def forward(self, *args: Any, **named: Any) -> Any:
            return self.inner.training_step(*args, **named)

        def to(self, *args: Any, **named: Any) -> Any:
            self.inner.to(*args, **named)  # a LightningModule notes its device there
            return self

    made = Stepping()
    made.inner, made.training = owner, owner.training
    return made
