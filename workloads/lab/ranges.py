"""The range of every activation over the calibration inputs, taken once per method.

Ranges hold for every scope, type and set of nodes left out, since all of those quantise tensors
of the same prepared model.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError

from . import samples, sessions
from .prepare import PREPARED

METHODS = {"minmax": "MinMax", "percentile": "Percentile", "entropy": "Entropy"}
HISTOGRAM_SAMPLES = 32  # inputs that histograms are filled from: each keeps every tensor in memory
LONGEST_S = 120.0  # of reading calibration inputs

Ranges = dict[str, tuple[float, float, str]]  # least, largest, NumPy's word for their type


def ranges(folder: Path, method: str) -> Ranges:
    """The range of each tensor by its name; kept in `folder` for the next form."""
    file = folder / f"ranges-{method}.json"
    if not file.exists():
        found = _collect(folder, method)
        file.write_text(json.dumps(found))
    return {name: tuple(found) for name, found in json.loads(file.read_text()).items()}


def _collect(folder: Path, method: str) -> Ranges:
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    began = time.monotonic()
    inputs = samples.read(folder / samples.CALIBRATION)
    if method != "minmax":
        inputs = inputs[:HISTOGRAM_SAMPLES]
    with tempfile.TemporaryDirectory(dir=folder) as scratch, sessions.quiet():
        calibrator = create_calibrator(
            str(folder / PREPARED),
            augmented_model_path=str(Path(scratch, "augmented.onnx")),
            calibrate_method=CalibrationMethod[METHODS[method]],
            # A symmetric range would waste half of an unsigned type behind a ReLU.
            extra_options={"symmetric": False},
        )
        names = [port.name for port in calibrator.infer_session.get_inputs()]
        for sample in inputs:  # one by one: a call holds all that it reads until it ends
            calibrator.collect_data(_One(names, sample))
            if time.monotonic() - began > LONGEST_S:
                raise WorkloadError(
                    f"calibration by {method} takes more than {LONGEST_S:.0f} s",
                    code="not_quantised",
                    hint="give fewer calibration inputs, or take minmax",
                )
        return _finite(calibrator.compute_data())


def _finite(found: Any) -> Ranges:
    """Tensors that hold infinity or nothing at all stay in FP32."""
    import numpy as np

    ends = {name: [np.asarray(end) for end in data.range_value] for name, data in found.items()}
    return {
        name: (float(low.min()), float(high.max()), low.dtype.name)
        for name, (low, high) in ends.items()
        if low.size and high.size and np.isfinite(low).all() and np.isfinite(high).all()
    }


class _One:
    """Feeds one sample, as `onnxruntime.quantization` asks for it."""

    def __init__(self, names: Sequence[str], sample: Sequence[Any]) -> None:
        self._left = iter([dict(zip(names, sample, strict=True))])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)
