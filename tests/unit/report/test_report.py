"""A report is its events, folded; its document is valid at every point of a run."""

import math
import re
from collections.abc import Iterator
from typing import get_args

import msgspec
import pytest
from builders import case, changed, eventful, events, report, scenario, steady
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from workbench.contract import Work
from workbench.records import events as ev
from workbench.records.document import Document
from workbench.report.from_document import report_of
from workbench.report.report import Report
from workbench.stats import samples as stats

CPU, GPU = case("cpu-a"), case("cuda:0-a")
RUN = [
    *events({CPU: steady(0.5), GPU: steady(0.1)}, gpus=["cuda:0"]),
    ev.RunFinished(
        at_s=10.0, status="done", finished_at="2026-11-21T00:00:10Z", duration_s=10.0, exit_code=0
    ),
]


EVENTFUL = eventful()


def test_the_eventful_run_has_every_kind_of_event() -> None:
    assert {type(event) for event in EVENTFUL} == set(get_args(ev.AnyEvent))


@given(st.integers(1, len(EVENTFUL)))
def test_every_prefix_of_an_eventful_run_is_valid_json_without_non_numbers(length: int) -> None:
    report = Report()
    for event in EVENTFUL[:length]:
        report.apply(ev.decode(ev.encode(event)))
    document = report.document()
    text = msgspec.json.encode(document)
    assert msgspec.json.decode(text, type=Document, strict=True) == document
    assert not {"NaN", "Infinity"} & set(re.findall(r"NaN|Infinity", text.decode()))
    assert all(math.isfinite(number) for number in numbers(msgspec.json.decode(text)))


def numbers(value) -> Iterator[float]:
    """All numbers of a decoded JSON value."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, (int, float)):
        yield value
        return
    for inner in value.values() if isinstance(value, dict) else value:
        yield from numbers(inner)


def fold(*events: ev.AnyEvent) -> Report:
    """The eventful run up to its plans, and then these."""
    return Report.of([*EVENTFUL[:4], *events])


@pytest.mark.parametrize("length", [4, 20])
def test_a_document_is_a_snapshot_that_later_events_leave_alone(length: int) -> None:
    report = Report()
    for event in EVENTFUL[:length]:
        report.apply(event)
    early = report.document()
    written = msgspec.json.encode(early)
    for event in EVENTFUL[length:]:
        report.apply(event)
    assert msgspec.json.encode(early) == written
    assert report.document() != early


def test_a_candidate_passes_from_waiting_to_its_end() -> None:
    report, states = Report(), []
    for event in EVENTFUL:
        report.apply(event)
        known = report.candidates.get(case("cpu-b").id)
        if known is not None and known.state not in states:
            states.append(known.state)
    assert states == ["waiting", "prepared", "measuring", "ok"]


def test_a_case_that_has_not_ended_is_cancelled_in_the_document() -> None:
    preparing = ev.CasePreparing(at_s=1.0, case=case("cpu-a").id)
    report = fold(preparing)
    assert report.candidates[case("cpu-a").id].state == "preparing"
    assert report.measurements[0].status == "cancelled"
    assert not report.candidates[case("cpu-a").id].ended


def test_how_each_case_ended_stands_in_the_document() -> None:
    found = {m.id: m for m in Report.of(EVENTFUL).measurements}
    assert {m.status for m in found.values()} == {"ok", "failed", "skipped"}
    assert found[case("cpu-c").id].reason.code == "worker_died"
    assert found[case("cuda:0-other").id].reason.hint == "take a smaller size"
    assert found[case("cpu-a").id].reason is None


def test_a_row_is_finished_when_it_has_begun_and_all_its_candidates_have_ended() -> None:
    report, seen = Report(), []
    for event in EVENTFUL:
        report.apply(event)
        if "other" in report.rows:
            seen.append((report.rows["row"].finished, report.rows["other"].finished))
    assert sorted(set(seen)) == [(True, False), (True, True)]
    assert seen == sorted(seen)


def test_a_row_that_has_a_verdict_is_finished_though_it_never_began() -> None:
    decided = next(e for e in EVENTFUL if isinstance(e, ev.VerdictReached))
    assert not fold().rows["row"].finished
    assert fold(decided).rows["row"].finished


def test_the_current_case_and_row_follow_the_race_and_end_with_it() -> None:
    report, current = Report(), []
    for event in EVENTFUL:
        report.apply(event)
        if isinstance(event, ev.BlockMeasured):
            current.append((report.current_row, report.current_case))
            assert report.current_case == event.case
    assert set(current) == {
        ("other", case("cpu-other").id),
        *(("row", case(name).id) for name in ("cpu-a", "cpu-b", "cuda:0-a")),
    }
    assert (report.current_row, report.current_case) == (None, None)


def test_time_never_runs_backwards_in_a_report() -> None:
    late = ev.StatusChanged(at_s=50.0, status="paused")
    early = ev.StatusChanged(at_s=3.0, status="running")
    report = fold(late, early)
    assert report.last_at_s == 50.0


def test_a_pause_is_the_status_until_it_ends() -> None:
    report = Report()
    for event in [*EVENTFUL[:4], ev.StatusChanged(at_s=1.0, status="paused")]:
        report.apply(event)
    assert report.document().run.status == "paused"
    report.apply(ev.StatusChanged(at_s=2.0, status="running"))
    assert report.document().run.status == "running"


def test_an_event_of_an_unknown_case_is_an_error_of_its_sender() -> None:
    with pytest.raises(KeyError):
        fold(ev.CasePreparing(at_s=1.0, case="nobody"))


def test_losses_and_lead_ins_are_kept_in_their_order() -> None:
    found = Report.of(EVENTFUL).measurements[0]
    assert found.loss == [1 / (1 + i) for i in range(8)]
    assert found.lead_in_s == [3.0] * 8
    assert 3.0 not in found.samples_s


def test_a_case_prepared_twice_keeps_what_it_had_measured() -> None:
    again = replace(
        next(e for e in EVENTFUL if isinstance(e, ev.CasePrepared)), iterations_per_sample=1
    )
    report = Report.of([*EVENTFUL[:-1], again])
    assert report.candidates[again.case].samples_s == [s for b in steady(1.2) for s in b]


def test_a_simulated_device_is_marked_on_its_measurement() -> None:
    found = report({CPU: steady(1.0), case("fake:0-a"): steady(0.5)}).measurements
    assert [m.simulated for m in found] == [False, True]


@given(st.integers(1, 250), st.integers(1, 3))
@example(5, 1)
@example(6, 1)
@example(9, 1)
@example(10, 1)
@example(99, 1)
@example(100, 1)
@example(100, 2)
def test_statistics_need_enough_samples(n: int, iterations: int) -> None:
    measured = events({CPU: [[float(i) for i in range(1, n + 1)]]})
    built = changed(measured, ev.CasePrepared, iterations_per_sample=iterations)
    (found,) = Report.of(built).measurements
    assert (found.p99_s is not None) == (n >= 100 and iterations == 1)
    assert (found.ci95_s is not None) == (n >= 6)
    assert ("few_samples" in [w.code for w in found.warnings]) == (n < 10)
    assert found.min_s <= found.p10_s <= found.median_s <= found.p90_s <= n
    assert all(warning.subject == CPU.id for warning in found.warnings)


def test_without_counted_operations_there_is_no_flop_rate() -> None:
    uncounted = {CPU.id: Work(None, None, 64.0, "samples", 1e7)}
    built = changed(events({CPU: steady(1.0)}), ev.RacePlanned, work=uncounted)
    (found,) = Report.of(built).measurements
    assert found.flops_per_s is None
    assert found.throughput.value == pytest.approx(64, rel=0.01)


def test_the_statistics_of_a_measurement() -> None:
    (measured, nothing) = report({CPU: [[2.0] * 60, [4.0] * 60], GPU: []}).measurements
    assert (measured.n, measured.median_s, measured.min_s) == (120, 3.0, 2.0)
    assert measured.throughput.value == pytest.approx(64 / 3)
    assert measured.throughput.unit == "samples/s"
    assert measured.flops_per_s == pytest.approx(1e9 / 3)
    assert measured.p99_s == 4.0
    assert measured.ci95_s == (2.0, 4.0)
    assert (nothing.n, nothing.median_s, nothing.throughput) == (0, None, None)


def test_an_unstable_median_has_a_warning() -> None:
    wild = [[1.0, 2.0, 4.0, 8.0]] * 5
    (measured,) = report({CPU: wild}).measurements
    assert "unstable" in [w.code for w in measured.warnings]


def test_a_disturbed_row_marks_all_its_measured_candidates_and_no_others() -> None:
    document = Report.of(eventful()).document()
    marked = {m.id for m in document.measurements if "busy_machine" in [w.code for w in m.warnings]}
    assert marked == {m.id for m in document.measurements if m.scenario == "row" and m.n}
    assert marked


def test_a_discarded_block_counts_nowhere() -> None:
    discarded = ev.BlockDiscarded(
        at_s=5.0, case=CPU.id, reason=ev.Reason("suspended", "the machine slept")
    )
    assert Report.of([*RUN, discarded]).measurements == Report.of(RUN).measurements


@given(
    st.lists(st.floats(1e-6, 10), min_size=1, max_size=150),
    st.lists(st.floats(1e-6, 10), min_size=0, max_size=20),
)
def test_an_opened_document_is_the_same_document(first, second) -> None:
    blocks = {CPU: [first], GPU: [second] if second else []}
    document = report(blocks, gpus=["cuda:0"]).document()
    again = report_of(document).document()
    again.run = document.run
    for before, after in zip(document.measurements, again.measurements, strict=True):
        assert math.isclose(before.flops_per_s or 0, after.flops_per_s or 0, rel_tol=1e-9)
        after.flops_per_s, after.throughput = before.flops_per_s, before.throughput
    assert again == document


def test_an_objective_decides_what_a_round_is_worth() -> None:
    row = scenario(objective="latency_p99")
    blocks = {CPU: [[1.0] * 99 + [50.0]]}
    slow = report(blocks, row=row).candidates[CPU.id].rounds()
    assert slow == {0: stats.quantile(blocks[CPU][0], 0.99)}
    assert report(blocks).candidates[CPU.id].rounds() == {0: 1.0}


def test_without_a_beginning_there_is_no_document() -> None:
    with pytest.raises(ValueError, match="not begun"):
        Report().document()
