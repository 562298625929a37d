"""The user's own code as a workload.

It has no name on the command line: `advise --torch`, `--function` and `--command` plan its cases,
and `Setup.files["code"]` says what to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from workbench.contract import Case, Setup, Task, Variant, Work, Workload, WorkloadError
from workbench.worker.code import TORCH, Code
from workbench.worker.code import WORKLOAD as NAME


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
        steps = int(case.params.get("batches", 1))  # in one timed step of a training
        return Work(None, None, items=steps * (case.batch or 1), item=item, memory_bytes=0.0)

    def prepare(self, case: Case, setup: Setup) -> Task:
        code = Code.of(setup.files["code"])
        if case.backend == "onnxruntime":
            from . import onnx

            return onnx.prepare(case, setup, code)
        if code.kind == TORCH:
            from . import inference, training

            if code.train:
                return training.prepare(case, setup, code)
            return inference.prepare(case, setup, code)
        raise WorkloadError(f"{code.kind} code cannot be run")

    def consult(self, question: str, **details: Any) -> dict[str, Any]:
        """Answer "examine", "export", "breaks" or "save"; see the modules of these names."""
        code = Code.of(details.pop("code"))
        return QUESTIONS[question](code, **details)


def _examine(code: Code) -> dict[str, Any]:
    from . import examine

    return examine.module(code)


def _export(code: Code, batches: list[int | None]) -> dict[str, Any]:
    """Export for all `batches`, and leave inputs and reference outputs of each for the lab."""
    from . import examine, export
    from .reference import reference

    one, within = subject_of(code), str(examine.known(code)["guard"])
    made = export.export(code, one, batches[0], next(iter(batches[1:]), None))
    for batch in batches if made["dynamic"] else batches[:1]:
        export.hand_over(
            code, one, batch, made["inputs"], lambda b: reference(code, b, within).outputs
        )
    return made


def _breaks(code: Code, batch: int | None) -> dict[str, Any]:
    from . import export

    return export.breaks(subject_of(code), batch)


def _save(code: Code, **details: Any) -> dict[str, Any]:
    from . import save

    return save.save(code, subject_of(code) if code.kind == TORCH else None, **details)


def subject_of(code: Code) -> Any:
    from .subject import subject

    return subject(code)


QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "examine": _examine,
    "export": _export,
    "breaks": _breaks,
    "save": _save,
}


WORKLOAD = Own()
