"""The pick of this machine compared with a recorded run of another device, as numbers and text."""

import math
import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..records.machine import Machine
from ..records.reason import Reason
from ..records.verdict import WhatIf
from ..report.candidate import Candidate
from ..report.names import candidate_name
from ..stats import samples as stats
from ..stats.objectives import SINGLE_STEPS, START_UP_SPREAD
from ..stats.ratios import Z95
from ..stats.samples import Interval
from ..stats.tails import tail_interval
from ..stats.unpaired import far_ends
from ..text import units
from .comparison import TIMED

DEVICE = re.compile(r"[a-z]+:[0-9]+")


def seconds_of(candidate: Candidate) -> tuple[float, Interval | None] | None:
    """Seconds under the candidate's objective, with a distribution-free 95 % interval.

    None if the objective does not count seconds, or counts tails and a sample holds several steps.
    """
    samples, objective = candidate.samples_s, candidate.objective
    if not samples or objective not in TIMED:
        return None
    if objective in SINGLE_STEPS and candidate.iterations_per_sample != 1:
        return None
    if objective == "latency_p99":
        p99_s, blocks = candidate.p99_s, [block.samples_s for block in candidate.blocks]
        return None if p99_s is None else (p99_s, tail_interval(blocks))
    value, interval = stats.median(samples), candidate.interval
    if objective != "time_to_result":
        return value, interval
    fixed_s = candidate.fixed_s
    low, high = (fixed_s * math.exp(sign * Z95 * START_UP_SPREAD) for sign in (-1, 1))
    return fixed_s + value, interval and (low + interval[0], high + interval[1])


def compared(
    answers: Sequence[WhatIf], pick: Candidate | None, machine: Machine | None
) -> list[WhatIf]:
    """Each answer with its `ratio`: the time of the pick here over the time there.

    The two share no rounds, so its interval combines the far ends of both intervals with the spread
    between runs.  Without an interval there is no ratio.
    """
    own = {} if machine is None else devices_by_name(machine)
    return [replace(_compared(each, pick), of_this_kind=each.name in own) for each in answers]


def _compared(what_if: WhatIf, pick: Candidate | None) -> WhatIf:
    if what_if.step_s is None:
        return what_if
    value, here = (pick is not None and seconds_of(pick)) or (0.0, None)
    there, why = what_if.step_ci95_s, None
    if pick is None:
        why = Reason("no_pick", "no pick was measured here")
    elif pick.simulated:
        why = Reason("simulated", "the pick here is simulated")
    elif here is None:
        text = f"{pick.name} has too few samples here for an interval"
        why = Reason("few_samples", text, "raise --budget")
    elif there is None:
        why = Reason("few_recorded", "the recording has too few samples for an interval")
    if why is not None or here is None or there is None:
        return replace(what_if, uncompared=why)
    ratio = far_ends((value, here), (what_if.step_s, there), math.sqrt(2) * what_if.spread)
    return replace(what_if, ratio=ratio.value, ratio_ci95=ratio.interval)


def devices_by_name(machine: Machine) -> dict[str, list[str]]:
    """The names of this machine's devices in a recording, each with the devices of its cases; GPUs
    that are simulated or hidden from CUDA are left out."""
    cpu, kinds = machine.cpu, dict[str, list[str]]()
    if cpu.model is not None:
        # The same model with another number of usable cores counts as another device.
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
    """`NVIDIA H200 (recorded 2026-11-21), cuda:0 torch bf16: 38.0x faster (95% CI 36.0-40.0)`."""
    name = what_if.name or what_if.device
    if what_if.missing is not None:
        return f"{name}: unknown: {what_if.missing.one_line}"
    day = (what_if.recorded_at or "").partition("T")[0]
    basis = f"recorded {day}" + (f" in {what_if.source}" if what_if.source else "")
    if what_if.of_this_kind:
        basis = f"{basis} on a machine of this kind"
    if what_if.error is not None:
        error = f"error up to {units.percent(what_if.error)}"
        basis = f"estimated between sizes {basis}, {error}"
    candidate = candidate_name(what_if.id or "")
    text = f"{name} ({basis}), {candidate}: {_comparison(what_if, objective)}"
    if not what_if.warnings:
        return text
    first, *others = what_if.warnings
    more = f" (and {len(others)} more)" if others else ""
    return f"{text}; warning in the recording: {first.message}{more}"


def _comparison(what_if: WhatIf, objective: str) -> str:
    value, interval = what_if.ratio, what_if.ratio_ci95
    if value is None or interval is None:
        took, why = units.duration(what_if.step_s), what_if.uncompared
        cause = f": {why.one_line}" if why is not None else ""
        return f"{took}{TIMED[objective]}, not compared{cause}"
    if interval[0] <= 1 <= interval[1]:
        return f"cannot be distinguished{TIMED[objective]}: {units.apart(value, interval)}"
    factor, ci = units.ratio_parts(*units.above_1(value, interval))
    word = "faster" if value >= 1 else "slower"
    return f"{factor} {word}{TIMED[objective]} (95% CI {ci})"
