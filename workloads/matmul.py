"""A square matrix product: the operation that fills training and scientific computing alike."""

from __future__ import annotations

from typing import ClassVar

from workbench.contract import Case, Parameter, Variant

from ._shared.product import Product, Shape

VARIANTS: tuple[Variant, ...] = (
    Variant("cpu", "numpy", "fp32"),
    Variant("cpu", "torch", "fp32"),
    Variant("cpu", "torch", "bf16"),
    Variant("cpu", "torch", "fp16"),
    Variant("cpu", "torch", "int8"),
    Variant("cpu", "numpy", "fp64"),
    Variant("cpu", "torch", "fp64"),
    Variant("gpu", "torch", "fp32"),
    Variant("gpu", "torch", "tf32"),
    Variant("gpu", "torch", "bf16"),
    Variant("gpu", "torch", "fp16"),
    Variant("gpu", "torch", "fp8"),
    Variant("gpu", "torch", "int8"),
    Variant("gpu", "torch", "fp64"),
)


class Matmul(Product):
    """One product of two n x n matrices.  `matmul_cold` finds its operands out of cache, `gemm`
    has any shape."""

    name = "matmul"
    title = "Matrix product"
    teaches = "Dense arithmetic is what a GPU is built for; precision decides how fast it goes."
    parameters = (Parameter("n", 4096, "rows and columns of the matrices", 1, 65_536),)
    quick: ClassVar = {"n": 1024}
    variants = VARIANTS

    def shape(self, case: Case) -> Shape:
        n = int(case.params["n"])
        return Shape(1, n, n, n)


WORKLOAD = Matmul()
