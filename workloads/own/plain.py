"""Results and inputs of any kind as plain values, to compare, hash and keep them."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import pickle
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

NUMBERS = (int, float)
SINGLE = (bool, complex, str, bytes, type(None))


def parts(value: Any, path: str = "") -> dict[str, Any]:
    """The contents of nested containers by path: NumPy arrays, tuples of numbers and texts.

    Raises TypeError for a value of any other type.
    """
    if isinstance(value, SINGLE):
        return {path: value}
    if isinstance(value, NUMBERS):
        return {path: (value,)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        if value and all(type(each) in NUMBERS for each in value):
            return {path: tuple(value)}
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return {path: _array(value)}
    found: dict[str, Any] = {}
    for key, each in value.items():
        found.update(parts(each, f"{path}.{key}" if path else str(key)))
    return found


def _array(value: Any) -> Any:
    """A tensor, or an array of any library, as NumPy's."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
    elif type(value).__module__.partition(".")[0] == "cupy":
        value = value.get()
    if not hasattr(value, "__array__"):
        raise TypeError(f"values of type {type(value).__name__}")
    import numpy as np

    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError("arrays of objects")
    return array


def digest(value: Any) -> str:
    """A SHA-256 of the contents of `value`; empty for what can be neither read nor pickled."""
    text = hashlib.sha256()
    try:
        for path, part in parts(value).items():
            shape = getattr(part, "shape", None)
            text.update(f"{path} {shape} {getattr(part, 'dtype', '')}".encode())
            text.update(repr(part).encode() if shape is None else part.tobytes())
    except (TypeError, RecursionError):
        try:
            text.update(pickle.dumps(value))
        except Exception:
            return ""
    return text.hexdigest()


def relative_error(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """The largest error of a part over the Euclidean norm of the wanted one; infinite where parts,
    shapes or texts differ, NaN where only one of the two has it."""
    if got.keys() != wanted.keys():
        return math.inf
    errors = [_error(got[path], part) for path, part in wanted.items()]
    return next((error for error in errors if math.isnan(error)), max(errors, default=0.0))


def _error(got: Any, wanted: Any) -> float:
    if hasattr(got, "dtype") and hasattr(wanted, "dtype") and wanted.dtype.kind in "biufc":
        return _array_error(got, wanted)
    if hasattr(got, "dtype") or hasattr(wanted, "dtype"):
        return 0.0 if repr(got) == repr(wanted) else math.inf
    if type(got) is type(wanted) and repr(got) == repr(wanted):
        return 0.0  # NaN in the same places
    if isinstance(got, tuple) and isinstance(wanted, tuple) and len(got) == len(wanted):
        with suppress(OverflowError):
            return _over(math.dist(got, wanted), math.hypot(*wanted))
    return math.inf


def _array_error(got: Any, wanted: Any) -> float:
    import numpy as np

    if got.shape != wanted.shape or got.dtype.kind not in "biufc":
        return math.inf
    wide = complex if "c" in (got.dtype.kind, wanted.dtype.kind) else float
    got, wanted = got.astype(wide), wanted.astype(wide)
    apart = (got != wanted) & ~(np.isnan(got) & np.isnan(wanted))
    if not apart.any():
        return 0.0
    norm = np.linalg.norm(wanted[np.isfinite(wanted)])
    return _over(float(np.linalg.norm(got[apart] - wanted[apart])), float(norm))


def _over(distance: float, norm: float) -> float:
    return distance / norm if norm else distance
