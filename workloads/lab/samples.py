"""Inputs and outputs in files: lists of samples, each a list of arrays in the session's order."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.worker.libraries import Array, np

Samples = Sequence[Sequence[Array]]

INPUTS, CALIBRATION, REFERENCE = "inputs.npz", "calibration.npz", "reference.npz"
# Kept apart until a variant is otherwise good enough; missing where there are too few inputs.
CHECK, CHECK_REFERENCE = "check.npz", "check-reference.npz"
# FOLDS exists if the same inputs calibrate and choose; FOLDED is the suffix of answers to them.
FOLDS, FOLDED = "folds", ".folds.npz"
CHECKED = ".checked.pickle"  # suffix of a first answer, and the error of its variant


def write(file: Path, samples: Samples) -> None:
    """Write `samples`; an entry's name is `sample.position`, never a name from the model."""
    arrays: dict[str, Any] = {
        f"{number}.{position}": array
        for number, sample in enumerate(samples)
        for position, array in enumerate(sample)
    }
    # With their count, since samples of a model without inputs hold no arrays.
    np.savez(file, count=np.array(len(samples)), **arrays)


def read(file: Path) -> list[list[Array]]:
    with np.load(file, allow_pickle=False) as entries:
        found: list[list[Array]] = [[] for _ in range(int(entries["count"]))]
        for name in entries.files[1:]:  # as written: the count, then the arrays in order
            found[int(name.partition(".")[0])].append(entries[name])
    return found
