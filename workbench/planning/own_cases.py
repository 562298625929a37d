"""The candidates of a user's function and of a user's command."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from ..contract import Case, ParameterValue
from ..records.code import CodeFacts
from ..records.machine import Machine
from ..worker.code import PLACEHOLDER, WORKLOAD
from .cases import MOST_CASES
from .own_question import OwnQuestion
from .request import Request


def function_cases(
    question: OwnQuestion,
    facts: CodeFacts,
    machine: Machine,
    request: Request,
    gpus: Sequence[str],
) -> list[Case]:
    """The function on all, half and one of the cores, and on each of `gpus` if it takes a device.

    The first value of --batch is its size.
    """
    cores = machine.cpu.effective_cores
    counts = request.threads or (cores, max(1, cores // 2), 1)
    batch = request.batch[0] if request.batch and facts.batch is not None else facts.batch
    params = question.scenario().params
    template = Case(WORKLOAD, "cpu", "python", "", batch=batch, params=params)
    found = [replace(template, threads=count) for count in dict.fromkeys(counts)]
    if request.devices and "cpu" not in request.devices:
        found = []
    return found + [replace(template, device=gpu) for gpu in gpus if facts.takes_device]


def command_cases(question: OwnQuestion, request: Request) -> list[Case]:
    """The command with every combination of the values of --over.

    The value of an axis called `device` says where it runs: `cuda` and `gpu` mean the first GPU,
    and any other word the CPU.  Raises ValueError as `parse_over` does.
    """
    axes = parse_over(question.over, question.target)
    found = []
    for values in itertools.product(*axes.values()):
        tuning = dict(zip(axes, values, strict=True))
        device = _device(str(tuning.get("device", "cpu")))
        params = question.scenario().params
        found.append(Case(WORKLOAD, device, "command", "", params=params, tuning=tuning))
    wanted = request.devices
    return [case for case in found if not wanted or {case.device, case.device_kind} & {*wanted}]


def _device(text: str) -> str:
    if text in ("cuda", "gpu"):
        return "cuda:0"
    return text if re.fullmatch(r"cuda:[0-9]+", text) else "cpu"


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
    if math.prod(map(len, axes.values())) > MOST_CASES:
        raise ValueError(f"--over: at most {MOST_CASES} combinations can race")
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
