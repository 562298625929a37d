"""The user's own code as a workload.

It has no name on the command line: `advise --torch`, `--function` and `--command` plan its cases,
and `Setup.files["code"]` says what to run.
"""

from typing import Any, ClassVar

from workbench.contract import Case, Setup, Task, Variant, Work, Workload
from workbench.text.sanitize import shown
from workbench.worker.code import COMMAND, FUNCTION, OWN, TORCH, Code
from workbench.worker.session_options import ONNX_BACKENDS

from . import command, examine, export, function, inference, save, training
from .subject import subject_of
from .training_parts import called_with


class Own(Workload):
    """One call of a module or function, one training step, or one run of a command."""

    name = OWN
    title = "Your own code"
    teaches = "Only a race of your own code shows where it runs best."
    latency = True
    isolates = True
    variants: ClassVar[tuple[Variant, ...]] = ()  # the engine chooses

    def work(self, case: Case) -> Work:
        """Its operations and memory are unknown."""
        item = "samples" if case.batch else "runs"
        when = "step" if case.backend in ("torch", *ONNX_BACKENDS) else ""
        return Work(None, None, case.batch or 1, item, memory_bytes=0.0, transfers=when)

    def prepare(self, case: Case, setup: Setup) -> Task:
        code = Code.of(setup.files["code"])
        if code.kind == FUNCTION:
            with setup.phase("build"):
                return function.FunctionTask(case, code)
        if code.kind == COMMAND:
            command.adopt_processes()
            return command.CommandTask(code, case)
        if case.backend in ONNX_BACKENDS:
            return inference.ExportedTask(case, setup, code)
        if code.train:
            return training.Training(case, setup, code, subject_of(code))
        return inference.ModuleTask(case, setup, code)

    def consult(self, question: str, **details: Any) -> dict[str, Any]:
        """Answer "examine", "export", "breaks" or "save"."""
        code = Code.of(details.pop("code"))
        answer: dict[str, Any] = getattr(self, f"_{question}")(code, **details)
        return answer

    def _examine(self, code: Code) -> dict[str, Any]:
        kinds = {TORCH: examine.module, FUNCTION: function.examine, COMMAND: command.examine}
        return {"kind": code.kind, "name": shown(code.name), **kinds[code.kind](code)}

    def _export(self, code: Code, batches: list[int | None]) -> dict[str, Any]:
        """Export for all `batches` where that works, with inputs for each."""
        export.preload(code.directory)
        subject = subject_of(code)
        expected = inference.reference_of(code, batches[0])
        made = export.export(code, subject, batches[0], expected, resizes=len(batches) > 1)
        for batch in batches if made["dynamic"] else batches[:1]:
            export.hand_over(code, subject, batch, made["inputs"])
        return made

    def _breaks(self, code: Code, batch: int | None) -> dict[str, Any]:
        subject = subject_of(code)
        example, _ = called_with(code, subject, batch)
        within = "no_grad" if code.train else str(examine.known(code)["guard"])
        return export.breaks(subject, example, within)

    def _save(self, code: Code, **details: Any) -> dict[str, Any]:
        if details["onnx_file"]:
            export.preload(code.directory)
        return save.save(code, subject_of(code) if code.kind == TORCH else None, **details)


WORKLOAD = Own()
