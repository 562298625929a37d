"""A square matrix product: the operation that fills training and scientific computing alike."""

from workbench.contract import Case, Parameter, Variant

from ._shared.product import MatrixProduct, ProductShape

VARIANTS: tuple[Variant, ...] = (
    Variant("cpu", "numpy", "fp32"),
    *(Variant("cpu", "torch", p) for p in ("fp32", "bf16", "fp16", "int8")),
    *(Variant("cpu", library, "fp64") for library in ("numpy", "torch")),
    *(Variant("gpu", "torch", p) for p in ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp64")),
)
JAX = [Variant(kind, "jax", p) for kind in ("cpu", "gpu") for p in ("fp32", "bf16", "fp64")]


class Matmul(MatrixProduct):
    """One product of two n x n matrices; `gemm` takes any shape, `matmul_cold` avoids the cache."""

    name = "matmul"
    title = "Matrix product"
    teaches = "A GPU is built for dense arithmetic; the precision decides how fast it runs."
    parameters = (Parameter("n", 4096, "rows and columns of the matrices", 1, 65_536),)
    quick = {"n": 1024}
    variants = (*VARIANTS, *JAX)

    def shape(self, case: Case) -> ProductShape:
        n = int(case.params["n"])
        return ProductShape(1, n, n, n)


WORKLOAD = Matmul()
