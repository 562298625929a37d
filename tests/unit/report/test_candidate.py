"""The values that a candidate has under an objective, and what they share."""

import pytest
from builders import case, report, scenario, steady
from money import priced_report

from workbench.records.document import SetupTimes
from workbench.records.reason import BUDGET, NO_TIME, Reason
from workbench.stats import ratios

A, B, GPU = case("cpu-a"), case("cpu-b"), case("cuda:0-a")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SetupTimes(import_s=1.0, build_s=3.0), SetupTimes(import_s=1.0, build_s=3.3)),
        (SetupTimes(import_s=4.0), SetupTimes(import_s=4.3)),  # each in a process of its own
    ],
)
def test_what_each_start_up_costs_is_seen_only_once(one: SetupTimes, other: SetupTimes) -> None:
    row = scenario(objective="time_to_result")
    blocks = {A: steady(1e-3, 5), B: steady(1e-3, 5)}
    found = priced_report(blocks, setups={A: one, B: other}, row=row).candidates
    ratio = ratios.ratio_between(found[B.id].rounds(), found[A.id].rounds())
    assert ratio.low < 1 < ratio.value


def test_an_import_in_the_same_process_cancels_out() -> None:
    row = scenario(objective="time_to_result")
    setups = {A: SetupTimes(import_s=4.0), B: SetupTimes(import_s=4.0)}
    blocks = {A: steady(1.0, 5), B: steady(1.2, 5)}
    found = priced_report(blocks, setups=setups, row=row).candidates
    ratio = ratios.ratio_between(found[B.id].rounds(), found[A.id].rounds())
    assert ratio.low > 1


@pytest.mark.parametrize(
    ("objective", "field", "value"),
    [
        ("cost", "price_per_hour", 0.0),
        ("memory", "memory_peak_bytes", -1),
        ("time_to_result", "setup", SetupTimes(import_s=-9.0)),
    ],
)
def test_a_document_with_an_impossible_value_has_no_comparison(objective, field, value) -> None:
    found = report({A: steady(1.0), B: steady(1.0)}, row=scenario(objective=objective))
    for candidate in found.candidates.values():
        setattr(candidate, field, value)
    assert [measured.against for measured in found.measurements] == [None, None]


def test_a_gpus_memory_is_not_compared_with_the_hosts() -> None:
    blocks = {A: steady(1.0, 5), B: steady(1.0, 5), GPU: steady(1.0, 1)}
    found = report(blocks, row=scenario(objective="memory"), gpus=["cuda:0"])
    for each, peak in ((A, 100), (B, 200), (GPU, 10)):
        found.candidates[each.id].memory_peak_bytes = peak
    first, second, apart = found.measurements
    assert first.against is apart.against is None
    assert (second.against.id, second.against.ratio) == (A.id, pytest.approx(2.0))


def test_a_measured_candidate_that_ran_out_of_time_was_not_eliminated() -> None:
    (measured,) = report({case("cpu-a"): steady(1.0)}).candidates.values()
    assert measured.state == "ok"
    for code, eliminated in (("beaten", True), (BUDGET, False), (NO_TIME, False)):
        measured.reason = Reason(code, "why")
        assert measured.eliminated is eliminated
