"""What to try next follows from what came out, and was never tried already."""

from __future__ import annotations

import msgspec
import pytest
from builders import CROSSOVER, scenario, steady
from verdicts import (
    BATCHED,
    CPU,
    CPU_B,
    DIED,
    FULL,
    GPU,
    LOW,
    NOISY,
    SPENT,
    busy,
    clocked,
    cut_short,
    skipped,
    told,
    with_ceilings,
)

from workbench.contract import Work
from workbench.planning.scenario import Size
from workbench.records import events as ev
from workbench.records.verdict import Verdict


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("Let it run to its end: `workbench advise row`.", told({CPU: [], GPU: []}, cut_short)),
        ("Look at its log.", told({CPU: [], GPU: []}, failed={CPU: DIED, GPU: DIED})),
        (
            "Give it more time: `workbench advise row --budget 120`.",
            told({CPU: [], GPU: []}, skipped(SPENT)),
        ),
        (
            "Give it more time: `workbench advise row --budget 120`.",
            told({CPU: NOISY, GPU: NOISY[::-1]}),
        ),
        ("Take a smaller size.", told({CPU: steady(1.0), GPU: []}, skipped(FULL))),
        (
            "Run it again when the machine is quiet: `workbench advise row`.",
            told({CPU: steady(1.0), GPU: steady(0.5)}, busy),
        ),
        (
            "If an error of 50.0% is acceptable to the job, raise its limit; otherwise race a "
            "precision with a smaller error.",
            told({CPU: steady(1.0), GPU: steady(0.5)}, errors={GPU: 0.5}),
        ),
        (
            "cpu torch bf16 t8 is 2.00x faster: raise the error limit only if 5.0% is "
            "acceptable to the job.",
            told({CPU: steady(1.0), LOW: steady(0.5)}, gpus=[], errors={LOW: 0.05}),
        ),
        (
            "Should 0.4% of error be too much, cpu torch fp32 t8 has 1e-6 and takes 2.00x (95 %: ",
            told({CPU: steady(1.0), LOW: steady(0.5)}, gpus=[], errors={LOW: 0.004}),
        ),
        ("", told({CPU: steady(1.0), CPU_B: steady(2.0)}, gpus=[])),
    ],
)
def test_what_to_try_next_follows_from_what_came_out(words: str, verdict: Verdict) -> None:
    assert verdict.next_best.startswith(words)
    assert bool(words) == bool(verdict.next_best)


def test_memory_bound_in_fp32_alone_is_advised_fewer_bytes() -> None:
    streaming = Work(1e9, 1e10, 64.0, "samples", 1e9)
    found = with_ceilings({CPU: steady(1.2), GPU: steady(1.6)}, streaming, "cpu", "cuda:0")
    assert found.next_best.startswith("Memory bandwidth limits cpu torch fp32 t8: race")
    tried = {CPU: steady(1.2), LOW: steady(2.0), GPU: steady(1.6)}
    assert with_ceilings(tried, streaming, "cpu", "cuda:0").next_best == ""


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "workbench advise row --quick",
            "See at which batch the lead changes: `workbench advise row --quick --crossover`.",
        ),
        ("workbench advise row --quick --crossover", ""),
        (
            "workbench advise row",  # whose budget may leave nothing over
            "See at which batch the lead changes: `workbench advise row --crossover`.",
        ),
    ],
)
def test_the_crossover_is_advised_where_it_was_not_looked_for(command: str, words: str) -> None:
    def asked(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.RacePlanned):
            return msgspec.structs.replace(event, reproduce=command)
        return event

    row = scenario(size=Size("batch", 1, 512))
    verdict = told({CPU: steady(1.0), GPU: steady(0.5)}, asked, row=row)
    assert verdict.next_best == words
    assert verdict.with_crossover(CROSSOVER).next_best == ""


def test_a_larger_budget_replaces_the_one_that_was_given() -> None:
    def given_one(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.RacePlanned):
            return msgspec.structs.replace(event, reproduce="workbench advise row --budget 60")
        return event

    found = told({CPU: NOISY, GPU: NOISY[::-1]}, given_one)
    assert found.next_best == "Give it more time: `workbench advise row --budget 120`."


def test_what_was_noisy_and_is_not_settled_needs_more_time_as_well() -> None:
    found = told({CPU: NOISY, GPU: NOISY[::-1]}, busy)
    assert found.next_best == (
        "Run it again when the machine is quiet, and give it more time: `workbench advise row "
        "--budget 120`."
    )


def test_launches_that_limit_the_gpu_ask_for_a_larger_batch() -> None:
    blocks = {CPU: steady(2e-3), BATCHED: steady(1e-3)}
    advised = "`workbench run work --batch 8..256 --device gpu`"
    assert advised in told(blocks, clocked(0.9e-3)).next_best
    assert told(blocks, clocked(0.1e-3)).next_best == told(blocks, clocked(None)).next_best == ""


def test_a_pick_that_waits_for_its_data_needs_cheaper_loading() -> None:
    def waiting(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.BlockMeasured):
            return msgspec.structs.replace(event, metrics={"waiting_fraction": 0.45})
        return event

    found = told({CPU: steady(2.0), GPU: steady(1.0)}, waiting)
    assert found.next_best.startswith("Make loading cheaper")
