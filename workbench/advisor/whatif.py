"""What a recorded run of another device says beside the pick of this one: pure, and in words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from ..records.machine import Machine
from ..records.reason import Reason
from ..records.verdict import WhatIf
from ..report.candidate import Candidate
from ..report.names import name_of
from ..stats import samples as stats
from ..stats.objectives import SINGLE_STEPS, START_UP_SPREAD
from ..stats.ratios import RUN_TO_RUN, Z95
from ..text import units

TIMED = {  # objectives that count seconds, and what is added to a ratio of them
    "throughput": "",
    "latency": "",
    "latency_p99": " at the 99th percentile",
    "time_to_result": " from start-up to result",
}

DEVICE = re.compile(r"[a-z]+:[0-9]+")

Interval = tuple[float, float]


def counted(candidate: Candidate) -> tuple[float, Interval | None] | None:
    """Seconds as the candidate's objective counts them, with a distribution-free 95 % interval.

    None where its samples do not tell: no objective of time, or tails of grouped steps.
    """
    samples, objective = candidate.samples_s, candidate.objective
    if not samples or objective not in TIMED:
        return None
    if objective in SINGLE_STEPS and candidate.iterations_per_sample != 1:
        return None
    if objective == "latency_p99":
        p99_s, blocks = candidate.p99_s, [block.samples_s for block in candidate.blocks]
        return None if p99_s is None else (p99_s, stats.tail_interval(blocks, 0.99))
    value, interval = stats.median(samples), candidate.interval
    if objective != "time_to_result":
        return value, interval
    fixed_s = candidate.fixed_s
    low, high = (fixed_s * math.exp(sign * Z95 * START_UP_SPREAD) for sign in (-1, 1))
    return fixed_s + value, interval and (low + interval[0], high + interval[1])


def compared(
    found: Sequence[WhatIf], pick: Candidate | None, machine: Machine | None
) -> list[WhatIf]:
    """Each answer with the time of the pick here over the time there.

    The two were never measured in the same rounds, so the interval takes the far ends of both,
    and what differs from run to run (RUN_TO_RUN) twice.  Without an interval there is no ratio.
    """
    own = {} if machine is None else devices_by_name(machine)
    return [
        msgspec.structs.replace(_compared(what_if, pick), of_this_kind=what_if.name in own)
        for what_if in found
    ]


def _compared(what_if: WhatIf, pick: Candidate | None) -> WhatIf:
    if what_if.step_s is None:
        return what_if
    value, here = (pick is not None and counted(pick)) or (0.0, None)
    there = what_if.step_ci95_s
    if here is None or there is None or (pick is not None and pick.simulated):
        return msgspec.structs.replace(what_if, uncompared=_why_not(pick, here))
    bounds = stats.Ratio(value / what_if.step_s, here[0] / there[1], here[1] / there[0], 0)
    between = bounds.widened(math.sqrt(2) * RUN_TO_RUN).interval
    return msgspec.structs.replace(what_if, ratio=bounds.value, ratio_ci95=between)


def _why_not(pick: Candidate | None, here: Interval | None) -> Reason:
    if pick is None:
        return Reason("no_pick", "no pick was measured here")
    if pick.simulated:
        return Reason("simulated", "the pick here is simulated")
    if here is None:
        text = f"the samples of {name_of(pick.case.id)} here are too few for an interval"
        return Reason("few_samples", text, "give it a larger --budget")
    return Reason("few_recorded", "the samples of the recording are too few for an interval")


def devices_by_name(machine: Machine) -> dict[str, list[str]]:
    """What a recording calls the devices of a machine, and their names in its cases; simulated
    ones, and GPUs that CUDA does not show, are none."""
    cpu, kinds = machine.cpu, dict[str, list[str]]()
    if cpu.model is not None:
        # The same model with another number of usable cores is another device.
        cores = "1 core" if cpu.effective_cores == 1 else f"{cpu.effective_cores} cores"
        kinds[_plain(f"{cpu.model}, {cores}")] = ["cpu"]
    for gpu in machine.gpus:
        if gpu.simulated or gpu.name is None or not DEVICE.fullmatch(gpu.device or ""):
            continue
        name = f"{gpu.name}, MIG" if gpu.mig else gpu.name  # a slice of a card is another device
        kinds.setdefault(_plain(name), []).append(gpu.device or "")
    return kinds


def _plain(name: str) -> str:
    return "".join(filter(str.isprintable, name))


def sentence(what_if: WhatIf, objective: str) -> str:
    """`NVIDIA H200 (recorded 2026-11-21), cuda:0 torch bf16: 38.0x faster, 95 %: 36.0-40.0`."""
    name = what_if.name or what_if.device
    if what_if.missing is not None:
        hint = f"; {what_if.missing.hint}" if what_if.missing.hint else ""
        return f"{name}: not known: {what_if.missing.message}{hint}"
    day = (what_if.recorded_at or "").partition("T")[0]
    basis = f"recorded {day}"
    if what_if.of_this_kind:
        basis = f"{basis} on a machine of this kind"
    if what_if.error is not None:
        off = f"those held out are up to {units.percent(what_if.error)} off"
        basis = f"estimated between sizes {basis}; {off}"
    told = f"{name} ({basis}), {name_of(what_if.id or '')}: {_ahead(what_if, objective)}"
    if not what_if.warnings:
        return told
    first, *others = what_if.warnings
    more = f", and {len(others)} more" if others else ""
    return f"{told}; the recording warns: {first.message}{more}"


def _ahead(what_if: WhatIf, objective: str) -> str:
    value, interval = what_if.ratio, what_if.ratio_ci95
    if value is None or interval is None:
        took, why = units.duration(what_if.step_s), what_if.uncompared
        hint = f" ({why.hint})" if why is not None and why.hint else ""
        beside = f": {why.message}{hint}" if why is not None else ""
        return f"{took}{TIMED[objective]}, not compared{beside}"
    if interval[0] <= 1 <= interval[1]:
        told, spread = units.ratio_parts(value, interval)
        return f"not told apart{TIMED[objective]}: time here over time there {told}, 95 %: {spread}"
    word = "faster" if value >= 1 else "slower"
    if value < 1:
        value, interval = 1 / value, (1 / interval[1], 1 / interval[0])
    told, spread = units.ratio_parts(value, interval)
    return f"{told} {word}{TIMED[objective]}, 95 %: {spread}"
