"""The work of `benchmarks.ab`: AB_SLOWER per thousand more of it on a side that is to be slower."""

import os

import numpy as np

LOOPS = 400  # each takes about 60 us
MATRIX = np.random.default_rng(0).random((128, 128)) / 64


def work() -> float:
    """Products of a matrix that fits into the caches; the result is the same for all loops."""
    total = 0.0
    for _ in range(LOOPS + round(LOOPS * int(os.environ.get("AB_SLOWER", "0")) / 1000)):
        total = float((MATRIX @ MATRIX)[0, 0])
    return total
