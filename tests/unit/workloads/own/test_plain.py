"""Results of any kind, compared and hashed."""

import math
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from workloads.own.plain import WRONG, copied, digest, parts, relative_error, unreadable
from workloads.own.tree import as_array, is_data, leaves


@dataclass
class Pair:
    left: Any
    right: Any


class Sparse:
    """A sparse matrix as SciPy has them: with a type, but no bytes."""

    dtype, shape = np.dtype(float), (9, 9)

    def __init__(self, values: list[float]) -> None:
        self.values = values


class DataFrame:
    """A table of numbers as pandas and Polars have them."""

    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)

    def __array__(self, *_: object, **__: object) -> Any:
        return np.zeros((2, len(self.columns)))


def _error(got: Any, wanted: Any) -> float:
    return relative_error(parts(got), parts(wanted))


@pytest.mark.parametrize(
    ("got", "wanted", "error"),
    [
        (3.0, 3.0, 0.0),
        (101, 100, 0.01),
        ([3.0, 4.0 + 5e-2], [3.0, 4.0], 0.01),
        ([1.0, 1e-17], [1.0, 3e-17], 2e-17),  # one norm, not one for each number
        ("a", "a", 0.0),
        ("a", "b", WRONG),
        (None, 1.0, WRONG),
        ([1.0], [1.0, 2.0], WRONG),
        ({"a": 1.0}, {"b": 1.0}, WRONG),
        (math.nan, math.nan, 0.0),
        (0.5, 0.0, 0.5),
        (10**400, 1, WRONG),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0.0),
        (np.array([1.0, np.inf]), np.array([1.0, np.inf]), 0.0),
        (np.array([2.0, np.inf]), np.array([1.0, np.inf]), 1.0),
        (np.ones(3), np.ones(2), WRONG),
        (np.array(["a"]), np.array(["b"]), WRONG),
        (np.array(["NaT", "2026"], "M8[D]"), np.array(["NaT", "2026"], "M8[D]"), 0.0),
        (np.array(["NaT", "2026"], "M8[D]"), np.array(["NaT", "2027"], "M8[D]"), WRONG),
        (np.ones(2), "text", WRONG),
        (np.array([1 + 1j]), np.array([1 + 1j]), 0.0),
        (torch.full((4,), 1.01), np.ones(4), 0.01),
        (torch.ones(2, dtype=torch.bfloat16, requires_grad=True), torch.ones(2), 0.0),
        ([("a", 101.0), ("b", 2.0)], [("a", 100.0), ("b", 2.0)], 0.01),
        ([("a", np.float64(101.0))], [("a", 100.0)], 0.01),
        ([[1, 2], [3]], (1, 2), WRONG),
        ([("a", 1.0)], [("a", 1.0), ("b", 2.0)], WRONG),
        ({"a": [1.0, "b"]}, {"a": [1.0, "c"]}, WRONG),
        (Pair({"x": (1, 2)}, [torch.zeros(2)]), Pair({"x": (1, 2)}, [torch.zeros(2)]), 0.0),
    ],
)
def test_the_relative_error_of_nested_results(got: Any, wanted: Any, error: float) -> None:
    assert _error(got, wanted) == pytest.approx(error, rel=1e-5)


class Large(bytes):
    def __repr__(self) -> str:
        raise MemoryError


def test_large_bytes_are_compared_as_they_are() -> None:
    assert _error(Large(b"a"), Large(b"a")) == 0.0
    assert _error(Large(b"a"), Large(b"b")) == WRONG


def test_a_tensor_of_a_type_that_numpy_lacks_is_read_as_fp32() -> None:
    for kind in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        assert as_array(torch.ones(2).to(kind)).tolist() == [1.0, 1.0]


def test_a_list_of_words_is_one_part() -> None:
    assert list(parts({"words": ["a", "b"], "mixed": ["a", {1}]})) == [
        "words",
        "mixed.0",
        "mixed.1",
    ]
    assert _error(["a", "c"], ["a", "b"]) == WRONG


def test_a_list_of_the_values_of_an_array_is_one_part() -> None:
    values = [1, *np.arange(3.0)]
    assert leaves({"x": values}) == {"x": values}
    close = [1, *np.arange(3.0) * (1 + 1e-6)]
    assert relative_error(parts({"x": close}), parts({"x": values})) < 1e-5


def test_nan_in_one_of_two_results_is_wrong() -> None:
    assert _error([1.0, math.nan], [1.0, 2.0]) == WRONG
    assert _error([np.ones(2), np.array([np.nan])], [np.ones(2), np.ones(1)]) == WRONG


def test_a_result_without_numpy_is_compared_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert (_error([1.0, 2], [1.0, 2]), _error([1.0, 2], [1.5, 2])) == (0.0, WRONG)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        ([np.array([object()])], "ndarray"),
        ({"a": (1, [np.ones(2), "b", None])}, ""),
        ([Image.new("L", (2, 1))], ""),
        (Sparse([1.0]), "Sparse"),
    ],
)
def test_other_types_are_named(value: Any, kind: str) -> None:
    assert unreadable(parts(value)) == kind


def test_a_digest_follows_the_contents() -> None:
    same = [digest({"x": np.arange(4.0), "y": [1, 2]}) for _ in range(2)]
    assert same[0] == same[1] != ""
    assert digest({"x": np.arange(4.0)}) != digest({"x": np.arange(4.0, dtype="f4")})
    assert digest(np.zeros((2, 3))) != digest(np.zeros((3, 2)))
    assert digest({1, 2}) == digest({1, 2}) != digest({1, 3})  # pickled
    assert digest([np.array([[1]], object)]) != digest([np.array([[2]], object)])
    assert digest([1, lambda: 0]) != digest([2, lambda: 0]), "what can be neither is left out"
    assert digest(Sparse([1.0])) != digest(Sparse([2.0]))
    assert digest(DataFrame("a")) == digest(DataFrame("a")) != digest(DataFrame("b")), "renamed"


def test_records_are_read_as_one_value() -> None:
    records = [(number, {"name": str(number)}, [None, 1.5]) for number in range(3)]
    assert is_data(records) and leaves({"x": records, "y": {1}}, coarse=True).keys() == {"x", "y"}
    endless: list[Any] = []
    endless.append(endless)
    for strange in (endless, [np.float64(1)], {"a": {1}}, {(1, Pair): 2}, [torch.ones(1)]):
        assert not is_data(strange)
    kept = copied(parts({"x": records}))
    records[0][2].append(1)
    assert relative_error(kept, parts({"x": records})) == WRONG, "they are copied"
    word = "".join(["wo", "rd"])
    assert digest([(word, 1), (word, 2)]) == digest([("word", 1), ("".join(["wor", "d"]), 2)])
    assert digest([(1, 2.0)]) != digest([(1, 2)])


def test_results_without_tensors_import_no_torch() -> None:
    code = (
        "import sys; from types import SimpleNamespace; from workloads.own.plain import digest;"
        "digest([1, SimpleNamespace(x=2), {'a': 'b'}]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
