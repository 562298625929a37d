"""The values of a command's placeholders: `--over device=cpu,cuda`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from ..contract import ParameterValue
from ..worker.code import PLACEHOLDER

MOST = 64  # combinations in one race


def parse_over(texts: Sequence[str], command: str) -> dict[str, list[ParameterValue]]:
    """The values of each axis such as `workers=0,2,4`, numbers as numbers.

    Raises ValueError, in one sentence, unless axes and placeholders of `command` match one to one
    and each axis has values that differ.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"--command: {error} in {command!r}") from None
    if not words:
        raise ValueError("--command is empty")
    placeholders = dict.fromkeys(PLACEHOLDER.findall(" ".join(words)))
    axes: dict[str, list[ParameterValue]] = {}
    for text in texts:
        name, equals, listed = (part.strip() for part in text.partition("="))
        if not equals:
            raise ValueError(f"--over takes NAME=VALUE,VALUE, not {text!r}")
        if name not in placeholders:
            raise ValueError(f"--over {name}: the command has no placeholder {{{name}}}")
        if name in axes:
            raise ValueError(f"--over {name} is given twice")
        axes[name] = _values(name, listed)
    if missing := [name for name in placeholders if name not in axes]:
        raise ValueError(f"the command has {{{missing[0]}}}: add --over {missing[0]}=VALUE,VALUE")
    if math.prod(map(len, axes.values())) > MOST:
        raise ValueError(f"--over: at most {MOST} combinations can race")
    return axes


def _values(name: str, listed: str) -> list[ParameterValue]:
    parts = [part.strip() for part in listed.split(",")]
    if not all(parts):
        raise ValueError(f"--over {name}: a value is empty in {listed!r}")
    found = [_typed(part) for part in parts]
    shown = {part.rpartition("/")[2] for part in parts}  # as in ids of cases
    if len({*found}) < len(parts) or len(shown) < len(parts):
        raise ValueError(f"--over {name}: two of the values have one name: {listed}")
    return found


def _typed(text: str) -> ParameterValue:
    """A number only if it is spelled in the command as it stands here."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and math.isfinite(value):
            return value
    return text
