"""What a verdict says in words follows from the report, and claims no more than it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from builders import case, events, machine, report, scenario, steady
from hypothesis import given
from hypothesis import strategies as st
from verdicts import (
    BATCHED,
    CPU,
    CPU_B,
    DIED,
    FULL,
    GPU,
    GPU_B,
    LOW,
    NOISY,
    ROW,
    SPENT,
    busy,
    clocked,
    cut_short,
    skipped,
    told,
    with_ceilings,
)

from workbench.advisor.verdict import decide
from workbench.contract import Work
from workbench.records import events as ev
from workbench.records.document import SetupTimes
from workbench.records.machine import Isa
from workbench.records.reason import Reason
from workbench.records.verdict import Verdict
from workbench.report.from_document import report_of
from workbench.report.report import Report

# ------------------------------------------------------- every branch's words


@pytest.mark.parametrize(
    ("choice", "words", "verdict"),
    [
        ("gpu", "The GPU is 2.00x (95 %: ", told({CPU: steady(1.0), GPU: steady(0.5)})),
        (
            "cpu",
            "The CPU is 2.00x (95 %: 1.98-2.02) faster, against the textbook's answer.",
            told({CPU: steady(1.0), GPU: steady(2.0)}),
        ),
        (
            "either",
            "Too close to call: CPU time over GPU time is 0.99x",
            told({CPU: steady(1.0), GPU: steady(1.01)}),
        ),
        (
            "unknown",
            "Not settled: CPU time over GPU time is ",
            told({CPU: NOISY, GPU: NOISY[::-1]}),
        ),
        (
            "unknown",
            "Not settled: too few rounds for an interval of CPU time over GPU time.",
            told({CPU: steady(1.0, 2), GPU: steady(0.1, 2)}),
        ),
        (
            "unknown",
            "Nothing was measured: the worker died (2 candidates).",
            told({CPU: [], GPU: []}, failed={CPU: DIED, GPU: DIED}),
        ),
        (
            "unknown",
            "Nothing was measured: the worker died; it needs 90 GiB.",
            told({CPU: [], GPU: []}, failed={CPU: DIED, GPU: FULL}),
        ),
        (
            "unknown",
            "Nothing could be picked: the most accurate of 2, cpu torch fp32 t8, is 2.0% off the "
            "reference, above the limit of 1.0%.",
            told({CPU: steady(1.0), GPU: steady(0.5)}, errors={CPU: 0.02, GPU: 0.5}),
        ),
        (
            "unknown",
            "Nothing could be picked on the GPU: cuda:0 torch fp32 is 50.0% off the reference",
            told({CPU: steady(1.0), GPU: steady(0.5)}, errors={GPU: 0.5}),
        ),
        (
            "unknown",
            "Nothing was measured: the budget left no time for its turn (2 candidates).",
            told({CPU: [], GPU: []}, skipped(SPENT)),
        ),
        (
            "unknown",
            "Nothing was measured on the GPU: it needs 90 GiB.",
            told({CPU: steady(1.0), GPU: []}, skipped(FULL)),
        ),
        (
            "unknown",
            "Nothing was measured: the run was cut short (2 candidates).",
            told({CPU: [], GPU: []}, cut_short),
        ),
        (
            "gpu",
            "The GPU came out 2.00x (95 %: 1.98-2.02) faster, on a weak basis: the run was cut "
            "short.",
            told({CPU: steady(1.0), GPU: steady(0.5)}, cut_short),
        ),
        (
            "gpu",
            "The GPU came out 2.00x (95 %: 1.98-2.02) faster, on a weak basis: others were busy.",
            told({CPU: steady(1.0), GPU: steady(0.5)}, busy),
        ),
        (
            "cpu",
            "The CPU came out 2.00x (95 %: 1.98-2.02) faster; the textbook says GPU, and this does "
            "not settle it, on a weak basis: others were busy.",
            told({CPU: steady(1.0), GPU: steady(2.0)}, busy),
        ),
        (
            "gpu",
            "The GPU came out 2.00x (95 %: 1.98-2.02) faster, on a weak basis: of cuda:0 torch "
            "fp32, few samples (4) (and 1 more reason).",
            told({CPU: [[1.0]] * 4, GPU: [[0.5]] * 4}),
        ),
        (
            "cpu",
            "No GPU found; on the CPU, cpu torch fp32 t8 leads cpu torch fp32 t8 by 2.00x",
            told({CPU: steady(1.0), CPU_B: steady(2.0)}, gpus=[]),
        ),
        (
            "cpu",
            "No GPU found; cpu torch fp32 t8 is the only candidate that could be picked.",
            told({CPU: steady(1.0)}, gpus=[]),
        ),
        (
            "cpu",
            "No GPU found; cpu torch fp32 t8 is the only candidate that could be picked, on a weak "
            "basis: cpu torch fp32 t8 was measured in one round only",
            told({CPU: [[1.0]]}, gpus=[]),
        ),
        (
            "cpu",
            "No GPU found; on the CPU, cpu torch fp32 t8 and cpu torch fp32 t8 are too close to",
            told({CPU: steady(1.0), CPU_B: steady(1.01)}, gpus=[]),
        ),
        (
            "gpu",
            "The simulated GPU is 2.00x",
            told({CPU: steady(1.0), case("fake:0-a"): steady(0.5)}, gpus=["fake:0"]),
        ),
        (
            "cpu",
            "The CPU is 2.00x (95 %: 1.98-2.02) faster than a simulated GPU; the textbook says "
            "GPU, and this does not settle it.",
            told({CPU: steady(1.0), case("fake:0-a"): steady(2.0)}, gpus=["fake:0"]),
        ),
    ],
)
def test_the_outcome_is_worded_as_firmly_as_it_stands(
    choice: str, words: str, verdict: Verdict
) -> None:
    assert verdict.choice == choice
    assert verdict.reasons[0].startswith(words)


def test_where_nothing_was_measured_all_are_counted_and_nothing_is_the_basis() -> None:
    blocks = {CPU: [], CPU_B: [], case("cpu-a", "fp64"): []}  # fp64 races apart
    found = told(blocks, skipped(SPENT), gpus=[])
    assert found.reasons[0].endswith("no time for its turn (3 candidates).")
    assert found.basis == "none"
    one = told({CPU: steady(1.0), CPU_B: []}, skipped(SPENT), gpus=[])
    assert "cpu torch fp32 t8 is the only candidate that was measured" in one.reasons[0]
    assert one.basis == "measured"


def test_the_interval_that_decides_is_told_where_it_alone_decides() -> None:
    spread = [[1.0], [1.12], [1.0], [1.12], [1.0], [1.12]]
    found = told({CPU: spread, GPU: [[1.2]] * 6})
    assert found.choice == "unknown"
    assert found.device_ratio_ci95[1] < 1
    assert found.reasons[0].endswith(", widened for having looked after every round.")
    assert "larger budget" not in found.reasons[0]


def test_against_the_textbook_needs_more_than_the_tolerance() -> None:
    near = told({CPU: steady(1.0, spread=0.005), GPU: steady(1.055, spread=0.005)})
    assert near.choice == "cpu"
    assert near.reasons[0].endswith("; the textbook says GPU, and this does not settle it.")
    clear = told({CPU: steady(1.0), GPU: steady(1.06)})
    assert clear.reasons[0].endswith(", against the textbook's answer.")


def test_a_pick_says_by_how_much_it_leads_the_next_of_its_device() -> None:
    found = told({CPU: steady(4.0), GPU: steady(0.5), GPU_B: steady(1.0)})
    assert "; there cuda:0 torch fp32 leads cuda:0 torch fp32 by 2.00x" in found.reasons[0]
    apart = told({CPU: steady(0.8), GPU: steady(0.5), GPU_B: steady(1.0)})
    assert "; there" not in apart.reasons[0]  # the next is the CPU's, and that is said


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("latency_p99", "faster at the 99th percentile"),
        ("time_to_result", "faster from start-up to result"),
        ("cost", "lower in cost"),
    ],
)
def test_what_is_compared_is_named(objective: str, words: str) -> None:
    def priced(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.RacePlanned):
            return msgspec.structs.replace(event, prices={"cpu": 1.0, "gpu": 1.0})
        return event

    row = scenario(objective=objective)
    assert words in told({CPU: steady(9.0), GPU: steady(3.0)}, priced, row=row).reasons[0]


@pytest.mark.parametrize("gpus", [[], ["cuda:0"]])
def test_what_was_not_read_cannot_be_compared(gpus: list[str]) -> None:
    blocks = {CPU: steady(9.0), CPU_B: steady(3.0), **({GPU: steady(2.0)} if gpus else {})}
    found = told(blocks, row=scenario(objective="energy"), gpus=gpus)
    assert found.pick is None
    assert found.reasons == ["Nothing could be compared: the energy is known of no candidate."]


def test_what_was_read_of_one_device_only_cannot_be_compared_either() -> None:
    def half_priced(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.RacePlanned):
            return msgspec.structs.replace(event, prices={"gpu": 1.0})
        return event

    row = scenario(objective="cost")
    found = told({CPU: steady(9.0), GPU: steady(3.0)}, half_priced, row=row)
    assert (found.choice, found.pick) == ("unknown", GPU.id)
    assert found.reasons[0].endswith("the cost is known of no candidate on the CPU.")


def test_how_little_a_beaten_candidate_was_measured_is_no_doubt() -> None:
    slow = Reason("far_slower", "4.0x slower than cpu torch fp32 t8 in its first block")

    def sent_away(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.CaseFinished) and event.case == CPU_B.id:
            return msgspec.structs.replace(event, reason=slow)
        return event

    found = told({CPU: steady(1.0), CPU_B: [[4.0]]}, sent_away, gpus=[])
    assert found.reasons[0] == (
        "No GPU found; on the CPU, cpu torch fp32 t8 leads, and cpu torch fp32 t8 was sent away: "
        "4.0x slower than cpu torch fp32 t8 in its first block."
    )
    assert "pick_unsettled" not in [warning.code for warning in found.warnings]


# -------------------------------------------------------------------- causes


def test_a_roof_that_is_near_is_named_as_the_limit() -> None:
    streaming = Work(1e9, 1e10, 64.0, "samples", 1e9)
    found = with_ceilings({CPU: steady(1.2), GPU: steady(1.6)}, streaming, "cpu", "cuda:0")
    assert found.reasons[1] == (
        "Memory bandwidth limits cpu torch fp32 t8 (83 % of what it allows), and memory bandwidth "
        "limits cuda:0 torch fp32 (63 % of what it allows)."
    )


def test_a_roof_far_away_is_said_not_to_be_the_limit() -> None:
    products = Work(1e11, 1e6, 64.0, "samples", 1e9)
    found = with_ceilings({CPU: steady(2.5), GPU: steady(50.0)}, products, "cpu", "cuda:0")
    assert found.reasons[1].startswith("cuda:0 torch fp32 reaches only 2.0 % of what arithmetic")


def test_between_near_and_far_nothing_is_said() -> None:
    products = Work(1e11, 1e6, 64.0, "samples", 1e9)
    found = with_ceilings({CPU: steady(4.0), GPU: steady(4.0)}, products, "cpu", "cuda:0")
    assert len(found.reasons) == 1


def test_launches_that_take_as_long_as_the_work_are_named() -> None:
    found = told({CPU: steady(2e-3), BATCHED: steady(1e-3)}, clocked(0.9e-3))
    assert found.reasons[1] == (
        "Launches limit cuda:0 torch fp32: the host takes 900 us to queue a step that keeps the "
        "device for 1.00 ms."
    )
    for other in (0.1e-3, None):  # None: the step itself waits
        quick = told({CPU: steady(2e-3), BATCHED: steady(1e-3)}, clocked(other))
        assert len(quick.reasons) == 1


def test_a_pick_that_waits_for_its_data_says_so() -> None:
    def waiting(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.BlockMeasured):
            return msgspec.structs.replace(event, metrics={"waiting_fraction": 0.45})
        return event

    found = told({CPU: steady(2.0), GPU: steady(1.0)}, waiting)
    assert "waits for its data 45% of the time" in found.reasons[1]


def test_time_to_result_tells_the_start_up_of_both_devices() -> None:
    row = scenario(objective="time_to_result")
    found = told({CPU: steady(0.5), GPU: steady(4.5)}, row=row)
    assert (
        "75% is start-up and set-up (1.50 s), and of that of cuda:0 torch fp32 25%"
        in found.reasons[1]
    )


def machine_with(**isa: bool) -> Callable[[ev.AnyEvent], ev.AnyEvent]:
    def change(event: ev.AnyEvent) -> ev.AnyEvent:
        if not isinstance(event, ev.HardwareDetected):
            return event
        here = machine()
        cpu = msgspec.structs.replace(here.cpu, isa=Isa(avx2=True, **isa))
        return msgspec.structs.replace(event, machine=msgspec.structs.replace(here, cpu=cpu))

    return change


LACKING = {"avx512_bf16": False, "amx_bf16": False, "bf16": False}


def test_a_reduced_precision_wins_by_what_the_processor_has() -> None:
    blocks = {CPU: steady(2.0), LOW: steady(1.0)}
    has = told(blocks, machine_with(avx512_bf16=True), gpus=[])
    assert has.reasons[1].startswith("BF16 is 2.00x (95 %: ")
    assert has.reasons[1].endswith("faster than FP32 done the same way (the CPU has AVX512-BF16).")
    none = told(blocks, machine_with(**LACKING), gpus=[])
    assert none.reasons[1].endswith("(the CPU has no AVX512-BF16 or AMX).")
    unknown = told(blocks, machine_with(), gpus=[])
    assert unknown.reasons[1].endswith("done the same way.")


def test_a_reduced_precision_loses_by_what_the_processor_lacks() -> None:
    found = told({CPU: steady(1.0), LOW: steady(3.0)}, machine_with(**LACKING), gpus=[])
    assert found.reasons[1].startswith("FP32 is 3.00x")
    assert "faster than BF16 done the same way (the CPU has no AVX512-BF16" in found.reasons[1]
    level = told({CPU: steady(1.0), LOW: steady(1.0)}, machine_with(**LACKING), gpus=[])
    assert len(level.reasons) == 1


def test_more_threads_that_take_longer_are_told() -> None:
    few = replace(CPU, threads=2)
    found = told({CPU: steady(2.0), few: steady(1.0)}, gpus=[])
    assert found.reasons[1].startswith("cpu torch fp32 t2 is 2.00x (95 %: ")
    assert found.reasons[1].endswith("faster than on 8 threads.")
    assert len(told({CPU: steady(1.0), few: steady(2.0)}, gpus=[]).reasons) == 1


# -------------------------------------------------------------------- bounds


def test_who_could_not_be_picked_is_told_last() -> None:
    found = told(
        {CPU: steady(1.0), LOW: steady(0.5), CPU_B: []},
        gpus=[],
        errors={LOW: 0.05},
        failed={CPU_B: DIED},
    )
    assert found.reasons[-1] == (
        "Not picked: cpu torch bf16 t8 is 5.0% off the reference, above the limit of 1.0%; "
        "cpu torch fp32 t8 failed: the worker died."
    )


def test_of_many_left_out_two_are_named() -> None:
    lost = {case(f"cpu-{number}"): FULL for number in range(4)}
    found = told({CPU: steady(1.0), **{c: [] for c in lost}}, gpus=[], failed=lost)
    assert found.reasons[-1].startswith("4 candidates could not be picked, such as: ")
    assert found.reasons[-1].count("it needs 90 GiB") == 2


def test_copying_that_outweighs_a_step_is_told_beside_a_ratio_of_steps() -> None:
    def copying(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.CasePrepared) and event.case == GPU.id:
            setup = SetupTimes(transfer_s=3.0, transfer_out_s=1.0)
            return msgspec.structs.replace(event, setup=setup)
        return event

    found = told({CPU: steady(2.0), GPU: steady(1.0)}, copying)
    assert found.reasons[-1] == (
        "Copying to cuda:0 and back once takes 4.00 s, as long as 4.00 of its steps, and is not "
        "counted."
    )


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
