"""The gains that a table of ranked candidates shows."""

import pytest
from builders import case, events, steady

from workbench.advisor.ranking import RankedCandidate, gain_over, gain_text
from workbench.report.report import Report

GIVEN, MADE = case("cpu-a"), case("cpu-b")
STALLED = [[0.4] * 5, *[[0.002] * 5] * 4, [0.4] * 5]
SLOWED = [*[[0.4] * 5] * 4, *[[0.002] * 50] * 6]


@pytest.mark.parametrize(
    ("given", "rounds", "gain"),
    [
        (steady(0.002), 8, 2.0),
        (steady(0.002), 1, 2.0),  # no interval, and the two medians say the same
        (STALLED, 8, None),  # an interval that says next to nothing
        (STALLED, 1, None),  # only in the round of the stall
        ([[0.0054] * 5, *[[0.0029] * 5] * 7], 1, None),  # 5.4x in its only round, 2.9x by medians
        (SLOWED, 4, None),  # the given was slow in these four rounds, and the medians say 2x
    ],
)
def test_a_gain_is_shown_only_where_the_measurement_supports_it(given, rounds, gain) -> None:
    report = Report.of(events({GIVEN: given, MADE: steady(0.001, rounds)}))
    base, made = (report.candidates[each.id] for each in (GIVEN, MADE))
    (row,) = report.rows.values()
    found = RankedCandidate.of(made, row, base, "", variant="", given=False).gain
    assert found == (gain if gain is None else pytest.approx(gain, rel=0.05))


def test_one_noisy_round_leaves_no_figure() -> None:
    report = Report.of(events({GIVEN: STALLED, MADE: steady(0.001, 1)}))
    (row,) = report.rows.values()
    gained = gain_over(report.candidates[GIVEN.id], report.candidates[MADE.id])
    said = gain_text(gained, row.plan.objective, "X")
    assert said == "not comparable with X: one or two noisy rounds only"


@pytest.mark.parametrize(
    ("quiet", "said"),
    [
        (0.002, "at least 1.98x faster than X, but their times vary too much for an exact figure"),
        (0.001, "best so far, but its times and those of X vary too much for a figure"),
    ],
)
def test_medians_that_contradict_the_rounds_leave_no_figure(quiet: float, said: str) -> None:
    given = [*[[0.4] * 5] * 4, *[[quiet] * 50] * 6]
    report = Report.of(events({GIVEN: given, MADE: steady(0.001, 4)}))
    (row,) = report.rows.values()
    gained = gain_over(report.candidates[GIVEN.id], report.candidates[MADE.id])
    assert gain_text(gained, row.plan.objective, "X") == said
