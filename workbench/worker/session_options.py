"""Options of ONNX Runtime and OpenVINO sessions, by the threads, precision and mode of a case.

Workers set them, the advisor proposes them, and the code to paste repeats them.
"""

from typing import Any

from ..contract import Case

OPENVINO = "openvino"
ONNX_BACKENDS = ("onnxruntime", OPENVINO)  # backends that run ONNX models
NO_SPIN, BFLOAT = "nospin", "bf16"
PRECISION = "INFERENCE_PRECISION_HINT"  # OpenVINO's name for it
UNOPTIMISED, BASIC, EXTENDED = "none", "basic", "extended"

# Session configuration: key and value.
ENTRIES = {
    NO_SPIN: ("session.intra_op.allow_spinning", "0"),  # waiting threads sleep at once
    BFLOAT: ("mlas.enable_gemm_fastmath_arm64_bfloat16", "1"),  # FP32 products in BF16, on ARM
}
# Members of GraphOptimizationLevel; without such a word all optimisations run.
LEVELS = {
    UNOPTIMISED: "ORT_DISABLE_ALL",
    BASIC: "ORT_ENABLE_BASIC",
    EXTENDED: "ORT_ENABLE_EXTENDED",
}


def openvino_settings(case: Case) -> dict[str, Any]:
    """Properties of OpenVINO's plugins: one stream, so that one call has all threads.

    Without a precision hint the CPU plugin computes FP32 models in BF16 if the processor has
    instructions for it, and the GPU plugin in FP16.  Mode "auto" leaves that to OpenVINO.  Source:
    its documentation of CPU, GPU and AUTO devices (2026.4).
    """
    if case.mode == "auto":
        return {"DEVICE_PROPERTIES": {"CPU": {"INFERENCE_NUM_THREADS": case.threads or 1}}}
    if case.computes_on != "cpu":
        hint = "f16" if case.precision == "fp16" else "f32"
        return {"PERFORMANCE_HINT": "LATENCY", PRECISION: hint}
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": case.threads or 1,
        PRECISION: "bf16" if BFLOAT in (case.precision, case.mode) else "f32",
        "ENABLE_CPU_PINNING": False,  # pinned threads suffer if other programs use the same cores
    }
