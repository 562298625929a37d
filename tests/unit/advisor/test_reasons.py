"""The reasons of a verdict follow from the report and claim no more than it holds.

Their words stand in `golden/sentences.txt`; here stand the facts that a sentence must not miss.
"""

import re
from dataclasses import replace

import pytest
from builders import case, events, report, scenario, steady
from hypothesis import given, strategies as st
from verdict_gallery import GALLERY, NO_BF16
from verdicts import (
    BATCHED,
    CPU,
    CPU_B,
    DIED,
    GPU,
    GPU_B,
    LOW,
    ROW,
    SPENT,
    clocked,
    copying,
    machine_with,
    skipped,
    verdict,
    with_ceilings,
)

from workbench.advisor.verdict import decide
from workbench.contract import Work
from workbench.records import events as ev
from workbench.report.from_document import report_of
from workbench.report.report import Report

# ------------------------------------------------------------------ outcome


def test_where_nothing_was_measured_all_are_counted_and_nothing_is_the_basis() -> None:
    blocks = {CPU: [], CPU_B: [], case("cpu-a", "fp64"): []}  # fp64 races for reference only
    found = verdict(blocks, skipped(SPENT), gpus=[])
    assert "ran out of time (3 candidates)" in found.reasons[0]
    assert found.basis == "none"
    one = GALLERY["no GPU and one measured"]()
    assert "the only candidate that was measured" in one.reasons[0]
    assert one.basis == "measured"
    blocks = {CPU: steady(1.0), CPU_B: [], case("cpu-a", "fp64"): steady(3.0)}
    two = verdict(blocks, skipped(SPENT), gpus=[])
    assert "the only candidate that could be picked" in two.reasons[0]


@pytest.mark.parametrize(
    ("ended_by", "choice"),
    [("decided", "unknown"), ("cancelled", "unknown"), ("budget", "cpu"), ("rounds", "cpu")],
)
def test_the_last_look_decides_only_where_no_earlier_one_ended_the_race(ended_by, choice) -> None:
    built = report({CPU: [[1.0], [1.12]] * 3, GPU: [[1.2]] * 6}, gpus=["cuda:0"])
    built.rows["row"].ended_by = ended_by
    assert decide(built, ROW).choice == choice


def test_only_an_interval_around_1_is_too_close_to_call() -> None:
    open_, small = (verdict({CPU: steady(1.0, 20), GPU: steady(t, 20)}) for t in (1.003, 1.03))
    assert (open_.choice, small.choice) == ("either", "either")
    assert open_.reasons[0].startswith("Too close to call: ")
    assert small.reasons[0].startswith("The CPU leads by less than 5%: ")


def test_a_likely_lead_is_not_too_close_to_call() -> None:
    found = verdict({CPU: [[1.105], [1.02]] * 3, GPU: [[1.0]] * 6})
    assert (found.choice, found.confidence) == ("either", "likely")
    assert found.reasons[0].startswith("The GPU probably leads: the CPU's time is 1.06x the GPU's")
    assert "Adjusted for repeated looks" in found.reasons[0]


def test_a_tpu_that_leads_is_called_so() -> None:
    tpu = case("tpu:0-a")
    close, far = (
        verdict({CPU: steady(1.0, 20), tpu: steady(s, 20)}, gpus=["tpu:0"]) for s in (0.97, 0.5)
    )
    assert close.reasons[0].startswith(
        "The TPU leads by less than 5%: the CPU's time is 1.03x the TPU's"
    )
    assert far.reasons[0].startswith("The TPU is 2.00x faster than the CPU")


def test_the_usual_advice_is_contradicted_only_beyond_the_tolerance() -> None:
    near = GALLERY["the CPU wins by little"]()
    assert near.choice == "cpu"
    assert "cannot confirm or refute" in near.reasons[0]
    clear = verdict({CPU: steady(1.0), GPU: steady(1.06)})
    assert "contradicts" in clear.reasons[0]
    among_others = verdict({CPU: steady(1.0), CPU_B: steady(1.0), GPU: steady(2.0)})
    assert re.search(r"than the GPU \([^)]+\)\. This contradicts", among_others.reasons[0])


def test_a_pick_says_by_how_much_it_leads_the_next_of_its_device() -> None:
    found = verdict({CPU: steady(4.0), GPU: steady(0.5), GPU_B: steady(1.0)})
    assert "cuda:0 torch fp32 is 2.00x faster than cuda:0 torch fp32 nhwc" in found.reasons[0]
    between = verdict({CPU: steady(0.8), GPU: steady(0.5), GPU_B: steady(1.0)})
    assert "nhwc" not in between.reasons[0]  # the next is the CPU's, and that is said


@pytest.mark.parametrize("gpus", [[], ["cuda:0"]])
def test_an_energy_that_was_not_read_cannot_be_compared(gpus: list[str]) -> None:
    blocks = {CPU: steady(9.0), CPU_B: steady(3.0), **({GPU: steady(2.0)} if gpus else {})}
    found = verdict(blocks, row=scenario(objective="energy"), gpus=gpus)
    assert found.pick is None
    (reason,) = found.reasons
    assert "energy of every candidate is unknown" in reason


# -------------------------------------------------------------------- causes


def test_between_near_and_far_from_a_roof_nothing_is_said() -> None:
    products = Work(1e11, 1e6, 64.0, "samples", 1e9)
    found = with_ceilings({CPU: steady(4.0), GPU: steady(4.0)}, products, "cpu", "cuda:0")
    assert len(found.reasons) == 1


@pytest.mark.parametrize(("threads", "is_said"), [(8, True), (2, False)])
def test_the_ceiling_of_all_cores_says_nothing_of_a_candidate_on_few(threads, is_said) -> None:
    products, few = Work(1e11, 1e6, 64.0, "samples", 1e9), replace(CPU, threads=threads)
    found = with_ceilings({few: steady(50.0), GPU: steady(90.0)}, products, "cpu")
    assert ("something else holds it back" in " ".join(found.reasons)) == is_said


@pytest.mark.parametrize("issue_s", [0.1e-3, None])  # None: the step itself waits
def test_launches_that_are_quick_or_unknown_are_not_mentioned(issue_s: float | None) -> None:
    quick = verdict({CPU: steady(2e-3), BATCHED: steady(1e-3)}, clocked(issue_s))
    assert len(quick.reasons) == 1


def test_nothing_is_said_of_instructions_that_are_not_known() -> None:
    unknown = verdict({CPU: steady(2.0), LOW: steady(1.0)}, machine_with(), gpus=[])
    assert "The CPU" not in unknown.reasons[1]


def test_a_cause_needs_a_proven_gain() -> None:
    level = verdict({CPU: steady(1.0), LOW: steady(1.0)}, machine_with(**NO_BF16), gpus=[])
    assert len(level.reasons) == 1
    blocks = {CPU: steady(1.03, spread=0.2), LOW: steady(1.0, spread=0.2)[::-1]}
    assert "BF16 is" not in " ".join(verdict(blocks, machine_with(**NO_BF16), gpus=[]).reasons)
    few = replace(CPU, threads=2)
    assert len(verdict({CPU: steady(1.0), few: steady(2.0)}, gpus=[]).reasons) == 1


# -------------------------------------------------------------------- bounds


def test_a_cause_needs_medians_that_agree() -> None:
    fewer, slowed = replace(CPU, threads=2), [*[[0.4] * 5] * 4, *[[0.001] * 50] * 6]
    said = verdict({fewer: steady(0.001, 4), CPU: steady(0.4, 4)}).reasons
    assert any("than with 8 threads" in text for text in said)
    said = verdict({fewer: steady(0.001, 4), CPU: slowed}).reasons
    assert not any("than with 8 threads" in text for text in said)


def test_a_count_of_steps_has_commas_as_in_other_sentences() -> None:
    many = verdict({CPU: steady(2e-3), GPU: steady(5e-4)}, copying)
    assert re.search(r"4\.00 s \(\d,\d\d0 steps\)", many.reasons[-1])


# ----------------------------------------------------- the same words always

CASES = [CPU, CPU_B, LOW, case("cpu-a", "fp64"), GPU, GPU_B]
times_s = st.sampled_from([0.5, 1.0, 1.01, 2.0, 30.0])
rounds_of = st.sampled_from([0, 1, 2, 4, 8])
reports = st.fixed_dictionaries({c: st.tuples(times_s, rounds_of) for c in CASES})


@given(reports, st.permutations(CASES), st.sets(st.sampled_from(CASES)), st.booleans())
def test_order_and_replay_change_no_word(drawn, order, off, has_gpu) -> None:
    blocks = {c: steady(*drawn[c]) for c in CASES if has_gpu or c.device == "cpu"}
    errors = dict.fromkeys(off, 0.05)
    failed = {c: DIED for c in blocks if not blocks[c]}
    gpus = ["cuda:0"] if has_gpu else []
    found = decide(report(blocks, gpus=gpus, errors=errors, failed=failed), ROW)
    shuffled = {c: blocks[c] for c in order if c in blocks}
    built = events(shuffled, gpus=gpus, errors=errors, failed=failed)
    again = decide(Report.of(built), ROW)
    assert (again.reasons, again.next_best) == (found.reasons, found.next_best)
    live = Report.of([*built, ev.VerdictReached(at_s=9.5, verdict=again)])
    assert decide(report_of(live.document()), ROW) == again
    assert 1 <= len(found.reasons) <= 3
    assert all(text.endswith(".") and not text.endswith("..") for text in found.reasons)
    if found.choice == "unknown":
        assert not found.reasons[0].startswith("The ")
