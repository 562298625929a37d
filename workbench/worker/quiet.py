"""Waits for threads that keep spinning after their work is done.

Threads of an ONNX Runtime session spin for about 50 ms after the last call, OpenMP's for up to
200 ms.  They take cores from the session that runs next in the same process: on 2 cores, every
tenth of its steps took 4 ms instead of 0.3, which spoils a 99th percentile.
"""

import time

CHECK_S = 0.004  # interval over which processor time is measured
IDLE_SHARE = 0.1  # share of one core, below which no thread spins
LONGEST_S = 0.3


def wait_until_quiet() -> None:
    """Wait until no thread of this process spins, but at most LONGEST_S."""
    until = time.perf_counter() + LONGEST_S
    while time.perf_counter() < until:
        used, began = time.process_time(), time.perf_counter()
        time.sleep(CHECK_S)
        used = time.process_time() - used
        if used < IDLE_SHARE * (time.perf_counter() - began):
            return
