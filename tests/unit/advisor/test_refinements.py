"""Which ways to better a leader join: fewer threads, more loaders while it waits, compiled code."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import case, scenario
from fakes import CPU_A, FakePool, IdleWorkload, run_race

from workbench.advisor import refinements
from workbench.advisor.refinements import KERNELS_S, LAUNCHES_S
from workbench.contract import Case
from workbench.planning.plan import RowPlan
from workbench.report.candidate import Candidate
from workbench.report.report import Report

GPU = replace(case("cuda:0"), tuning={"loaders": 4})
BF16 = replace(GPU, precision="bf16")
MORE, FEWER = (replace(GPU, tuning={"loaders": count}) for count in (8, 1))
COMPILED = [
    replace(BF16, mode=mode, tuning=tuning)
    for mode in ("max-autotune", "compile", "reduce-overhead")
    for tuning in (GPU.tuning, MORE.tuning)
]


class Loading(FakePool):
    """The GPU waits for its loaders: `waits` is the share."""

    waits = 0.0

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super().block(request)
        return {**answer, "figures": {"waiting_fraction": self.waits}}


def raced(steps_s: dict[Case, float], waits: float = 0.0, rounds: int = 9) -> list[Candidate]:
    pool = type("Waiting", (Loading,), {"waits": waits})
    report: Report = run_race(steps_s, pool_type=pool)[0]
    candidates = list(report.candidates.values())
    for candidate in candidates:
        candidate.blocks = candidate.blocks[:rounds]
    return candidates


def due(candidates: Sequence[Candidate], *refining: Case) -> list[Case]:
    plan = RowPlan(scenario(), IdleWorkload(), refining=list(refining))
    found = refinements.due(plan, candidates)
    assert plan.refining == [each for each in refining if each not in found]
    return found


def modes(cases: Sequence[Case]) -> list[str | None]:
    return [each.mode for each in cases]


def test_a_leader_that_waits_for_data_gets_more_loaders_and_nothing_else() -> None:
    leader = raced({GPU: 0.01}, waits=0.4)
    assert due(leader, FEWER, MORE, *COMPILED) == [MORE]


def test_one_that_does_not_wait_shows_that_fewer_do() -> None:
    leader = raced({GPU: 0.01}, waits=0.01)
    assert [each for each in due(leader, FEWER, MORE) if each.tuning != GPU.tuning] == [FEWER]


@pytest.mark.parametrize(
    ("step_s", "expected"),
    [
        (KERNELS_S / 2, ["reduce-overhead", "compile"]),
        (LAUNCHES_S / 2, ["reduce-overhead", "compile", "max-autotune"]),
        (LAUNCHES_S * 2, ["compile", "max-autotune"]),
    ],
)
def test_compiled_code_joins_in_the_order_of_its_promise(step_s, expected) -> None:
    found = due(raced({BF16: step_s, GPU: 3 * step_s}), *COMPILED)
    assert modes(found) == expected
    assert {each.tuning["loaders"] for each in found} == {4}  # those of the leader


def test_a_mode_that_the_leaders_precision_lacks_joins_in_another() -> None:
    fp32 = [replace(each, precision="fp32") for each in COMPILED]
    leader = raced({GPU: 2 * LAUNCHES_S})
    assert modes(due(leader, *COMPILED)) == ["compile", "max-autotune"]
    assert {each.precision for each in due(leader, *COMPILED, *fp32)} == {"fp32"}


def test_a_tuning_parameter_other_than_loaders_is_tried_on_compiled_code_too() -> None:
    one, two = (replace(BF16, mode="compile", tuning={"hands": count}) for count in (1, 2))
    assert due(raced({one: 0.01}), two) == [two]


def test_fewer_threads_join_for_the_leader_of_the_cpu_alone() -> None:
    full = [replace(CPU_A, threads=8), replace(CPU_A, threads=8, precision="bf16")]
    half = [replace(each, threads=4) for each in full]
    slower_first = raced({full[0]: 0.02, full[1]: 0.01, GPU: 0.001})
    assert due(slower_first, *half) == [half[1]]


def test_one_round_settles_no_leader_and_a_cpu_has_nothing_to_join() -> None:
    assert due(raced({GPU: 0.01}, rounds=1), MORE, *COMPILED) == []
    assert due(raced({CPU_A: 0.01}), MORE, *COMPILED) == []
