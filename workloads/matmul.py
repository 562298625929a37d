"""A square matrix product: the operation that fills training and scientific computing alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.contract import (
    Accuracy,
    Case,
    Parameter,
    Setup,
    Task,
    Variant,
    Work,
    Workload,
    WorkloadError,
)

from ._network import relative_error
from ._torch import TorchTask, arithmetic, dtype_of, time_to_host, to_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.floating[Any]]

BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "int8": 1}
# Several times what is measured, rounding of the inputs included, and far below a wrong product.
LIMITS = {"fp64": 1e-12, "fp32": 2e-5, "tf32": 3e-3, "bf16": 2e-2, "fp16": 3e-3, "int8": 1e-12}
PROJECTIONS = 4  # random vectors of the check
MINIATURE_N = 256
LARGEST_INT8 = 127  # products of two, summed over any n offered here, stay far below 2**31
BLOCK_BYTES = 1 << 26  # of the check's float64 working copy


class Matmul(Workload):
    """C = A B for two n x n matrices of normal random numbers, into memory that is there already.

    All contenders start from the same numbers; lower precisions round them first, and their
    error includes that.  INT8 multiplies random whole numbers into 32-bit sums: the raw rate,
    without the scaling that a quantised network adds.  `matmul_cold` finds its operands out of
    cache.
    """

    name = "matmul"
    title = "Matrix product"
    teaches = "Dense arithmetic is what a GPU is built for; precision decides how fast it goes."
    parameters = (Parameter("n", 4096, "rows and columns of the matrices", 1, 65_536),)
    variants: ClassVar[tuple[Variant, ...]] = (
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
        Variant("gpu", "torch", "int8"),
        Variant("gpu", "torch", "fp64"),
    )

    def work(self, case: Case) -> Work:
        n, size = int(case.params["n"]), BYTES[case.precision]
        # The inputs as drawn, once more during the check.
        host_copy = 2 * n * n * max(size, 4) if case.device_kind == "cpu" else 0
        held = n * n * (2.0 * size + (4 if case.precision == "int8" else size))
        return Work(2.0 * n**3, held, 1, "products", held + host_copy)

    def prepare(self, case: Case, setup: Setup) -> Task:
        n = int(case.params["n"])
        with setup.phase("build"):
            a, b = (draw(n, case.precision, setup.seed + which) for which in (0, 1))
        probe = Probe(a, b, setup.seed + 2)
        if case.backend == "numpy":
            return NumpyProduct(case, probe, a, b)
        return TorchProduct(case, setup, probe, a, b)

    def miniature(self, case: Case) -> Case | None:
        if int(case.params["n"]) <= MINIATURE_N:
            return None
        return replace(case, params={**case.params, "n": MINIATURE_N})


def draw(n: int, precision: str, seed: int) -> Matrix:
    """An n x n matrix of normal random numbers: float64 for fp64, else float32.  For int8 whole
    numbers from -127 to 127, as float32 too."""
    import numpy as np

    if precision == "int8":
        whole = np.random.default_rng(seed).integers(
            -LARGEST_INT8, LARGEST_INT8, (n, n), dtype=np.int8, endpoint=True
        )
        return whole.astype(np.float32)
    kind: Any = np.float64 if precision == "fp64" else np.float32
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, n), dtype=kind)


class Probe:
    """Knows what a right product C does to a few random vectors v: C v is A (B v), in float64.

    n^2 work instead of the n^3 of a second product (Freivalds 1977).
    """

    def __init__(self, a: Matrix, b: Matrix, seed: int) -> None:
        import numpy as np

        self.vectors = np.random.default_rng(seed).standard_normal((len(a), PROJECTIONS))
        self.expected = project(a, project(b, self.vectors))

    def check(self, case: Case, product: Matrix) -> Accuracy:
        """Judge `product`, n x n, by the limit of the case's precision."""
        error = relative_error(project(product, self.vectors), self.expected)
        limit = LIMITS[case.precision]
        reference = f"float64 projection on {PROJECTIONS} random vectors"
        return Accuracy("relative_error", error, reference, limit, error <= limit)


def project(matrix: Matrix, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """`matrix` @ `vectors` in float64, a block of rows at a time to save memory."""
    import numpy as np

    rows = max(1, BLOCK_BYTES // (8 * len(matrix)))
    starts = range(0, len(matrix), rows)
    return np.concatenate([matrix[i : i + rows].astype(np.float64) @ vectors for i in starts])


class NumpyProduct(Task):
    """By NumPy and the BLAS it was built with."""

    def __init__(self, case: Case, probe: Probe, a: Any, b: Any) -> None:
        import numpy as np

        self.case, self.probe, self.a, self.b = case, probe, a, b
        self.product = np.full_like(a, np.nan)

    def step(self) -> None:
        import numpy as np

        np.matmul(self.a, self.b, out=self.product)

    def check(self) -> Accuracy:
        self.step()
        return self.probe.check(self.case, self.product)


class TorchProduct(TorchTask):
    """By torch, on the CPU or a GPU."""

    def __init__(self, case: Case, setup: Setup, probe: Probe, a: Any, b: Any) -> None:
        import torch

        super().__init__(case)
        self.probe = probe
        whole = arithmetic(case) == "int8"
        self.multiply = torch._int_mm if whole else torch.matmul
        with setup.phase("build"):
            kind = torch.int8 if whole else dtype_of(case)
            rounded = [torch.from_numpy(matrix).to(kind) for matrix in (a, b)]
        self.a, self.b = to_device(setup, case, *rounded)
        if whole and self.device.type == "cuda":
            # Tensor cores take the right INT8 operand by columns (cuBLASLt's TN format).
            self.b = self.b.t().contiguous().t()
        self.product = torch.full_like(self.a, -1, dtype=torch.int32 if whole else kind)
        self._try()

    def _try(self) -> None:
        """Find out before anything is timed that a product is not offered here."""
        import torch

        try:
            self.step()  # a refusal comes at once; what `finish` finds is no refusal
        except RuntimeError as error:
            if arithmetic(self.case) != "int8" or isinstance(error, torch.OutOfMemoryError):
                raise
            raise WorkloadError(
                f"torch cannot multiply these in int8: {str(error).splitlines()[0]}",
                code="unsupported_precision",
                hint="CUDA wants sizes that are multiples of 8 and above 16",
            ) from error
        self.finish()

    def step(self) -> None:
        self.multiply(self.a, self.b, out=self.product)

    def check(self) -> Accuracy:
        import torch

        self.step()
        exact = self.case.precision in ("fp64", "int8")
        wide = torch.float64 if exact else torch.float32
        return self.probe.check(self.case, self.product.to("cpu", wide).numpy())

    def transfer_out_s(self) -> float | None:
        return time_to_host(self.case, self.product)


WORKLOAD = Matmul()
