"""The next step follows from what came out, and is never one that was taken already."""

import re
from dataclasses import replace

import msgspec
import pytest
from builders import CROSSOVER, case, scenario, steady
from verdict_gallery import BOTH, STREAMING
from verdicts import (
    BATCHED,
    CPU,
    GPU,
    LOW,
    NOISY,
    clocked,
    other,
    reproduced_by,
    skipped,
    verdict,
    with_ceilings,
)

from workbench.planning.scenario import Limits, Size
from workbench.records import events as ev
from workbench.records.document import Clocks
from workbench.records.reason import NO_TIME, Reason


def test_more_time_may_settle_what_is_open_although_either_device_will_do() -> None:
    found = verdict({CPU: [[1.055] * 3, [0.965] * 3] * 4, GPU: [[1.0] * 3] * 8})
    assert (found.choice, found.confidence, found.warnings) == ("either", "open", [])
    assert found.next_best == "Raise the budget: `workbench advise row --budget 120`."


@pytest.mark.parametrize(("most", "is_advised"), [(80, True), (50, False)])
def test_no_other_error_limit_is_advised_where_another_limit_forbids_the_candidate_as_well(
    most: int, is_advised: bool
) -> None:
    def with_peaks(event: ev.AnyEvent) -> ev.AnyEvent:
        if not isinstance(event, ev.CasePrepared):
            return event
        peak = 70 << 20 if event.case == LOW.id else 40 << 20
        return msgspec.structs.replace(event, memory_peak_bytes=peak)

    row = scenario(limits=Limits(memory_mib=most))
    blocks = {case("cpu-a", threads=2): steady(2.0), LOW: steady(1.0)}
    found = verdict(blocks, with_peaks, errors={LOW: 0.5}, row=row, gpus=[])
    assert ("Raise the error limit" in found.next_best) is is_advised
    assert ("peak memory 70 MiB, limit 50 MiB" in found.reasons[-1]) is not is_advised


def test_fewer_bytes_are_advised_only_where_they_were_not_tried() -> None:
    tried = {CPU: steady(1.2), LOW: steady(2.0), GPU: steady(1.6)}
    assert with_ceilings(tried, STREAMING, "cpu", "cuda:0").next_best == ""


@pytest.mark.parametrize("issue_s", [0.1e-3, None])
def test_a_larger_batch_is_advised_only_where_launches_limit(issue_s: float | None) -> None:
    blocks = {CPU: steady(2e-3), BATCHED: steady(1e-3)}
    assert verdict(blocks, clocked(issue_s)).next_best == ""


@pytest.mark.parametrize(
    ("batch", "advice"), [(500_000, "--batch 500000..1000000"), (1_000_000, "")]
)
def test_no_batch_beyond_the_largest_is_advised(batch: int, advice: str) -> None:
    large = replace(BATCHED, batch=batch)
    launches = other(ev.BlockMeasured, large, clocks=Clocks("device", 1e-3, 1e-3, 0.9e-3))
    found = verdict({CPU: steady(2e-3), large: steady(1e-3)}, launches)
    assert "Launches limit" in " ".join(found.reasons)
    assert advice in found.next_best
    assert ("--batch" in found.next_best) is bool(advice)


@pytest.mark.parametrize("workload", ["own", "model"])
def test_no_batch_is_advised_of_a_workload_that_run_does_not_know(workload: str) -> None:
    def change(event: ev.AnyEvent) -> ev.AnyEvent:
        event = clocked(0.9e-3)(event)
        if isinstance(event, ev.RacePlanned):
            return msgspec.structs.replace(event, workload=workload)
        return event

    found = verdict({CPU: steady(2e-3), BATCHED: steady(1e-3)}, change)
    assert "Launches limit" in " ".join(found.reasons)
    assert "workbench run" not in found.next_best


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (
            "workbench advise row --quick",
            "See at which batch the lead changes: `workbench advise row --quick --crossover`.",
        ),
        ("workbench advise row --quick --crossover", ""),
        (
            "workbench advise row",  # its budget may leave nothing over
            "See at which batch the lead changes: `workbench advise row --crossover`.",
        ),
    ],
)
def test_the_crossover_is_advised_where_it_was_not_looked_for(command: str, advice: str) -> None:
    row = scenario(size=Size("batch", 1, 512))
    found = verdict(BOTH, reproduced_by(command), row=row)
    assert found.next_best == advice
    assert found.with_crossover(CROSSOVER).next_best == ""


@pytest.mark.parametrize(
    ("command", "longer"),
    [
        ("advise row --budget 60", "advise row --budget 120"),
        ("advise --torch a.py -- --budget 5", "advise --torch a.py --budget 120 -- --budget 5"),
    ],
)
def test_a_larger_budget_replaces_the_one_that_was_given(command: str, longer: str) -> None:
    given = reproduced_by(f"workbench {command}")
    found = verdict({CPU: NOISY, GPU: NOISY[::-1]}, given)
    assert f"`workbench {longer}`" in found.next_best


@pytest.mark.parametrize(("mode", "budget"), [("compile", "120"), ("max-autotune", "150")])
def test_the_larger_budget_is_enough_for_compiling(mode: str, budget: str) -> None:
    late = Reason(NO_TIME, "compiling takes up to 90 s, but 40 s are left", "raise --budget")
    found = verdict({CPU: steady(1.0), replace(GPU, mode=mode): []}, skipped(late))
    assert f"--budget {budget}`" in found.next_best


def test_no_larger_budget_is_advised_where_the_rounds_were_enough() -> None:
    given = reproduced_by("workbench advise row --budget 60")

    def enough(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.RaceEnded):
            return msgspec.structs.replace(event, ended_by="rounds")
        return given(event)

    found = verdict({CPU: NOISY, GPU: NOISY[::-1]}, enough)
    assert found.next_best == ""
    (unsettled,) = (each for each in found.warnings if each.code == "pick_unsettled")
    assert "--budget" not in unsettled.remedy


@pytest.mark.parametrize(
    ("objective", "what"),
    [
        ("latency", "the time"),
        ("latency_p99", "the time at the 99th percentile"),
        ("time_to_result", "the time from start-up to result"),
    ],
)
def test_what_accuracy_costs_is_what_the_row_compares(objective: str, what: str) -> None:
    row = scenario(objective=objective)
    found = verdict({CPU: steady(4.0), LOW: steady(1.0)}, errors={LOW: 5e-3}, row=row, gpus=[])
    assert re.search(rf"accurate to 1e-6 and takes [\d.]+x {what} \(95% CI", found.next_best)


def test_no_crossover_is_advised_for_a_single_candidate() -> None:
    row = scenario(size=Size("batch", 1, 512))
    found = verdict({CPU: steady(1.0)}, reproduced_by("workbench advise row"), row=row, gpus=[])
    assert "--crossover" not in found.next_best


def test_no_budget_beyond_the_longest_is_advised() -> None:
    def of_a_day(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.RunStarted):
            return msgspec.structs.replace(event, budget_s=50_000.0)
        return event

    found = verdict({CPU: NOISY, GPU: NOISY[::-1]}, of_a_day)
    assert "--budget 86400`" in found.next_best
