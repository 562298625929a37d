"""Hand-written timings of one job, as people commonly write them.

`python rivals.py KIND PRECISION SIZE THREADS SECONDS`

Prints JSON: for each rival the 10th percentile of its seconds per call, the same quantile that
workbench calls the capability, and the result of a single naive timing.
"""

import json
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


def product(precision: str, n: int, threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    if precision == "int8":
        a, b = (torch.randint(-127, 128, (n, n), dtype=torch.int8) for _ in range(2))
        whole = torch.empty(n, n, dtype=torch.int32)
        return lambda: torch._int_mm(a, b, out=whole)
    kinds = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
    x, y = (torch.randn(n, n).to(kinds[precision]) for _ in range(2))
    out = torch.empty_like(x)
    return lambda: torch.matmul(x, y, out=out)


def session(precision: str, image: int, threads: int) -> Call:
    """An ONNX Runtime session of workbench's own network, called directly."""
    from workbench import catalog
    from workbench.contract import Case, Setup

    quantization = "static" if precision == "int8" else None
    case = Case(
        *("infer_cnn", "cpu", "onnxruntime", precision, quantization, threads, 1),
        params={"image": image},
    )
    task: Any = catalog.load("infer_cnn").prepare(case, Setup())
    feed = {"input": task.inputs[0]}
    return lambda: task.session.run(None, feed)


def low(times: list[float]) -> float:
    return sorted(times)[len(times) // 10]


def plain(call: Call, seconds: float) -> float:
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return low(times)


def by_timeit(call: Call, seconds: float) -> float:
    timer = timeit.Timer(call)
    number, _ = timer.autorange()
    each = timer.timeit(number) / number
    number = max(1, int(0.1 / each))
    return low([t / number for t in timer.repeat(max(3, int(seconds / number / each)), number)])


def by_torch(call: Call, seconds: float, threads: int) -> float:
    from torch.utils.benchmark import Timer

    timer = Timer("call()", globals={"call": call}, num_threads=threads)
    return low(list(timer.blocked_autorange(min_run_time=seconds).times))


def main() -> None:
    kind, precision, size, threads, seconds = sys.argv[1:]
    build = {"matmul": product, "infer_cnn": session}[kind]
    call = build(precision, int(size), int(threads))
    began = time.time()
    call()
    naive = time.time() - began
    plain(call, 0.3)  # warm-up
    found = {
        "naive": naive,
        "plain loop": plain(call, float(seconds)),
        "timeit": by_timeit(call, float(seconds)),
        "torch.utils.benchmark": by_torch(call, float(seconds), int(threads)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
