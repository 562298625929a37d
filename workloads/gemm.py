"""Matrix products of any shape: thin products, batches of small ones, matrix times vector."""

from workbench.contract import Case, Parameter, Setup, Task, Variant, Work

from ._shared.product import MatrixProduct, ProductShape
from .matmul import VARIANTS
from .matmul_cold import cold, with_copies

BEYOND_CACHES = 1 << 29  # bytes of operands that evict one another


class Gemm(MatrixProduct):
    """`batch` products of an m x k and a k x n matrix in one call; m=1 is a matrix-vector product.

    A product of m rows does 2 m operations for each weight it reads, so a thin one waits for
    memory.  On a GPU each step takes other copies of its operands, as in `matmul_cold`, since a
    cache may hold a whole layer: the mode "hot" shows that.  To find the best shape of a device,
    try many, as mamf-finder does (S. Bekman, "Machine Learning Engineering").
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
    quick = {"n": 1024, "k": 1024}
    variants = (*VARIANTS, *(Variant("gpu", "torch", p, mode="hot") for p in ("fp32", "bf16")))

    def shape(self, case: Case) -> ProductShape:
        sizes = (int(case.params[name]) for name in ("m", "n", "k"))
        return ProductShape(case.batch or 1, *sizes)

    def work(self, case: Case) -> Work:
        one = super().work(case)
        return with_copies(one, case) if self._copies(case) else one

    def prepare(self, case: Case, setup: Setup) -> Task:
        task = super().prepare(case, setup)
        return cold(task, setup) if self._copies(case) else task

    def _copies(self, case: Case) -> bool:
        """Whether the operands are copied so that no step finds its own in a cache."""
        size = super().work(case).bytes_moved or 0.0
        return case.device_kind == "gpu" and case.mode != "hot" and size < BEYOND_CACHES


WORKLOAD = Gemm()
