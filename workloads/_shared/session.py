"""Inference sessions with the library, provider, threads and options that their case asks for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from workbench.contract import Case, WorkloadError, kind_of
from workbench.worker.session_options import ENTRIES, LEVELS

from .openvino_session import OpenVinoSession

CPU = "CPUExecutionProvider"
# Execution providers by the words of a case's mode; without such a word the device decides.
PROVIDERS = {
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "acl": "ACLExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
}
NUMBERED = ("CUDAExecutionProvider", "TensorrtExecutionProvider", "ROCMExecutionProvider")
SILENT = 4  # log severity: fatal messages only, since errors are raised


def provider_of(case: Case) -> str:
    """The execution provider that `case` stands for."""
    named = [PROVIDERS[word] for word in (case.mode or "").split("+") if word in PROVIDERS]
    if named:
        return named[0]
    return CPU if kind_of(case.device).on_host else "CUDAExecutionProvider"


def open_session(
    model: bytes | str, case: Case, profile: Path | None = None, *, shared: bool = False
) -> Any:
    """An inference session as `case` asks for it, or a WorkloadError.

    `model` is its bytes or its file.  A profile goes to a file whose name begins with `profile`.
    ONNX Runtime falls back to the CPU with no more than a warning; here the requested provider must
    be the one in use, and run every node unless the model may be `shared` with the CPU.
    """
    if case.backend == "openvino":
        return OpenVinoSession(model, case)
    onnxruntime = _onnxruntime()
    provider = provider_of(case)
    options = _options(case.mode, case.threads or 1, profile)
    providers: list[Any] = [provider]
    if provider != CPU:
        if not shared:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        if provider in NUMBERED:
            providers = [(provider, {"device_id": int(case.device.partition(":")[2])})]
        if shared:
            providers.append(CPU)
    message = f"onnxruntime {onnxruntime.__version__} has no working {provider}"
    hint = "install onnxruntime-gpu and uninstall onnxruntime, or use --device cpu"
    if provider not in onnxruntime.get_available_providers():
        raise WorkloadError(message, code="provider_fallback", hint=hint)
    try:
        session = onnxruntime.InferenceSession(model, options, providers=providers)
    except Exception as error:
        if provider == CPU:
            raise
        raise WorkloadError(f"{message}: {error}", code="provider_fallback", hint=hint) from error
    if session.get_providers()[0] != provider:
        raise WorkloadError(message, code="provider_fallback", hint=hint)
    return session


def cpu_session(
    model: bytes | str | Path,
    mode: str = "",
    *,
    profile: Path | None = None,
    optimised: Path | None = None,
) -> Any:
    """A session on all usable cores, with the options of `mode`; errors of ONNX Runtime pass.

    A profile goes to a file whose name begins with `profile`, the graph that runs after
    optimisation to the file `optimised`.
    """
    options = _options(mode, usable_cores(), profile)
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    source = model if isinstance(model, bytes) else str(model)
    return _onnxruntime().InferenceSession(source, options, providers=[CPU])


def usable_cores() -> int:
    """The cores that this process may use, as the engine counted them with quotas."""
    count = os.environ.get("OMP_NUM_THREADS", "")
    return int(count) if count.isdecimal() and int(count) else os.cpu_count() or 1


def _onnxruntime() -> Any:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # too late once it is imported
    import onnxruntime

    return onnxruntime


def _options(mode: str | None, threads: int, profile: Path | None = None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads  # 0 would pin threads to cores outside a container's set
    options.inter_op_num_threads = 1
    options.log_severity_level = SILENT
    for word in (mode or "").split("+"):
        if word in LEVELS:
            level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[word])
            options.graph_optimization_level = level
        elif word in ENTRIES:
            options.add_session_config_entry(*ENTRIES[word])
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return options
