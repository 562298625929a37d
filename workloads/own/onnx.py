"""Calls of a user's module that was exported to ONNX, by ONNX Runtime."""

from __future__ import annotations

from typing import Any

from workbench.contract import Accuracy, Case, Setup
from workbench.worker.code import Code

from ..lab.agreement import answer
from ..lab.workload import ModelTask
from . import examine
from .inference import user_check
from .reference import call, reference
from .subject import subject
from .target import user_errors
from .tree import mapped


class ExportedTask(ModelTask):
    """One run of a variant, compared with the module in torch."""

    def __init__(self, case: Case, setup: Setup, code: Code) -> None:
        # First, since it writes the file that the task reads.
        self.right = reference(code, case.batch, str(examine.known(code)["guard"]))
        super().__init__(case, setup)
        self.code = code

    def check(self) -> Accuracy:
        answers = answer(self.session, self.outputs, self.inputs[0])
        if examine.known(self.code)["checks"]:
            self._ask_user(answers)
        return self.right.judge(self.code, self.case.precision, answers)

    def _ask_user(self, answers: list[Any]) -> None:
        """Show the user's own check the answers in the form of the module's output."""
        import torch

        one, waiting = subject(self.code), iter(answers)
        with user_errors(self.code.name):
            within = str(examine.known(self.code)["guard"])
            like = call(one.copy(), one.example(self.case.batch), within=within)
            output = mapped(like, lambda _, tensor: torch.from_numpy(next(waiting)))
            user_check(one.part("check"), output)
