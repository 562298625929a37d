"""What the matrix products share: drawing, multiplying, and checking without a second product.

One product multiplies 2-D matrices, a batch of them 3-D ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.contract import Accuracy, Case, Setup, Task, Work, Workload, WorkloadError

from .torch_task import TorchTask, arithmetic, dtype_of, time_to_host, to_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.floating[Any]]

BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
PRODUCT_BYTES = {**BYTES, "fp8": 2, "int8": 4}  # FP8 gives BF16, INT8 32-bit sums
# Several times what is measured, rounding of the inputs included, and far below a wrong product.
LIMITS = {
    "fp64": 1e-12,
    "fp32": 2e-5,
    "tf32": 3e-3,
    "bf16": 2e-2,
    "fp16": 3e-3,
    "fp8": 0.15,
    "int8": 1e-12,
}
SIZES = {  # what CUDA asks for (aten/src/ATen/native/cuda/Blas.cpp)
    "int8": "CUDA wants more than 16 rows, and the other sizes multiples of 8",
    "fp8": "CUDA wants sizes that are multiples of 16",
}
PROJECTIONS = 4  # random vectors of the check
MINIATURE = 256**3  # multiply-adds
LARGEST_INT8 = 127  # products of two, summed over any k offered here, stay far below 2**31
BLOCK_BYTES = 1 << 26  # of the check's float64 working copy


class Shape(NamedTuple):
    """`batch` products of an m x k and a k x n matrix."""

    batch: int
    m: int
    n: int
    k: int


class Product(Workload):
    """C = A B for matrices of normal random numbers, into memory that is there already.

    All candidates start from the same numbers; lower precisions round them first, and their
    error includes that.  INT8 multiplies random whole numbers into 32-bit sums: the raw rate,
    without the scaling that a quantised network adds.  FP8 is E4M3 with scales of one.
    """

    @abstractmethod
    def shape(self, case: Case) -> Shape:
        """The sizes of `case`."""

    def work(self, case: Case) -> Work:
        batch, m, n, k = self.shape(case)
        inputs, outputs = batch * k * (m + n), batch * m * n
        size = BYTES[case.precision]
        held = float(inputs * size + outputs * PRODUCT_BYTES[case.precision])
        host = 0
        if case.device_kind == "cpu":
            drawn = max(inputs, outputs) * max(size, 4)  # or, later, what the check converts
            probe = batch * (k + 2 * m) * PROJECTIONS * 8
            largest = 8 * max(m * k, k * n, m * n)
            host = drawn + probe + (largest if batch > 1 else min(largest, BLOCK_BYTES))
        flops = 2.0 * batch * m * n * k
        return Work(flops, held, batch, "products", held + host, transfers="setup")

    def prepare(self, case: Case, setup: Setup) -> Task:
        a, b, probe = self.draw(case, setup)
        if case.backend == "numpy":
            return NumpyProduct(case, probe, a, b)
        return TorchProduct(case, setup, probe, a, b)

    def draw(self, case: Case, setup: Setup) -> tuple[Matrix, Matrix, Probe]:
        """The two operands, and what knows their product."""
        batch, m, n, k = self.shape(case)
        if batch > 1 and case.precision in ("int8", "fp8"):
            raise WorkloadError(
                f"torch multiplies no batch of matrices in {case.precision}",
                hint="use --batch 1, or another precision",
            )
        several = (batch,) if batch > 1 else ()
        with setup.phase("build"):
            a = draw((*several, m, k), case.precision, setup.seed)
            b = draw((*several, k, n), case.precision, setup.seed + 1)
        return a, b, Probe(a, b, setup.seed + 2)

    def small_probe(self, case: Case) -> Case | None:
        """The largest size halved again and again: what is thin stays thin, and a call's fixed cost
        stays small beside the work."""
        small = case
        while prod(self.shape(small)) > MINIATURE:
            sizes = {name: int(size) for name, size in small.params.items()}
            largest = max(sizes, key=lambda name: sizes[name])
            if small.batch is not None and small.batch > sizes[largest]:
                small = replace(small, batch=small.batch // 2)
            else:
                small = replace(small, params={**sizes, largest: sizes[largest] // 2})
        return None if small == case else small


def draw(shape: tuple[int, ...], precision: str, seed: int) -> Matrix:
    """Normal random numbers: float64 for fp64, else float32.  For int8 whole numbers from -127 to
    127, as float32 too."""
    import numpy as np

    rng = np.random.default_rng(seed)
    if precision == "int8":
        whole = rng.integers(-LARGEST_INT8, LARGEST_INT8, shape, dtype=np.int8, endpoint=True)
        return whole.astype(np.float32)
    kind: Any = np.float64 if precision == "fp64" else np.float32
    return rng.standard_normal(shape, dtype=kind)


class Probe:
    """Knows what a right product C does to a few random vectors v: C v is A (B v), in float64.

    Work for the vectors instead of the n^3 of a second product (Freivalds 1977).
    """

    def __init__(self, a: Matrix, b: Matrix, seed: int) -> None:
        import numpy as np

        shape = (b.shape[-1], PROJECTIONS)
        self.vectors = np.random.default_rng(seed).standard_normal(shape)
        self.expected = project(a, project(b, self.vectors))
        # A single sum may cancel by chance: its error is judged by the size it has as a rule.
        norms = [float(np.linalg.norm(array)) for array in (a, b, self.vectors)]
        self.scale = max(float(np.linalg.norm(self.expected)), prod(norms) / sqrt(b.size))

    def check(self, case: Case, product: Matrix) -> Accuracy:
        """Judge `product`, (batch,) m x n, by the limit of the case's precision."""
        import numpy as np

        difference = project(product, self.vectors) - self.expected
        error = float(np.linalg.norm(difference)) / self.scale
        limit = LIMITS[case.precision]
        reference = f"float64 projection on {PROJECTIONS} random vectors"
        return Accuracy("relative_error", error, reference, limit, error <= limit)


def project(matrix: Matrix, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """`matrix` @ `vectors` in float64, a block of rows (of a batch: of matrices) at a time to save
    memory; the vectors are the same for a whole batch, or one set each."""
    import numpy as np

    count = max(1, BLOCK_BYTES // (8 * matrix[0].size))
    shared = vectors.ndim == 2 or matrix.ndim == 2
    return np.concatenate(
        [
            matrix[i : i + count].astype(np.float64)
            @ (vectors if shared else vectors[i : i + count])
            for i in range(0, len(matrix), count)
        ]
    )


class NumpyProduct(Task):
    """By NumPy and the BLAS it was built with."""

    def __init__(self, case: Case, probe: Probe, a: Any, b: Any) -> None:
        import numpy as np

        self.case, self.probe, self.a, self.b = case, probe, a, b
        self.product = np.full((*a.shape[:-1], b.shape[-1]), np.nan, a.dtype)

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
        self.probe, self.computed = probe, arithmetic(case)
        kinds = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
        products = {"int8": torch.int32, "fp8": torch.bfloat16}
        kind = kinds.get(self.computed, dtype_of(case))
        with setup.phase("build"):
            left, right = (torch.from_numpy(matrix).to(kind) for matrix in (a, b))
            if self.computed in kinds and case.device_kind == "gpu":
                # Tensor cores take the right 8-bit operand by columns (cuBLASLt's TN format).
                right = right.t().contiguous().t()
        self.a, self.b = to_device(setup, case, left, right)
        self.product = torch.full(
            (*a.shape[:-1], b.shape[-1]),
            -1,
            dtype=products.get(self.computed, kind),
            device=self.a.device,
        )
        self.multiply = self._multiplication()
        if self.computed in SIZES:  # of the others the check takes the first step
            self._try()

    def _multiplication(self) -> Callable[..., Any]:
        import torch

        multiply: Callable[..., Any] = torch.matmul
        if self.computed == "int8":
            multiply = torch._int_mm
        elif self.computed == "fp8":
            one = torch.ones((), device=self.a.device)
            # Sums of fewer bits on Hopper, as inference uses them: the full rate.
            multiply = partial(torch._scaled_mm, scale_a=one, scale_b=one, use_fast_accum=True)
        return multiply

    def _try(self) -> None:
        """Find out before anything is timed that a product is not offered here."""
        import torch

        try:
            self.step()  # a refusal comes at once; what `finish` finds is no refusal
        except (RuntimeError, ValueError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise WorkloadError(
                f"torch cannot multiply these in {self.computed}: {str(error).splitlines()[0]}",
                code="unsupported_precision",
                hint=SIZES[self.computed],
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
