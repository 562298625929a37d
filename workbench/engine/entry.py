"""When the cases of a row enter its race."""

from collections.abc import Iterable
from itertools import zip_longest

from ..contract import Case
from ..planning.admission import small_probe_of
from ..planning.plan import RowPlan
from ..records.machine import Cpu


def entry_order(plan: RowPlan, cpu: Cpu) -> tuple[list[Case], list[Case], list[Case]]:
    """The cases that enter the race at once, those that enter late, and those for reference only.

    Precisions that this CPU only emulates enter once the others are decided: preparing one can
    take a hundred times as long, and a timeout kills the worker that it shares with them.
    Reference-only precisions race last, among themselves, in the time that the decision leaves.
    All cases enter at once in a row that ends without a pick, or that would begin without any.
    Compiled ones come last in each group, so that the others are ready if compiling takes too long.
    """
    cases = sorted(plan.cases, key=lambda case: case.is_compiled)
    if not plan.decides:
        return cases, [], []
    reference_only = [c for c in cases if c.precision in plan.scenario.reference_only]
    if len(reference_only) == len(cases):
        reference_only = []
    deciding = [case for case in cases if case not in reference_only]
    late = [case for case in deciding if small_probe_of(case, plan.workload, cpu)]
    if len(late) == len(deciding):
        late = []
    return [case for case in deciding if case not in late], late, reference_only


def by_promise(cases: Iterable[Case]) -> list[Case]:
    """The cases, those on GPUs ordered by how fast their mode and precision promise to be."""
    rank = {precision: -at for at, precision in enumerate(("fp32", "tf32", "fp16", "bf16"))}

    def place(case: Case) -> tuple[bool, bool, int]:
        words = case.mode_words
        return "graph" not in words, "nhwc" not in words, rank.get(case.precision, 0)

    return sorted(cases, key=lambda c: place(c) if c.device_kind == "gpu" else (True, True, 0))


def in_turns(cases: Iterable[Case]) -> list[Case]:
    """One case of each kind of device in turn, compiled ones last, so that each kind has some ready
    if time runs out while they are prepared."""
    of_kind: dict[str, list[Case]] = {}
    for case in cases:
        of_kind.setdefault(case.device_kind, []).append(case)
    mixed = [case for rank in zip_longest(*of_kind.values()) for case in rank if case is not None]
    return sorted(mixed, key=lambda case: case.is_compiled)
