"""The word for the confidence in a verdict: each border, and what lowers it."""

import msgspec
import pytest
from builders import case, changed, events, report, scenario, steady
from hypothesis import assume, given, strategies as st
from verdict_gallery import GALLERY

from workbench.advisor.evidence import lead_word
from workbench.advisor.verdict import decide
from workbench.contract import Case
from workbench.records.events import BlockMeasured, CaseFinished, CasePrepared, WarningRaised
from workbench.records.reason import Reason, Warning
from workbench.records.verdict import LIKELY, OPEN, SURE, TIE, Verdict
from workbench.report.candidate import ENERGY
from workbench.report.from_document import contradictions
from workbench.report.report import Report
from workbench.stats.paired import Ratio

CPU, CPU_B, GPU, GPU_B = (case(name) for name in ("cpu-a", "cpu-b", "cuda:0-a", "cuda:0-b"))
ROW = scenario()
BUSY = Warning("busy_machine", "others were busy", "stop them", "row")
SPENT = Reason("budget", "no time was left for its turn")


def lead(low: float, high: float) -> Ratio:
    return Ratio((low * high) ** 0.5, low, high, 9)


def word(low: float, high: float, all_looks: float | None = None) -> str:
    """`all_looks`: the lower bound over all looks, where it differs."""
    return lead_word(lead(low, high), lead(low if all_looks is None else all_looks, high))


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((1.0501, 1.2), SURE),
        ((1.05, 1.2), LIKELY),  # not above
        ((1.2, 1.4, 1.0499), LIKELY),  # the interval that holds over all looks decides
        ((1.2, 1.4, 0.9), LIKELY),
        ((1.0001, 1.0501), LIKELY),
        ((1.0, 1.0501), OPEN),
        ((1.01, 1.05), TIE),  # excludes 1, but equivalence is shown
        ((1 / 1.05, 1.05), TIE),
        ((0.952, 1.05), OPEN),  # 1 / 1.05 is 0.95238
        ((0.96, 1.06), OPEN),
        ((0.5, 0.9), OPEN),
    ],
)
def test_every_border(bounds: tuple[float, ...], expected: str) -> None:
    assert word(*bounds) == expected


def test_without_an_interval_it_is_open() -> None:
    assert lead_word(None, None) == lead_word(lead(2, 3), None) == OPEN


bound = st.floats(0.5, 2.0)
STRENGTH = {OPEN: 0, LIKELY: 1, SURE: 2}


@given(bound, bound, st.floats(1, 2), st.floats(1, 2))
def test_the_word_is_monotone_in_the_bounds(low, reach, narrower, higher) -> None:
    before = word(low, low * (1 + reach))
    # A narrower interval never weakens a word, and a tie stays one.
    high = max(low, low * (1 + reach) / narrower)
    after = word(low, high)
    assert after == before or before == OPEN or (before, after) == (LIKELY, TIE)
    # A greater lead never weakens a word; only a tie may open up on its way.
    above = word(low * higher, low * (1 + reach) * higher)
    assume(TIE not in (before, above))
    assert STRENGTH[above] >= STRENGTH[before]


@given(st.floats(1, 2), st.floats(1, 2), st.floats(1, 2))
def test_more_looks_never_strengthen_the_word(low, reach, looks) -> None:
    known, adjusted = word(low, low * reach), word(low, low * reach, low / looks)
    assert adjusted == known or known == SURE


# ------------------------------------------------------------- whole verdicts


def confidence(blocks, warning: Warning | None = None, row=ROW, **options) -> str:
    built = events(blocks, row=row, **options)
    if warning is not None:
        built.insert(4, WarningRaised(at_s=0.4, warning=warning))
    return decide(Report.of(built), row).confidence


@pytest.mark.parametrize(
    ("rival", "expected"), [(2.0, SURE), (1.053, LIKELY), (1.001, TIE), (1.08, SURE)]
)
def test_without_a_gpu_the_word_rates_the_pick(rival: float, expected: str) -> None:
    blocks = {CPU: steady(1.0, spread=0.001), CPU_B: steady(rival, spread=0.001)}
    assert confidence(blocks) == expected


def test_where_both_devices_raced_the_word_rates_the_choice() -> None:
    level = {CPU: steady(280.0), GPU: steady(1.0), GPU_B: steady(1.0)}
    assert confidence(level, gpus=["cuda:0"]) == SURE
    clear = {CPU: steady(1.0), GPU: steady(1.0), GPU_B: steady(280.0)}
    assert confidence(clear, gpus=["cuda:0"]) == TIE


def test_an_unknown_choice_is_open_although_there_is_a_pick() -> None:
    lost = {GPU: Reason("no_memory", "it did not fit")}
    blocks = {CPU: steady(1.0), CPU_B: steady(3.0), GPU: []}
    assert confidence(blocks, gpus=["cuda:0"], failed=lost) == OPEN
    assert confidence({CPU: []}, failed={CPU: Reason("worker_died", "it died")}) == OPEN


def test_a_pick_without_a_rival_is_sure() -> None:
    assert confidence({CPU: steady(1.0)}) == SURE
    assert confidence({CPU: [[1.0]]}) == LIKELY, "but one round is a doubt"


@pytest.mark.parametrize("objective", ["energy", "memory"])
def test_a_rival_without_a_reading_of_the_objective_is_a_doubt(objective: str) -> None:
    row, unread = scenario(objective=objective), case("cpu-c")
    read = {CPU: (3.0, 60 << 20), CPU_B: (6.0, 120 << 20)}  # joules and bytes

    def reached(*raced: Case) -> Verdict:
        built = events({each: steady(1.0) for each in raced}, row=row)
        for each in set(raced) & read.keys():
            joules, peak = read[each]
            built = changed(built, BlockMeasured, each, metrics={ENERGY: joules})
            built = changed(built, CasePrepared, each, memory_peak_bytes=peak)
        return decide(Report.of(built), row)

    assert reached(CPU, CPU_B).confidence == SURE
    assert reached(CPU, CPU_B, unread).confidence == LIKELY
    alone = reached(CPU, unread)
    assert (alone.pick, alone.confidence) == (CPU.id, OPEN)
    assert "is the only candidate whose" in alone.reasons[0]


def test_a_pick_that_left_the_race_early_is_a_doubt() -> None:
    built = events({CPU: steady(1.0), CPU_B: steady(3.0)})
    left = Reason("far_slower", "at least 3.00x slower than cpu numpy fp32 t8, and time is short")
    found = decide(Report.of(changed(built, CaseFinished, CPU, reason=left)), ROW)
    assert (found.pick, found.confidence) == (CPU.id, LIKELY)


def test_a_pick_whose_only_rivals_were_left_unmeasured_is_open() -> None:
    """It was compared with nothing."""
    assert confidence({CPU: steady(1.0), CPU_B: []}, failed={CPU_B: SPENT}) == OPEN


@pytest.mark.parametrize(("first_s", "expected"), [(4.0, LIKELY), (2.1, OPEN)])
def test_what_was_far_behind_a_candidate_that_failed_may_be_near_the_pick(
    first_s: float, expected: str
) -> None:
    late = case("cpu-c")
    blocks = {CPU: steady(1.0, 5), CPU_B: steady(1.9), late: steady(first_s, 1)}
    built = events(blocks, failed={CPU: Reason("worker_died", "it died")})
    behind = Reason("far_slower", "at least 2.08x slower than cpu torch fp32 t8 in its first turn")
    found = decide(Report.of(changed(built, CaseFinished, late, reason=behind)), ROW)
    assert (found.pick, found.confidence) == (CPU_B.id, expected)
    assert ("was eliminated after its first turn" in found.reasons[0]) is (expected == LIKELY)


@pytest.mark.parametrize(("rival", "calm", "busy"), [(2.0, SURE, SURE), (1.053, LIKELY, OPEN)])
def test_a_busy_machine_lowers_it_only_next_to_a_tie(rival: float, calm: str, busy: str) -> None:
    blocks = {CPU: steady(1.0, spread=0.005), CPU_B: steady(rival, spread=0.005)}
    assert (confidence(blocks), confidence(blocks, BUSY)) == (calm, busy)


@pytest.mark.parametrize(("rival", "expected"), [(3.0, SURE), (1.8, LIKELY)])
def test_an_overloaded_machine_lowers_it_up_to_a_lead_of_two(rival: float, expected: str) -> None:
    overloaded = Warning("overloaded_machine", "others used 1.8 of 2 cores", "stop them", "row")
    assert confidence({CPU: steady(1.0), CPU_B: steady(rival)}, overloaded) == expected


def test_a_busy_machine_lowers_it_where_one_time_costs_count() -> None:
    blocks, row = {CPU: steady(1.0), CPU_B: steady(2.0)}, scenario(objective="time_to_result")
    assert (confidence(blocks, row=row), confidence(blocks, BUSY, row)) == (SURE, LIKELY)


def test_candidates_that_did_not_race_lower_it_by_one_step() -> None:
    blocks = {CPU: steady(1.0), CPU_B: steady(3.0), case("cpu-c"): []}
    assert confidence(blocks, failed={case("cpu-c"): SPENT}) == LIKELY
    blocks[CPU_B] = steady(1.0)
    assert confidence(blocks, failed={case("cpu-c"): SPENT}) == OPEN


@pytest.mark.parametrize(("missed", "expected"), [(GPU_B, SURE), (CPU_B, LIKELY)])
def test_a_missed_candidate_on_the_better_device_cannot_overturn_the_choice(
    missed: Case, expected: str
) -> None:
    blocks = {CPU: steady(2.0), GPU: steady(1.0), missed: []}
    assert confidence(blocks, gpus=["cuda:0"], failed={missed: SPENT}) == expected


def test_a_missed_candidate_for_reference_only_is_no_doubt() -> None:
    exact = case("cpu-a", "fp64")
    blocks = {CPU: steady(2.0), GPU: steady(1.0), GPU_B: [], exact: []}
    lost = {GPU_B: SPENT, exact: SPENT}
    assert confidence(blocks, gpus=["cuda:0"], failed=lost) == SURE


@pytest.mark.parametrize("gpu_s", [0.1, 10.0])
def test_forms_that_no_time_was_left_to_make_may_run_on_either_device(gpu_s: float) -> None:
    unmade = Warning("unmeasured", "no time was left for its INT8 forms", "raise --budget", "row")
    blocks = {CPU: steady(1.0), GPU: steady(gpu_s)}
    assert confidence(blocks, gpus=["cuda:0"]) == SURE
    assert confidence(blocks, unmade, gpus=["cuda:0"]) == LIKELY


def test_few_samples_do_not_lower_it() -> None:
    found = decide(report({CPU: [[1.0]] * 6, CPU_B: [[3.0]] * 6}), ROW)
    assert "few_samples" in [warning.code for warning in found.warnings]
    assert found.confidence == SURE


@pytest.mark.parametrize("name", GALLERY)
def test_the_sentence_doubts_what_the_word_doubts(name: str) -> None:
    found = GALLERY[name]()
    is_doubted = "Weak evidence" in found.reasons[0] or " looks " in found.reasons[0]
    assert not (is_doubted and found.confidence in (SURE, TIE))
    if found.choice == "unknown" and found.textbook:
        assert found.confidence == OPEN


def test_a_document_with_another_word_is_refused() -> None:
    built = report({CPU: steady(1.0), CPU_B: steady(3.0)})
    strange = msgspec.structs.replace(decide(built, ROW), confidence="certain")
    document = msgspec.structs.replace(built.document(), verdicts=[strange])
    (flaw,) = contradictions(document)
    assert flaw.startswith("verdicts[0].confidence is 'certain', not one of sure, likely, tie,")


# ------------------------------------------------------- what had no turn


def remedy(reason: Reason, resumes: str | None = None, others: int = 1) -> str:
    """That for one candidate of three that had no time, in a run with `others` further rows."""
    missed = case("cpu-c")
    built = events({CPU: steady(1.0), CPU_B: steady(3.0), missed: []}, failed={missed: reason})
    built[0] = msgspec.structs.replace(built[0], resumes=resumes)
    for number in range(others):
        built += events({CPU: steady(1.0)}, row=scenario(id=f"other{number}"))[2:]
    warnings = decide(Report.of(built), ROW).warnings
    return next(each.remedy for each in warnings if each.code == "unmeasured")


def test_what_had_no_turn_has_a_price_unless_it_was_not_ready_in_time() -> None:
    more = "with --budget 120 or more"
    assert remedy(SPENT) == f"it takes about 5 s more in this row: race it alone, or {more}"
    late = Reason("budget", "it was not ready within its 12 s of the budget")
    assert remedy(late) == f"race this row alone, or {more}"


def test_a_row_that_raced_alone_is_not_advised_to() -> None:
    more = "with --budget 120 or more"
    assert remedy(SPENT, others=0) == f"it takes about 5 s more in this row: race it {more}"


def test_a_larger_budget_has_a_turn_for_each_candidate_that_had_none() -> None:
    missed = {case(f"cpu-{name}"): SPENT for name in "cdefgh"}
    rounds = {CPU: steady(1.0), CPU_B: steady(3.0), **{key: [] for key in missed}}
    warnings = decide(Report.of(events(rounds, failed=missed)), ROW).warnings
    unmeasured = next(each for each in warnings if each.code == "unmeasured")
    assert unmeasured.message == "no time was left for 6 of 8 candidates"
    assert unmeasured.remedy.endswith("in this row: race it with --budget 240 or more")


def test_twice_the_part_that_a_resumed_run_has_of_a_budget_is_no_remedy() -> None:
    assert remedy(SPENT, "20261121-000000-cut0").endswith("in this row: race it alone")
