"""Sizes at which a step of each workload takes a moment."""

from collections.abc import Mapping

from workbench.contract import ParameterValue, Workload

SMALL = {
    "matmul": {"n": 48},
    "gemm": {"m": 12, "n": 40, "k": 24},
    "train_cnn": {"image": 16, "loaders": 1},
    "infer_cnn": {"image": 16},
    "train_resnet": {"blocks": 1},
    "train_gpt": {"tokens": 16, "width": 128, "blocks": 1},
    "train_mlp": {"samples": 200, "steps": 5},
    "train_mlp_deep": {"samples": 200, "epochs": 3},
    "conv_layers": {"image": 8},
    "forest": {"trees": 10, "depth": 4},
    "digits": {},
    "digits_to_accuracy": {"target": 0.9},
    "infer_mlp": {"width": 64},
    "infer_encoder": {"tokens": 8},
    "matmul_cold": {"n": 64},
    "bandwidth": {"mib": 0.1},
    "transfer": {"mib": 0.1},
    "launch": {},
    "numa": {"mib": 1.0},
    "sequential": {"iterations": 90},
    "data_loading": {"image": 32, "batches": 3, "loaders": 1},
    "preprocessing": {"width": 60, "height": 40, "image": 24},
    "scaling": {"width": 64},
    "train_trees": {"rows": 1000, "trees": 10},
}
BATCH = {
    "gemm": 1,
    "train_cnn": 8,
    "train_resnet": 4,
    "train_gpt": 2,
    "infer_cnn": 1,
    "conv_layers": 1,
    "forest": 16,
    "digits": 64,
    "digits_to_accuracy": 64,
    "infer_mlp": 4,
    "data_loading": 4,
    "preprocessing": 2,
    "scaling": 8,
    "infer_encoder": 2,
}


def tuning_of(workload: Workload, given: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    """Its tuning parameters, with their given or default values."""
    return {p.name: given.get(p.name, p.default) for p in workload.parameters if p.tuning}
