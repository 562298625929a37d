"""The recipe of a model variant, shared by the engine and the lab's worker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CALIBRATIONS = {"minmax": "MinMax", "percentile": "Percentile", "entropy": "Entropy"}


@dataclass(frozen=True)
class Recipe:
    """How to make a variant from the user's model; the default keeps the file unchanged.

    With `scope` "products", only convolutions and products with constant weights are quantised
    (dynamic: no convolutions); with "all", also the operators between them (dynamic: convolutions).
    `excluded` names nodes that stay in FP32.
    """

    precision: str = "fp32"  # "fp32", "fp16", "int8"
    method: str | None = None  # "dynamic" or "static", with int8
    scope: str = "all"
    activations: str = "u8"  # "u8" or "s8"; weights are always signed
    per_channel: bool = False
    reduce_range: bool = False  # weights in 7 bits
    calibration: str = "minmax"
    excluded: tuple[str, ...] = ()

    @property
    def quantization(self) -> str | None:
        """Its name in a case: `static-u8s8-channel`; None if nothing is quantised."""
        if self.method is None:
            return None
        words = [self.method]
        if self.method == "static":
            words.append(f"{self.activations}s8")
        if self.scope == "products":
            words.append("products")
        if self.per_channel:
            words.append("channel")
        if self.reduce_range:
            words.append("7bit")
        if self.calibration != "minmax":
            words.append(self.calibration)
        if self.excluded:
            words.append("mixed")
        return "-".join(words)

    @property
    def label(self) -> str:
        """The name of its file: `fp32`, `fp16`, `int8-static-u8s8`."""
        return "-".join(filter(None, (self.precision, self.quantization)))

    @classmethod
    def of(cls, decoded: Mapping[str, Any]) -> "Recipe":
        return cls(**{**decoded, "excluded": tuple(decoded["excluded"])})


ORIGINAL = Recipe()
