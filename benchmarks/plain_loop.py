"""What measuring in turns costs: workbench's matmul beside a plain loop, in one run.

`make benchmark` or `python benchmarks/plain_loop.py [N]`.  Each round runs both, one after the
other, in fresh processes with the same threads; printed is plain time over workbench time of the
least medians, so 1 means that nothing is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from workbench.machine import effective_cores

ROUNDS = 3
SECONDS = 3.0

PLAIN = """
import sys, time
backend, n = sys.argv[1], int(sys.argv[2])
if backend == "numpy":
    import numpy as np
    a, b = (np.random.default_rng(i).standard_normal((n, n), dtype=np.float32) for i in (0, 1))
    multiply = np.matmul
else:
    import torch
    torch.set_num_threads(int(sys.argv[3]))
    a, b = (torch.randn(n, n) for _ in range(2))
    multiply = torch.matmul
c = a.copy() if backend == "numpy" else a.clone()
multiply(a, b, out=c)
times, until = [], time.perf_counter() + float(sys.argv[4])
while time.perf_counter() < until:
    began = time.perf_counter()
    multiply(a, b, out=c)
    times.append(time.perf_counter() - began)
print(sorted(times)[len(times) // 2])
"""


def plain_s(backend: str, n: int, threads: int) -> float:
    """Median seconds of one product in a loop of a few seconds."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    environment["OPENBLAS_NUM_THREADS"] = str(threads)
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, backend, str(n), str(threads), str(SECONDS)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def workbench_s(n: int) -> dict[str, float]:
    """Median seconds by backend, as `workbench run matmul` reports them."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "workbench", "run", "matmul", "--set", f"n={n}"),
            *("--precision", "fp32", "--device", "cpu", "--budget", "12", "--json"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(done.stdout)["measurements"]
    return {m["case"]["backend"]: m["median_s"] for m in measured}


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    threads = effective_cores()
    ours: dict[str, list[float]] = {"numpy": [], "torch": []}
    plain: dict[str, list[float]] = {"numpy": [], "torch": []}
    for _ in range(ROUNDS):
        for backend, seconds in workbench_s(n).items():
            ours[backend].append(seconds)
            plain[backend].append(plain_s(backend, n, threads))
    for backend in ours:
        rates = [2e-9 * n**3 / min(times[backend]) for times in (ours, plain)]
        print(
            f"matmul n={n} fp32 {backend} t{threads}: workbench {rates[0]:.0f} GFLOP/s, "
            f"plain loop {rates[1]:.0f} GFLOP/s, ratio {rates[0] / rates[1]:.3f}"
        )


if __name__ == "__main__":
    main()
