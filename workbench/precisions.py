"""The number formats that candidates compute in."""

# Bytes of one element.  TF32 is FP32 in memory.
PRECISION_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
PRECISIONS = tuple(PRECISION_BYTES)
HALF = ("bf16", "fp16")  # precisions of 16 bits
REDUCED = (*HALF, "int8")  # precisions that a CPU may have to emulate
# The first CUDA compute capability with each precision (Ampere; Ada and Hopper for FP8), and the
# first that Triton compiles for.
LEAST_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9), "compile": (7, 0)}
