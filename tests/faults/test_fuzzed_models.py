"""A short run of `make fuzz`: damaged models get an answer from the lab's worker, no more."""

import sys
from pathlib import Path

# At the end of the path, since a benchmark has the name of the package `workloads`.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from fuzz_models import fuzz


def test_damaged_models_are_answered_in_a_clear_line() -> None:
    tally = fuzz(150, seed=1)
    assert tally.violations == []
    assert tally.answers["inspect: bad_model"] > 50
    assert tally.answers["inspect: ok"] > 5
