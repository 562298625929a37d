"""The objectives of a scenario: each gives a block one number, of which smaller is better."""

from typing import Literal, get_args

Objective = Literal[
    "throughput", "latency", "latency_p99", "time_to_result", "cost", "memory", "energy"
]
OBJECTIVES: tuple[str, ...] = get_args(Objective)
# For the user's own model and code, the default first.
OF_MODELS = ("latency", "throughput", "memory", "energy")
OF_CODE = ("latency", "throughput")
HOUR_S = 3600.0
# Standard deviation of the logarithm of a start-up time from process to process; torch's import
# had 0.087 within runs on two cores of a cloud machine (16 starts).
START_UP_SPREAD = 0.1
# The same for the peak memory of a process: 0.008 over five runs of ONNX Runtime on a CNN.
MEMORY_SPREAD = 0.01
OF_A_STEP = ("throughput", "latency", "latency_p99")  # their values are seconds of one step
BY_DEVICE = ("throughput", "cost")  # their samples are timed by a GPU's own clock
UNTIMED = ("memory", "energy")  # known for candidates on the CPU only
SINGLE_STEPS = ("latency", "latency_p99")  # their samples are one step each
