"""Waiting for threads that spin on after their work is done.

A pool of ONNX Runtime keeps its threads spinning for some 50 ms after the last call, OpenMP's may
for 200 ms.  In a process that holds several sessions they take the cores from the session that runs
next: seen on 2 cores, every tenth of its steps took 4 ms instead of 0.3 for those 50 ms, and the
99th percentile was the scheduler's, not its own.  Standard library only.
"""

from __future__ import annotations

import time

LOOK_S = 0.004
IDLE_SHARE = 0.1  # of one core, that a process without spinning threads stays below
LONGEST_S = 0.3


def wait_until_quiet(at_most_s: float = LONGEST_S) -> None:
    """Return once the threads of this process use no processor, or after `at_most_s`."""
    until = time.perf_counter() + at_most_s
    while time.perf_counter() < until:
        used, began = time.process_time(), time.perf_counter()
        time.sleep(LOOK_S)
        used = time.process_time() - used
        if used < IDLE_SHARE * (time.perf_counter() - began):
            return
