"""A user's model or code in sentences: its facts, its variants, and what was left out or saved."""

from collections.abc import Iterator, Sequence

from ...advisor.ranking import error_text
from ...records.code import CodeFacts, CodeInput, SavedCode
from ...records.model import Built, ModelFacts, Port, Saved
from ...records.verdict import Verdict
from ...report.report import Report
from ...text import units

MOST_NAMED = 4  # nodes left in FP32 that are listed by name
MOST_INPUTS = 8  # listed inputs: a cache may hold hundreds
OF_CODE = {"onnx": "ONNX Runtime", "int8": "INT8", "compile": "torch.compile"}  # names of left-outs
KINDS = {"torch": "PyTorch", "function": "Python function", "command": "runs of a command"}


def model_and_inputs(facts: ModelFacts) -> Iterator[str]:
    """The model in a line, and a line for each of its inputs."""
    parts = [
        units.size(facts.size_bytes),
        *([f"opset {facts.opset}"] if facts.opset else []),  # none for ai.onnx.ml alone
        *([f"{units.count(facts.parameters)} parameters"] if facts.parameters else []),
        "already quantised" if facts.quantised else facts.precision,
    ]
    if facts.multiply_adds:  # none in trees
        parts.append(f"{units.count(facts.multiply_adds)} multiply-adds a run")
    if facts.batch is not None:
        parts.append(f"batch {facts.batch}")
    yield f"{facts.file}: {', '.join(parts)}"
    yield from _inputs([(port, port.run_shape, port.values) for port in facts.inputs])
    if facts.check_samples:
        ways = f"{facts.calibration_samples} calibrate, {facts.samples} select"
        if facts.folds:
            ways = f"{facts.samples} calibrate and select, cross-validated in {facts.folds} parts"
        yield f"samples, split at random: {ways}, {facts.check_samples} are held out to check"
    if facts.uncompared:
        listed, remedy = ", ".join(facts.uncompared), "only tensors can (skl2onnx: zipmap=False)"
        yield f"outputs that cannot be compared: {listed}; {remedy}"
    if facts.control_flow:
        inside = ", ".join(facts.control_flow)
        yield f"the static quantiser skips the graphs inside {inside}"


def built_text(built: Built) -> str:
    """`3.43 MiB in 2.46 s, products 98% INT8`, or why it could not be made."""
    if built.reason is not None:
        return f"could not be made: {built.reason.dashed}"
    text = f"{units.size(built.size_bytes)} in {units.duration(built.seconds)}"
    if built.coverage is not None:
        text += f", products {built.coverage:.0%} INT8"
    if built.excluded:
        named = ", ".join(built.excluded[:MOST_NAMED])
        more = f" and {rest} more" if (rest := len(built.excluded) - MOST_NAMED) > 0 else ""
        text += f", in FP32 {named}{more}"
    return text


def left_out(report: Report, verdict: Verdict | None) -> dict[str, str]:
    """The variants and devices that were not tried, each with the reason."""
    subject, model, machine = report.subject, report.model, report.machine
    if subject is None:
        return {}
    names = OF_CODE if model is None else {}
    found = {names.get(name, name): why for name, why in subject.left_out.items()}
    if verdict is not None and verdict.pick is not None and verdict.best_gpu is None:
        from ...machine.nvidia.gpus import no_gpu  # its imports would delay the first picture

        absent = no_gpu(machine) if machine is not None else None
        # If there is a GPU, the verdict's first reason says why it took no part.
        found["GPU"] = absent.dashed if absent else verdict.reasons[0].rstrip(".")
    if model is not None and model.facts.unquantisable is not None:
        found.setdefault("int8", model.facts.unquantisable.dashed)
    return found


def saved_text(saved: Saved | SavedCode) -> str:
    """The file or folder of --save-best, or why it could not be written."""
    place = saved.file if isinstance(saved, Saved) else saved.folder
    if saved.reason is not None:
        is_there = isinstance(saved, Saved) and saved.size_bytes is not None
        failed = "was written, but not checked" if is_there else "was not written"
        return f"{place} {failed}: {saved.reason.dashed}"
    if isinstance(saved, SavedCode):
        return f"{place}: {', '.join(saved.files)}"
    size = f", {units.size(saved.size_bytes)}" if saved.size_bytes is not None else ""
    again = ""
    if saved.difference is not None:
        differ = f"differ by {error_text(saved.difference)}"
        again = f"; reloaded, its results {differ if saved.difference else 'are the same'}"
    return f"{place}{size}{again}"


def code_facts(facts: CodeFacts) -> Iterator[str]:
    """The code in a line, and a line for each of its inputs."""
    parts = [KINDS.get(facts.kind, facts.kind)]
    if facts.parameters is not None:
        parts += [f"{units.count(facts.parameters)} parameters", facts.precision]
    if facts.batch is not None:
        parts.append(f"batch {facts.batch}")
    if facts.reference:
        parts.append(f"compared with {facts.reference}")
    yield f"{facts.name}: {', '.join(parts)}"
    yield from _inputs([(each, each.shape, "") for each in facts.inputs])


def _inputs(found: Sequence[tuple[Port | CodeInput, Sequence[int], str]]) -> Iterator[str]:
    """A line for each of the first inputs, with its shape and the origin of its values."""
    for each, shape, origin in found[:MOST_INPUTS]:
        values = f", {origin}" if origin else ""
        yield f"input {each.name} {each.type} [{','.join(map(str, shape))}]{values}"
    if (more := len(found) - MOST_INPUTS) > 0:
        yield f"and {units.counted(more, 'further input')}"
