"""The values of a command's placeholders: `--over device=cpu,cuda`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from ..worker.code import PLACEHOLDER

MOST = 64  # combinations in one race


def parse_over(texts: Sequence[str], command: str) -> dict[str, list[str]]:
    """The values of each axis such as `workers=0,2,4`.

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
    axes: dict[str, list[str]] = {}
    for text in texts:
        name, equals, listed = (part.strip() for part in text.partition("="))
        if not equals:
            raise ValueError(f"--over takes NAME=VALUE,VALUE, not {text!r}")
        if name not in placeholders:
            raise ValueError(f"--over {name}: the command has no placeholder {{{name}}}")
        if name in axes:
            raise ValueError(f"--over {name} is given twice")
        axes[name] = values = [part.strip() for part in listed.split(",")]
        shown = {value.rpartition("/")[2] for value in values}  # as in ids of cases
        if len(shown) < len(values) or "" in values:
            raise ValueError(f"--over {name}: a value is empty or named twice in {listed!r}")
    if missing := [name for name in placeholders if name not in axes]:
        raise ValueError(f"the command has {{{missing[0]}}}: add --over {missing[0]}=VALUE,VALUE")
    if math.prod(map(len, axes.values())) > MOST:
        raise ValueError(f"--over: at most {MOST} combinations can race")
    return axes
