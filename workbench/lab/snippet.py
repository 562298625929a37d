"""The lines of Python that run a model the way it was measured."""

from __future__ import annotations

from pathlib import Path

from ..contract import Case
from .entrants import EXTENDED, NO_SPIN
from .facts import ModelFacts


def snippet(facts: ModelFacts, case: Case, file: Path | str, provider: str) -> str:
    """Python that runs `file` once with the threads, options and provider of `case`."""
    words = (case.mode or "").split("+")
    lines = [
        "import numpy as np",
        "import onnxruntime as ort",
        "",
        "options = ort.SessionOptions()",
    ]
    if case.threads is not None:
        lines.append(f"options.intra_op_num_threads = {case.threads}")
    if NO_SPIN in words:
        lines.append('options.add_session_config_entry("session.intra_op.allow_spinning", "0")')
    if EXTENDED in words:
        level = "ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED"
        lines.append(f"options.graph_optimization_level = {level}")
    lines.append(
        f"session = ort.InferenceSession({str(file)!r}, options, providers=[{provider!r}])"
    )
    feeds = ", ".join(
        f"{port.name!r}: np.zeros({tuple(port.run_shape)}, np.{port.type})" for port in facts.inputs
    )
    lines += [f"feeds = {{{feeds}}}  # your data", "outputs = session.run(None, feeds)"]
    return "\n".join(lines)
