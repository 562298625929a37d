"""Cases of inference."""

from typing import Any

from workbench import catalog
from workbench.contract import Case

TOKENS = 16


def case_of(
    name: str,
    backend: str = "torch",
    precision: str = "fp32",
    *,
    device: str = "cpu",
    batch: int = 1,
    threads: int | None = 1,
    quantization: str | None = None,
    mode: str | None = None,
    **params: Any,
) -> Case:
    values = catalog.load(name).values(params)
    threads = threads if device == "cpu" else None
    return Case(name, device, backend, precision, quantization, threads, batch, values, mode=mode)


def encoder_case(backend: str = "torch", precision: str = "fp32", **more: Any) -> Case:
    return case_of("infer_encoder", backend, precision, **{"tokens": TOKENS, **more})
