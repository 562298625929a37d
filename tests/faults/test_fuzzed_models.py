"""A short run of `make fuzz`: no spoilt model gets more out of the lab's child than an answer."""

from __future__ import annotations

import sys
from pathlib import Path

# At the end: a benchmark has the name of the package `workloads`.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from fuzz_models import fuzz


def test_spoilt_models_are_answered_in_a_clear_line() -> None:
    tally = fuzz(150, seed=1)
    assert tally.violations == []
    assert tally.answers["inspect: bad_model"] > 50
    assert tally.answers["inspect: ok"] > 5
