"""Matrix products of any shape: thin products, batches of small ones, matrix times vector."""

from __future__ import annotations

from typing import ClassVar

from workbench.contract import Case, Parameter

from ._shared.product import MatrixProduct, ProductShape
from .matmul import VARIANTS


class Gemm(MatrixProduct):
    """`batch` products of an m x k and a k x n matrix in one call; m=1 is a matrix-vector product.

    A product of m rows does 2 m operations for each weight it reads, so a thin one waits for
    memory.  To find the best shape of a device, try many, as mamf-finder does (S. Bekman, "Machine
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

    def shape(self, case: Case) -> ProductShape:
        sizes = (int(case.params[name]) for name in ("m", "n", "k"))
        return ProductShape(case.batch or 1, *sizes)


WORKLOAD = Gemm()
