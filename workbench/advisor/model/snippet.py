"""Python code that runs a model as it was measured."""

from pathlib import Path

from ...contract import Case
from ...records.model import ModelFacts
from ...worker import onnx_gpu
from ...worker.session_options import ENTRIES, LEVELS, openvino_settings

CALLS = {"onnxruntime": "session.run(None, feeds)", "openvino": "[*session(feeds).values()]"}


def snippet(facts: ModelFacts, case: Case, file: Path | str, provider: str) -> str:
    """Python that runs `file` once with the threads, options and provider of `case`."""
    lines = ["import numpy as np", *session_lines(case, file, provider)]
    feeds = ", ".join(
        f"{port.name!r}: np.zeros({tuple(port.run_shape)}, {port.type!r})" for port in facts.inputs
    )
    lines += [f"feeds = {{{feeds}}}  # your data", f"outputs = {CALLS[case.backend]}"]
    return "\n".join(lines)


def session_lines(case: Case, file: Path | str, provider: str) -> list[str]:
    """Python that opens `file` as `session`, with the threads and options of `case`."""
    if case.backend == "openvino":
        lines = ["import openvino", "", "settings = {"]
        lines += [f"    {name!r}: {value!r}," for name, value in openvino_settings(case).items()]
        return [*lines, "}", f"session = openvino.compile_model({str(file)!r}, 'CPU', settings)"]
    words = case.mode_words
    lines = ["import onnxruntime as ort", "", "options = ort.SessionOptions()"]
    if case.threads is not None:
        lines.append(f"options.intra_op_num_threads = {case.threads}")
    entries = [ENTRIES[word] for word in ENTRIES if word in words]
    lines += [f"options.add_session_config_entry({key!r}, {value!r})" for key, value in entries]
    levels = [f"ort.GraphOptimizationLevel.{LEVELS[word]}" for word in LEVELS if word in words]
    lines += [f"options.graph_optimization_level = {level}" for level in levels]
    if provider in (onnx_gpu.CUDA, onnx_gpu.TENSORRT):
        lines.append("ort.preload_dlls()  # CUDA's libraries that came with torch or onnxruntime")
    if provider == onnx_gpu.TENSORRT:
        lines += ["import contextlib", "with contextlib.suppress(ImportError):"]
        lines.append("    import tensorrt  # its libraries, if they came from pip")
    providers = repr([provider])
    if provider != onnx_gpu.CPU:
        providers = repr(onnx_gpu.providers(provider, case, shared=True))
    lines.append(f"session = ort.InferenceSession({str(file)!r}, options, providers={providers})")
    return lines
