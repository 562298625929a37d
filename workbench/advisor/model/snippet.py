"""The lines of Python that run a model the way it was measured."""

from __future__ import annotations

from pathlib import Path

from ...contract import Case
from ...records.model import ModelFacts
from .candidates import BASIC, BFLOAT, EXTENDED, NO_SPIN

ENTRIES = {  # as `workloads._shared.session` sets them
    NO_SPIN: ("session.intra_op.allow_spinning", "0"),
    BFLOAT: ("mlas.enable_gemm_fastmath_arm64_bfloat16", "1"),
}
LEVELS = {BASIC: "ORT_ENABLE_BASIC", EXTENDED: "ORT_ENABLE_EXTENDED"}


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
    lines += [
        f"options.add_session_config_entry({key!r}, {value!r})"
        for word, (key, value) in ENTRIES.items()
        if word in words
    ]
    lines += [
        f"options.graph_optimization_level = ort.GraphOptimizationLevel.{level}"
        for word, level in LEVELS.items()
        if word in words
    ]
    lines.append(
        f"session = ort.InferenceSession({str(file)!r}, options, providers=[{provider!r}])"
    )
    feeds = ", ".join(
        f"{port.name!r}: np.zeros({tuple(port.run_shape)}, {port.type!r})" for port in facts.inputs
    )
    lines += [f"feeds = {{{feeds}}}  # your data", "outputs = session.run(None, feeds)"]
    return "\n".join(lines)
