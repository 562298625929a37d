"""The candidates of a user's function and of a user's command."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from ..contract import Case
from ..records.code import CodeFacts
from ..records.machine import Machine
from ..worker.code import WORKLOAD
from .own_over import parse_over
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
    plain = Case(WORKLOAD, "cpu", "python", "", batch=batch, params=question.scenario().params)
    found = [replace(plain, threads=count) for count in dict.fromkeys(counts)]
    if request.devices and "cpu" not in request.devices:
        found = []
    return found + [replace(plain, device=gpu) for gpu in gpus if facts.takes_device]


def command_cases(question: OwnQuestion, request: Request) -> list[Case]:
    """The command with every combination of the values of --over.

    The value of an axis called `device` says where it runs: `cuda` and `gpu` mean the first GPU,
    and any other word the CPU.
    """
    axes = parse_over(question.over, question.target)
    found = []
    for values in itertools.product(*axes.values()):
        tuning = dict(zip(axes, values, strict=True))
        device = tuning.get("device", "cpu")
        device = "cuda:0" if device in ("cuda", "gpu") else device
        device = device if re.fullmatch(r"cuda:[0-9]+", device) else "cpu"
        found.append(Case(WORKLOAD, device, "command", "", tuning=tuning))
    wanted = request.devices
    return [case for case in found if not wanted or {case.device, case.device_kind} & {*wanted}]
