"""Waiting for threads that keep spinning after their work is done.

Threads of an ONNX Runtime session spin for about 50 ms after the last call, OpenMP's for up to
200 ms.  In a process with several sessions they take the cores from the session that runs next.  On
2 cores, every tenth of its steps then took 4 ms instead of 0.3, so the 99th percentile measured the
scheduler.  Standard library only.
"""

import time

CHECK_S = 0.004  # interval over which processor time is compared
IDLE_SHARE = 0.1  # share of one core; a process without spinning threads uses less
LONGEST_S = 0.3


def wait_until_quiet() -> None:
    """Return once the threads of this process use no processor, or after LONGEST_S."""
    until = time.perf_counter() + LONGEST_S
    while time.perf_counter() < until:
        used, began = time.process_time(), time.perf_counter()
        time.sleep(CHECK_S)
        used = time.process_time() - used
        if used < IDLE_SHARE * (time.perf_counter() - began):
            return
