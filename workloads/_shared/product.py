"""Parts of every matrix product: drawing, multiplying, and checking without a second product.

A single product multiplies 2-D matrices, a batch multiplies 3-D ones.
"""

import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import prod, sqrt
from typing import Any, NamedTuple

from workbench.contract import Accuracy, Case, Setup, Task, Work, Workload, WorkloadError
from workbench.worker.failures import is_out_of_memory
from workbench.worker.libraries import np, torch

from .jax_task import JaxTask
from .network import worst
from .torch_task import TorchTask, arithmetic, dtype_of, to_device

PRODUCT_BYTES = {"fp8": 2, "int8": 4}  # where the product is wider: BF16, 32-bit sums
# Several times the measured error, which includes rounding of the inputs; far below a wrong one.
LIMITS = {
    "fp64": 1e-12,
    "fp32": 2e-5,
    "tf32": 3e-3,
    "bf16": 2e-2,
    "fp16": 3e-3,
    "fp8": 0.15,
    "int8": 1e-12,
}
SIZES = {  # requirements of CUDA (aten/src/ATen/native/cuda/Blas.cpp)
    "int8": "CUDA needs more than 16 rows, and other sizes that are multiples of 8",
    "fp8": "CUDA needs sizes that are multiples of 16",
}
PROJECTIONS = 4  # random vectors of the check, on each side
ROW_LIMIT = 4  # error of a single row, in limits: its few random vectors scatter
SMALL_PRODUCT = 128**3  # multiply-adds of a small probe, at most
LARGEST_INT8 = 127  # sums of products of two, over any k that is offered, stay far below 2**31
BLOCK_BYTES = 1 << 19  # size of the check's float64 working copy: a core's cache holds it
MOST_KEPT_BYTES = 1 << 29  # size of operands that wait for the next case, at most


class ProductShape(NamedTuple):
    """`batch` products of an m x k and a k x n matrix."""

    batch: int
    m: int
    n: int
    k: int


# The operands drawn last, their probe, and the seconds of drawing: one entry, which a row shares.
_latest: dict[object, tuple[Any, Any, "Probe", float]] = {}


class MatrixProduct(Workload):
    """C = A B for matrices of normal random numbers, into memory allocated beforehand.

    All candidates start from the same numbers.  Lower precisions round them first, and their error
    includes that.  INT8 multiplies random whole numbers into 32-bit sums: the raw rate, without
    the scaling that a quantised network adds.  FP8 is E4M3 with scales of one.
    """

    @abstractmethod
    def shape(self, case: Case) -> ProductShape:
        """The sizes of `case`."""

    def work(self, case: Case) -> Work:
        batch, m, n, k = self.shape(case)
        inputs, outputs, size = batch * k * (m + n), batch * m * n, case.element_bytes
        held = float(inputs * size + outputs * PRODUCT_BYTES.get(case.precision, size))
        flops = 2.0 * batch * m * n * k
        work = Work(flops, held, batch, "products", held, transfers="setup")
        wide = max(size, 4)  # bytes of a drawn number
        if case.device_kind == "gpu":
            return replace(work, host_bytes=held + inputs * wide)
        drawn = max(inputs, outputs) * wide  # or, later, the product that JAX checks
        probe = batch * (k + 2 * (m + n)) * PROJECTIONS * 8
        largest = 8 * max(m * k, k * n, m * n)
        block = largest if batch > 1 else min(largest, BLOCK_BYTES)
        return replace(work, memory_bytes=held + drawn + probe + block)

    def prepare(self, case: Case, setup: Setup) -> Task:
        made_by: dict[str, Callable[..., Task]]
        made_by = {"numpy": NumpyProduct, "jax": JaxProduct, "torch": TorchProduct}
        return made_by[case.backend](case, setup, *self.draw(case, setup))

    def draw(self, case: Case, setup: Setup) -> tuple[Any, Any, "Probe"]:
        """The two operands, and a probe that knows their product."""
        batch, m, n, k = self.shape(case)
        if batch > 1 and case.precision in ("int8", "fp8"):
            text = f"torch cannot multiply a batch of matrices in {case.precision}"
            raise WorkloadError(text, hint="use --batch 1, or another precision")
        several = (batch,) if batch > 1 else ()
        kind = case.precision if case.precision in ("fp64", "int8") else "fp32"
        key = several, m, n, k, kind, setup.seed
        if key not in _latest:
            _latest.clear()
            began = time.perf_counter()
            generators = [np.random.default_rng(setup.seed + which) for which in (0, 1)]
            shapes = (*several, m, k), (*several, k, n)
            with ThreadPoolExecutor(2) as threads:  # NumPy draws without Python's lock
                a, b = threads.map(draw, shapes, (kind, kind), generators)
            spent = time.perf_counter() - began
            _latest[key] = a, b, Probe(a, b, setup.seed + 2), spent
        a, b, probe, spent = _latest[key]
        # Each case reports what it would take alone, since start-up times are compared.
        setup.seconds["build"] = setup.seconds.get("build", 0.0) + spent
        if a.nbytes + b.nbytes > MOST_KEPT_BYTES:
            _latest.clear()
        return a, b, probe

    def small_probe(self, case: Case) -> Case | None:
        """The case with its largest size halved until it is small.  A thin shape stays thin, and
        the fixed cost of a call stays small compared to the work."""
        small, sizes = case, {name: int(size) for name, size in case.params.items()}
        sizes["batch"] = case.batch or 1
        while prod(self.shape(small)) > SMALL_PRODUCT:
            largest = max(sizes, key=lambda name: sizes[name])
            sizes[largest] //= 2
            params = {name: sizes[name] for name in case.params}
            small = replace(case, batch=case.batch and sizes["batch"], params=params)
        return None if small is case else small


def draw(shape: tuple[int, ...], precision: str, rng: Any) -> Any:
    """Normal random numbers in float64 for fp64, else float32; for int8, whole ones up to 127."""
    if precision == "int8":
        whole = rng.integers(-LARGEST_INT8, LARGEST_INT8, shape, dtype=np.int8, endpoint=True)
        return whole.astype(np.float32)
    kind: Any = np.float64 if precision == "fp64" else np.float32
    return rng.standard_normal(shape, dtype=kind)


class Probe:
    """Checks a product C on a few random vectors v: C v must be A (B v), in float64.  This is much
    less work than the n^3 of a second product (Freivalds 1977).  C v has a row for each row of C;
    the same for the transposed product has one for each column."""

    def __init__(self, a: Any, b: Any, seed: int) -> None:
        turned = b.swapaxes(-1, -2), a.swapaxes(-1, -2)
        self.sides = [Side(*pair, seed) for pair in ((a, b), turned)]

    def check(self, case: Case, product: Any) -> Accuracy:
        """Check an array or tensor, (batch,) m x n, against the limit of the case's precision."""
        if not isinstance(product, np.ndarray):
            hosted = product.cpu()
            product = (hosted.float() if hosted.dtype is torch.bfloat16 else hosted).numpy()
        limit, pair = LIMITS[case.precision], (product, product.swapaxes(-1, -2))
        errors = [side.error(each, limit) for side, each in zip(self.sides, pair, strict=True)]
        reference = f"float64 projection on {PROJECTIONS} random vectors"
        return Accuracy.within(worst(errors), limit, reference)


class Side:
    """Random vectors that multiply a product from one side, and the results to expect."""

    def __init__(self, a: Any, b: Any, seed: int) -> None:
        shape = (b.shape[-1], PROJECTIONS)
        self.vectors = np.random.default_rng(seed).standard_normal(shape)
        self.expected = project(a, project(b, self.vectors))
        # A single sum may cancel by chance, so its error is judged by the size it usually has.
        norms = [float(np.linalg.norm(array)) for array in (a, b, self.vectors)]
        # A product of zeros, which INT8 draws for n=1, has no size: then any other answer is wrong.
        scales = float(np.linalg.norm(self.expected)), prod(norms) / sqrt(b.size)
        self.scale = max(*scales, np.finfo(float).tiny)

    def error(self, product: Any, limit: float) -> float:
        """The relative error of `product`, or that of a row if it is far beyond `limit`: one wrong
        row hardly counts among thousands of right ones."""
        rows = np.linalg.norm(project(product, self.vectors) - self.expected, axis=-1) / self.scale
        far = float(rows.max()) * sqrt(rows.size)
        return far if far > ROW_LIMIT * limit else float(np.linalg.norm(rows))


def project(matrix: Any, vectors: Any) -> Any:
    """`matrix` @ `vectors` in float64, one set of vectors for a whole batch or one for each matrix.
    Works on a block of rows (in a batch: of matrices) at a time to save memory."""
    count = max(1, BLOCK_BYTES // (8 * prod(matrix.shape[1:])))
    parts = []
    for start in range(0, len(matrix), count):
        block = slice(start, start + count)
        own = vectors if vectors.ndim == 2 else vectors[block]
        parts.append(matrix[block].astype(np.float64, copy=False) @ own)
    return np.concatenate(parts)


class NumpyProduct(Task):
    """The product in NumPy, by the BLAS that it was built with."""

    checks_latest = True

    def __init__(self, case: Case, _: Setup, a: Any, b: Any, probe: Probe) -> None:
        self.case, self.probe, self.a, self.b = case, probe, a, b
        self.product = np.full((*a.shape[:-1], b.shape[-1]), np.nan, a.dtype)

    def step(self) -> None:
        np.matmul(self.a, self.b, out=self.product)

    def check(self) -> Accuracy:
        return self.probe.check(self.case, self.product)


class JaxProduct(JaxTask):
    """The product in JAX, which allocates each result anew."""

    def __init__(self, case: Case, setup: Setup, a: Any, b: Any, probe: Probe) -> None:
        super().__init__(case)
        self.probe, kind = probe, "bfloat16" if case.precision == "bf16" else a.dtype
        with setup.phase("build"):
            rounded = a.astype(kind), b.astype(kind)
        self.operands = self.placed(setup, rounded)
        self.multiply = self.compiled(setup, lambda a, b: a @ b, *self.operands)

    def step(self) -> None:
        self.multiply(*self.operands).block_until_ready()

    def check(self) -> Accuracy:
        return self.probe.check(self.case, np.asarray(self.multiply(*self.operands)))


class TorchProduct(TorchTask):
    checks_latest = True

    def __init__(self, case: Case, setup: Setup, a: Any, b: Any, probe: Probe) -> None:
        super().__init__(case)
        self.probe, self.computed = probe, arithmetic(case)
        eight_bit = self.computed in SIZES
        kind, made = {
            "int8": (torch.int8, torch.int32),
            "fp8": (torch.float8_e4m3fn, torch.bfloat16),
        }.get(self.computed, (dtype_of(case),) * 2)
        with setup.phase("build"):
            left, right = (torch.from_numpy(matrix).to(kind) for matrix in (a, b))
            if eight_bit and case.device_kind == "gpu":
                # Tensor cores need the right 8-bit operand by columns (cuBLASLt's TN format).
                right = right.t().contiguous().t()
        self.a, self.b = to_device(setup, case, left, right)
        shape, device = (*a.shape[:-1], b.shape[-1]), self.a.device
        self.product = torch.full(shape, -1, dtype=made, device=device)
        one = torch.ones((), device=device)
        self.multiply: Any = {
            "int8": torch._int_mm,
            # Sums of fewer bits on Hopper, as in inference: they run at the full rate.
            "fp8": partial(torch._scaled_mm, scale_a=one, scale_b=one, use_fast_accum=True),
        }.get(self.computed, torch.matmul)
        if eight_bit:
            self._try()

    def _try(self) -> None:
        """Find out early whether torch offers this product; WorkloadError says why not."""
        try:
            self.step()  # refuses at once; errors in `finish` have other causes
        except (RuntimeError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            kind, why = self.computed, str(error).splitlines()[0]
            text = f"torch cannot multiply these matrices in {kind}: {why}"
            raise WorkloadError(text, code="unsupported_precision", hint=SIZES[kind]) from error
        self.finish()

    def step(self) -> None:
        self.multiply(self.a, self.b, out=self.product)

    def check(self) -> Accuracy:
        return self.probe.check(self.case, self.product)

    def result(self) -> Any:
        return self.product
