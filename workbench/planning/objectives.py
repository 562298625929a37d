"""What may count for the user's own model or code, the default first."""

OF_MODELS = ("latency", "throughput", "memory", "energy")
OF_CODE = ("latency", "throughput")
