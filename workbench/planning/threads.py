"""The thread counts of CPU candidates."""

import math
from collections.abc import Iterable, Iterator, Sequence

from ..records.machine import Cpu, Machine
from ..records.reason import Warning
from .request import Request
from .scenario import Scenario
from .usage import UsageError


def thread_counts(scenario: Scenario, request: Request, machine: Machine) -> list[int]:
    """The CPU thread counts to race, within the scenario's limit and, by default, the cores."""
    cores, most = machine.cpu.effective_cores, scenario.limits.threads or math.inf
    if request.threads:
        counts = [n for n in request.threads if n <= most]
        if not counts:
            raise UsageError(
                f"--threads: {scenario.id} allows at most {most} (limits.threads), "
                f"not {', '.join(map(str, request.threads))}"
            )
    else:
        allowed = [n for n in scenario.threads if n == "all" or n <= most]
        counts = [int(min(cores, most if n == "all" else n)) for n in allowed]
    return list(dict.fromkeys(counts))


def one_thread_per_core(cpu: Cpu) -> int | None:
    """The number of usable physical cores, as in torch's own default, where more threads than that
    would run by default; None elsewhere."""
    physical = cpu.usable_physical_cores
    return physical if physical and physical < cpu.effective_cores else None


def useful_thread_counts(cpu: Cpu, requested: Sequence[int] = ()) -> tuple[int, ...]:
    """Requested counts, otherwise powers of two, physical cores and all usable cores; the largest
    first."""
    if requested:
        return tuple(sorted(set(requested), reverse=True))
    cores = cpu.effective_cores
    counts = {cores, one_thread_per_core(cpu) or cores}
    counts |= {1 << power for power in range(cores.bit_length()) if 1 << power <= cores}
    return tuple(sorted(counts, reverse=True))


def fewer_threads(
    scenarios: Iterable[Scenario], request: Request, machine: Machine
) -> Iterator[Warning]:
    """A warning for each scenario that asks for more threads than there are cores."""
    cores = machine.cpu.effective_cores
    for scenario in scenarios if not request.threads else ():
        most = scenario.limits.threads or math.inf
        if beyond := [n for n in scenario.threads if n != "all" and cores < n <= most]:
            asked = ", ".join(map(str, beyond))
            text = f"{scenario.id} asks for {asked} threads but only {cores} cores are usable"
            remedy = f"it runs on {cores}; --threads {beyond[0]} runs more threads than cores"
            yield Warning("fewer_threads", text, remedy)
