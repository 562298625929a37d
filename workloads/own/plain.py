"""Results and inputs of any kind as plain values, to compare, hash and keep them."""

import hashlib
import io
import math
import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .tree import as_array, leaves

HOLDING = (list, tuple, dict)
PLAIN = (bool, int, float, complex, str, bytes, *HOLDING, type(None))
WRONG = 2.0  # error of parts without a distance, as of different shapes: above any limit


def parts(value: Any) -> dict[str, Any]:
    """The contents of nested containers by path: arrays as NumPy's, lists of numbers as tuples."""
    return {path: _plain(leaf) for path, leaf in leaves(value, coarse=True).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(value)
    if isinstance(value, (set, frozenset)):  # their order differs from process to process
        return tuple(sorted(map(repr, value)))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return as_array(value)
    array = value.get() if type(value).__module__.partition(".")[0] == "cupy" else value
    if not (hasattr(array, "__array__") or hasattr(array, "__array_interface__")):
        return value
    import numpy as np

    array = np.array(array)  # a copy, since a result may be the function's own state
    return value if array.dtype.hasobject else array


def is_array(part: Any) -> bool:
    """Whether it is an array, and not one of objects or a sparse one of SciPy."""
    has_values = getattr(getattr(part, "dtype", None), "kind", "O") != "O"
    return has_values and hasattr(part, "nbytes")


def unreadable(found: Mapping[str, Any]) -> str:
    """The type of a part that cannot be compared; empty if all can."""
    strange = (part for part in found.values() if not (isinstance(part, PLAIN) or is_array(part)))
    return next((type(part).__name__ for part in strange), "")


def digest(value: Any) -> str:
    """A SHA-256 of the contents of `value`, except what cannot even be pickled."""
    text = hashlib.sha256()
    for path, leaf in leaves(value, coarse=True).items():
        part = _plain(leaf)
        names = list(leaf.columns) if type(leaf).__name__ == "DataFrame" else ""
        kinds = [getattr(each, "dtype", "") for each in (leaf, part)]  # NumPy has no BF16
        text.update(f"{path} {getattr(part, 'shape', '')} {kinds} {names}".encode())
        with suppress(Exception):
            text.update(part.tobytes() if is_array(part) else _pickled(part))
    return text.hexdigest()


def unhashed(value: Any) -> str:
    """The type of a part, no function, whose contents `digest` leaves out; empty without one."""
    for part in parts(value).values():
        if not (is_array(part) or callable(part)):
            try:
                _pickled(part)
            except Exception:
                return type(part).__name__
    return ""


def copied(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same parts, with copies of data that a later call might change."""
    return {
        path: pickle.loads(_pickled(part)) if isinstance(part, HOLDING) else part  # noqa: S301
        for path, part in found.items()
    }


def _pickled(part: Any) -> bytes:
    """Equal bytes for equal data, whether or not equal strings in it are the same object."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file)
    pickler.fast = isinstance(part, HOLDING)
    pickler.dump(part)
    return file.getvalue()


def relative_error(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """The largest error of a part over the Euclidean norm of the wanted one; WRONG where parts,
    shapes or texts differ, or only one of the two is finite."""
    if got.keys() != wanted.keys():
        got, wanted = _apart(got), _apart(wanted)
    if got.keys() != wanted.keys():
        return WRONG
    errors = (_error(got[path], part) for path, part in wanted.items())
    return max((error if error < math.inf else WRONG for error in errors), default=0.0)


def _apart(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same parts, with each value inside data as a part of its own."""
    return {
        ".".join(filter(None, (path, below))): _plain(leaf)
        for path, part in found.items()
        for below, leaf in leaves(part).items()
    }


def _error(got: Any, wanted: Any) -> float:
    is_plain, is_text = isinstance(wanted, PLAIN), isinstance(wanted, (str, bytes))
    if is_plain and type(got) is type(wanted):  # the only comparison that does without NumPy
        # In `repr` NaN is NaN; that of bytes takes up to four times their memory.
        equal = got == wanted or (not is_text and repr(got) == repr(wanted))
        if equal or is_text:
            return 0.0 if equal else WRONG
    if isinstance(got, HOLDING) or isinstance(wanted, HOLDING):
        pair = _apart({"": got}), _apart({"": wanted})
        if any(each.keys() != {""} for each in pair):
            return relative_error(*pair)
    try:
        import numpy as np
    except ImportError:
        return WRONG
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape or {got.dtype.kind, wanted.dtype.kind} - {*"biufc"}:
        are_times = got.dtype == wanted.dtype and got.dtype.kind in "mM"
        return 0.0 if np.array_equal(got, wanted, equal_nan=are_times) else WRONG  # NaT is NaT
    wide = np.result_type(got, wanted, float)
    got, wanted = got.astype(wide), wanted.astype(wide)
    differs = (got != wanted) & ~(np.isnan(got) & np.isnan(wanted))
    distance = float(np.linalg.norm(got[differs] - wanted[differs]))
    norm = float(np.linalg.norm(wanted[np.isfinite(wanted)]))
    return distance / norm if norm else distance
