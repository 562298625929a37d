"""The candidates of a user's function and of a user's command, and numbers of threads."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from ..contract import Case
from ..records.code import CodeFacts
from ..records.machine import Machine
from ..worker.code import WORKLOAD
from .own_question import OwnQuestion, parse_over
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
    batch = request.batch[0] if request.batch and facts.batch is not None else facts.batch
    plain = Case(WORKLOAD, "cpu", "python", "", batch=batch, params=question.scenario().params)
    counts = thread_counts(machine, request) if "cpu" in (request.devices or ("cpu",)) else ()
    found = [replace(plain, threads=count) for count in counts]
    return found + [replace(plain, device=gpu) for gpu in gpus if facts.takes_device]


def thread_counts(machine: Machine, request: Request) -> tuple[int, ...]:
    """All cores, half of them and one, or the requested numbers; the largest first."""
    cores = machine.cpu.effective_cores
    counts = set(request.threads) or {cores, max(1, cores // 2), 1}
    return tuple(sorted(counts, reverse=True))


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
