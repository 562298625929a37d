"""Inputs and outputs on disk: lists of samples, each a list of arrays in the session's order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Sample = Sequence[NDArray[Any]]

INPUTS, CALIBRATION, REFERENCE = "inputs.npz", "calibration.npz", "reference.npz"


def write(file: Path, samples: Sequence[Sample]) -> None:
    """Keep `samples`; an entry's name is `sample.position`, never what a model calls it."""
    import numpy as np

    entries: dict[str, Any] = {
        f"{number}.{position}": array
        for number, sample in enumerate(samples)
        for position, array in enumerate(sample)
    }
    np.savez(file, **entries)


def read(file: Path) -> list[list[NDArray[Any]]]:
    """The samples that `write` kept."""
    import numpy as np

    found: dict[int, dict[int, NDArray[Any]]] = {}
    with np.load(file, allow_pickle=False) as entries:
        for name in entries.files:
            number, position = map(int, name.split("."))
            found.setdefault(number, {})[position] = entries[name]
    return [[sample[place] for place in sorted(sample)] for _, sample in sorted(found.items())]
