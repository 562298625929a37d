"""Random inputs that a model can run on: of the right type, and in a range that makes sense.

The graph shows what integers mean: a row of a table, or a number that it compares them with.
"""

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from workbench.worker.libraries import Array, np, onnx

from . import graph
from .load import SMALL
from .shapes import Input, Shapes

# Operators that pass numbers on unchanged.
_PASSES = (
    "Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose",
    "Unsqueeze",
)  # fmt: skip
_TABLE_PASSES = (*_PASSES, "DequantizeLinear")
_COMPARES = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
TRIPS = 8  # iterations of a loop whose number is an input; none would time nothing
LENGTH = "the longest axis, a length by its name"
_LENGTH = re.compile(r"(^|_)len(gth)?s?$", re.IGNORECASE)


class Maker:
    """Makes samples for one model; `origins` says where the values of each input come from.  With
    `positive`, floating-point numbers lie between 0 and 1 instead of around 0."""

    def __init__(self, model: Any, inputs: Sequence[Input], *, positive: bool = False) -> None:
        self._positive = positive
        self._ranges = {}
        self._axes = {port.name: port.axes or [] for port in inputs}
        self.origins = {}
        reader = _Reader(model)
        for port in inputs:
            low, high, words = _range(port, reader)
            self._ranges[port.name] = (port.type, low, high)
            is_drawn = positive and port.type.startswith("float")
            self.origins[port.name] = "random, 0 to 1" if is_drawn else words

    def sample(self, shapes: Shapes, generator: "np.random.Generator") -> dict[str, Array]:
        """One array for every input."""
        made: dict[str, Array] = {}
        for name, (kind, low, high) in self._ranges.items():
            shape = tuple(shapes[name])
            if self.origins[name] == LENGTH:
                made[name] = np.full(shape, self._longest(shapes), kind)
            elif kind.startswith("float"):
                single = np.float64 if kind == "float64" else np.float32
                draw = generator.random if self._positive else generator.standard_normal
                made[name] = np.asarray(draw(shape, single), kind)
            else:
                numbers = generator.integers(low, high, shape, np.int64, endpoint=True)
                made[name] = np.asarray(numbers, kind)
        return made

    def _longest(self, shapes: Shapes) -> int:
        """The largest size of a dynamic axis that is not the first, else of any such axis."""
        sizes = [
            (not isinstance(axis, int), size)
            for name, axes in self._axes.items()
            for axis, size in list(zip(axes, shapes[name], strict=False))[1:]
        ]
        return max(sizes, default=(True, 1))[1]


def _range(port: Input, reader: "_Reader") -> tuple[int, int, str]:
    """The smallest and the largest integer, and the origin of the values in words."""
    if port.type == "bool":
        return 1, 1, "true"
    if port.type.startswith("float"):
        return 0, 0, "random normal"
    limits = np.iinfo(port.type)
    largest = min(int(limits.max), 2**62)
    rows, numbers = reader.uses(port.name)
    if rows:
        last = min(min(rows) - 1, largest)
        return 0, last, f"0..{last}, the rows of its table"
    if "mask" in port.name.lower():
        return 1, 1, "ones, a mask by its name"
    if limits.bits >= 32 and len(port.axes or []) <= 1 and _LENGTH.search(port.name):
        return 1, 1, LENGTH
    for value, use in numbers.items():
        if int(limits.min) <= value <= largest:
            return value, value, f"{value}, {use}"
    if limits.bits == 8:
        return int(limits.min), int(limits.max), "random bytes"
    return 0, 1, "random, 0 or 1"


class _Reader:
    """Follows an input to the tables that it indexes, and the numbers that it stands for."""

    def __init__(self, model: Any) -> None:
        self._constants = graph.constants(model)
        self._users: dict[str, list[Any]] = {}
        self._makers: dict[str, Any] = {}
        for node in graph.nodes(model):
            for name in node.input:
                self._users.setdefault(name, []).append(node)
            for name in node.output:
                self._makers[name] = node

    def uses(self, name: str) -> tuple[list[int], dict[int, str]]:
        """Lengths of the tables that an input indexes, and numbers that suit it, with why."""
        rows: list[int] = []
        numbers: dict[int, str] = {}
        waiting, seen = [name], {name}
        for current in waiting:  # the loop extends it
            for node in self._users.get(current, ()):
                operands = list(node.input)
                if node.op_type in (*_PASSES, "Gather") and operands[0] == current:
                    fresh = [output for output in node.output if output not in seen]
                    seen.update(fresh)
                    waiting += fresh
                elif len(operands) < 2:
                    continue
                elif node.op_type == "Loop" and operands[0] == current:
                    numbers[TRIPS] = "the iterations of its loop"
                elif node.op_type == "Gather" and operands[1] == current:
                    rows += self._rows(node)
                elif node.op_type == "OneHot" and operands[0] == current:
                    rows += [depth for depth in self._numbers(operands[1])[:1] if depth > 0]
                elif node.op_type in _COMPARES:
                    other = self._numbers(operands[operands[0] == current])
                    if len(other) == 1:
                        numbers.setdefault(other[0], "which the graph compares it with")
                    elif other == list(range(len(other))) and other:
                        rows.append(len(other))  # a one-hot code, written out
        return rows, numbers

    def _rows(self, node: Any) -> list[int]:
        """The length of the indexed axis of a constant table."""
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        table = self._constant(node.input[0])
        if table is None or not -len(table.dims) <= axis < len(table.dims):
            return []
        return [table.dims[axis]] if table.dims[axis] > 0 else []

    def _constant(self, name: str) -> Any:
        """The tensor that `name` comes from, possibly stored in INT8 or FP16; or None."""
        for _ in range(8):
            maker = self._makers.get(name)
            if name in self._constants or maker is None or maker.op_type not in _TABLE_PASSES:
                break
            name = maker.input[0]
        return self._constants.get(name)

    def _numbers(self, name: str) -> list[int]:
        """The values of a small constant of integers."""
        tensor = self._constant(name)
        if tensor is None or tensor.data_location == tensor.EXTERNAL or prod(tensor.dims) > SMALL:
            return []
        try:
            return [int(number) for number in onnx.numpy_helper.to_array(tensor).reshape(-1)]
        except (ValueError, TypeError, OverflowError):
            return []  # a damaged constant
