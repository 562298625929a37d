"""The user's own code as a workload.

It has no name on the command line: `advise --torch`, `--function` and `--command` plan its cases,
and `Setup.files["code"]` says what to run.
"""

from __future__ import annotations

from typing import Any, ClassVar

from workbench.contract import Case, Setup, Task, Variant, Work, Workload, WorkloadError
from workbench.worker.code import COMMAND, FUNCTION, Code
from workbench.worker.code import WORKLOAD as NAME

from . import command, function


class Own(Workload):
    """One call of a module or function, one training step, or one run of a command."""

    name = NAME
    title = "Your own code"
    teaches = "Where your own code runs best takes a race of your own code to answer."
    latency = True
    compiles_apart = True
    variants: ClassVar[tuple[Variant, ...]] = ()  # the engine chooses

    def work(self, case: Case) -> Work:
        """Nothing is known about its operations and memory."""
        item = "samples" if case.batch else "runs"
        return Work(None, None, items=case.batch or 1, item=item, memory_bytes=0.0)

    def prepare(self, case: Case, setup: Setup) -> Task:
        code = Code.of(setup.files["code"])
        if code.kind == FUNCTION:
            return function.prepare(case, setup, code)
        if code.kind == COMMAND:
            return command.prepare(case, code)
        raise WorkloadError(f"{code.kind} code cannot be run")

    def consult(self, question: str, **details: Any) -> dict[str, Any]:
        code = Code.of(details.pop("code"))
        if (question, code.kind) == ("examine", FUNCTION):
            return function.examine(code)
        if (question, code.kind) == ("examine", COMMAND):
            return command.examine(code)
        raise WorkloadError(f"{code.kind} code answers no {question}")


WORKLOAD = Own()
