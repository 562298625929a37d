"""The rows of `advise --torch`, by the real engine on a made-up machine."""

from __future__ import annotations

from simulated_own import SimulatedOwn, raced

from workbench.records import events as ev
from workbench.report.report import Report


def test_ways_join_one_after_another_and_the_best_is_picked() -> None:
    found = raced()
    report = Report.of(found)
    for row in report.rows.values():
        print(row.plan.scenario, row.verdict.pick, row.rounds, row.ended_by)
        for c in row.candidates:
            print("  ", c.case.id, len(c.blocks), c.state, c.reason)
    print(report.code, report.last_at_s)
    assert 0
