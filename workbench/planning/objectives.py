"""The objectives for the user's own model and code, the default first."""

OF_MODELS = ("latency", "throughput", "memory", "energy")
OF_CODE = ("latency", "throughput")
