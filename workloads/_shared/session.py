"""ONNX Runtime sessions that do what their case says, on the device and threads it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from workbench.contract import Case, WorkloadError, kind_of

CPU = "CPUExecutionProvider"
# By the words of a case's mode; without one the device decides.
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
LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}  # otherwise all
CONFIGURED = {
    "nospin": ("session.intra_op.allow_spinning", "0"),  # threads that wait sleep at once
    "bf16": ("mlas.enable_gemm_fastmath_arm64_bfloat16", "1"),  # products of FP32, on ARM
}
NUMBERED = ("CUDAExecutionProvider", "TensorrtExecutionProvider", "ROCMExecutionProvider")


def provider_of(case: Case) -> str:
    """The execution provider that `case` stands for."""
    named = [PROVIDERS[word] for word in (case.mode or "").split("+") if word in PROVIDERS]
    if named:
        return named[0]
    return CPU if kind_of(case.device).on_host else "CUDAExecutionProvider"


def open_session(
    model: bytes | str, case: Case, profile: Path | None = None, *, shared: bool = False
) -> Any:
    """An inference session on the provider, device, threads and options of `case`, or a
    WorkloadError.

    `model` is its bytes or its file.  A profile goes to a file whose name begins with `profile`.
    ONNX Runtime falls back to the CPU with no more than a warning; here the provider asked for must
    be the one used, and run every node unless the model may be `shared` with the CPU.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # too late once it is imported
    import onnxruntime

    provider, options = provider_of(case), _options(case)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    providers: list[Any] = [provider]
    if provider != CPU:
        if not shared:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        if provider in NUMBERED:
            providers = [(provider, {"device_id": int(case.device.partition(":")[2])})]
        if shared:
            providers.append(CPU)
    message = f"onnxruntime {onnxruntime.__version__} has no working {provider}"
    hint = "install onnxruntime-gpu (and not onnxruntime beside it), or use --device cpu"
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


def _options(case: Case) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case.threads or 1  # 0 would pin threads to cores of its choice
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised; the log is for worse
    for word in (case.mode or "").split("+"):
        if word in LEVELS:
            level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[word])
            options.graph_optimization_level = level
        elif word in CONFIGURED:
            options.add_session_config_entry(*CONFIGURED[word])
    return options
