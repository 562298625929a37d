"""The words of a case's mode that set options of an ONNX Runtime session.

Workers set them, the advisor proposes them, and the code that a user takes home repeats them.
Standard library only, since workers may run under a foreign interpreter.
"""

from __future__ import annotations

NO_SPIN, BFLOAT = "nospin", "bf16"
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
