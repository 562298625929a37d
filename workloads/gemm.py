"""Matrix products of any shape: thin ones, batches of small ones, matrix-vector products."""

from __future__ import annotations

from typing import ClassVar

from workbench.contract import Case, Parameter

from ._shared.product import Product, Shape
from .matmul import VARIANTS


class Gemm(Product):
    """`batch` products of an m x k and a k x n matrix by one call; m=1 is a matrix-vector product.

    A product of m rows does 2 m operations for each weight it reads: a thin one waits for memory.
    The best shape of a device is found by trying many, as mamf-finder does (S. Bekman, "Machine
    Learning Engineering").
    """

    name = "gemm"
    title = "Matrix product of any shape"
    teaches = "Shape decides: thin products wait for memory, and only large ones reach the peak."
    parameters = (
        Parameter("m", 64, "rows of A and C: the samples of a layer", 1, 65_536),
        Parameter("n", 4096, "columns of B and C: its outputs", 1, 65_536),
        Parameter("k", 4096, "columns of A, rows of B: its inputs", 1, 65_536),
    )
    default_batch = 1
    quick: ClassVar = {"n": 1024, "k": 1024}
    variants = VARIANTS

    def shape(self, case: Case) -> Shape:
        sizes = (int(case.params[name]) for name in ("m", "n", "k"))
        return Shape(case.batch or 1, *sizes)


WORKLOAD = Gemm()
