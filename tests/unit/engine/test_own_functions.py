"""The rows of `advise --function`, by the real engine on a made-up machine."""

from typing import Any, ClassVar

import pytest
from simulated_own import FACTS, SimulatedOwn, raced

from workbench.advisor.comparison import as_written
from workbench.contract import Case
from workbench.planning.questions import OwnQuestion
from workbench.planning.usage import UsageError
from workbench.records import events as ev
from workbench.report.report import Report


class Sizeless(SimulatedOwn):
    facts: ClassVar = {**FACTS, "kind": "function", "name": "m:work", "batch": None}


def test_a_batch_needs_a_function_with_a_size() -> None:
    with pytest.raises(UsageError, match=r"^--batch: m:work has no batch to change: no param"):
        raced(Sizeless, own=OwnQuestion("function", "m:work"), batch=(4,))


class Sized(SimulatedOwn):
    facts: ClassVar = {**Sizeless.facts, "batch": 1}

    def step_s(self, case: Case) -> float:
        return 0.02

    def accuracy(self, case: Case) -> dict[str, Any]:
        found = {"metric": "relative_error", "reference": "the result of the first call"}
        return {**found, "value": 0.0, "limit": 1e-3, "passed": True}


@pytest.mark.parametrize(
    ("own", "facts", "noted"),
    [
        (OwnQuestion("function", "m:work"), {}, "no parameter `device`, so it races on the CPU"),
        (OwnQuestion("function", "m:work"), {"takes_device": True}, ""),
        (OwnQuestion("command", "./job"), {"kind": "command"}, "no {device}, so it chooses where"),
        (OwnQuestion("command", "./job {device}", over=("device=cpu,cuda",)), {}, ""),
    ],
)
def test_code_that_cannot_be_given_a_gpu_has_a_note_where_there_is_one(own, facts, noted) -> None:
    notes = Report.of(raced(Sized, own=own, facts=facts, gpu=True)).code.facts.notes
    assert (noted in "".join(notes)) if noted else not notes
    assert not Report.of(raced(Sized, own=own, facts=facts, devices=("cpu",))).code.facts.notes


@pytest.mark.parametrize(
    ("threads", "raced_with"), [((), [2, 1]), ((1, 3, 1), [3, 1])], ids=["default", "asked"]
)
def test_threads_are_all_half_and_one_or_those_asked_for(threads, raced_with) -> None:
    events = raced(Sized, own=OwnQuestion("function", "m:work"), threads=threads)
    planned = next(each for each in events if isinstance(each, ev.RacePlanned))
    assert [case.threads for case in planned.cases] == raced_with


def test_a_function_runs_as_written_on_the_threads_of_the_users_shell(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    report = Report.of(raced(Sized, own=OwnQuestion("function", "m:work")))
    row = report.rows["own"]
    assert [each.case.threads for each in row.candidates] == [1, 2]
    assert as_written(row, report.code) is row.candidates[0]
    report = Report.of(raced(Sized, own=OwnQuestion("function", "m:work"), threads=(2,)))
    assert as_written(report.rows["own"], report.code) is None


class Growing(Sized):
    """One thread is faster at small sizes, two are at large ones."""

    def step_s(self, case: Case) -> float:
        work = 1e-4 * (case.batch or 1)
        return 0.01 + work if case.threads == 1 else 0.03 + work / 2


def test_each_size_of_a_function_has_a_row_and_the_answer_says_where_it_flips() -> None:
    report = Report.of(raced(Growing, own=OwnQuestion("function", "m:work"), batch=(1, 1000)))
    threads = [
        report.candidates[row.verdict.pick].case.threads
        for row in report.rows.values()
        if row.verdict is not None and row.verdict.pick is not None
    ]
    assert (list(report.rows), threads) == (["own", "own[batch=1000]"], [1, 2])
    (flip,) = report.code.advice.flips
    assert flip.startswith("The answer flips at batch 1000:")


@pytest.mark.parametrize(
    ("own", "sizes"), [(None, [None]), (1, [1, 8]), (7, [7, 56]), (40, [40, 5])]
)
def test_a_function_races_at_its_own_size_and_at_another(own, sizes) -> None:
    class OfSize(Sized):
        facts: ClassVar = {**Sizeless.facts, "batch": own}

    planned = Report.of(raced(OfSize, own=OwnQuestion("function", "m:work"))).rows.values()
    assert [row.candidates[0].case.batch for row in planned] == sizes
