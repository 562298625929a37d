"""A report is its events, folded; its document is valid at every point of a run."""

from __future__ import annotations

import math

import msgspec
import pytest
from builders import case, events, report, scenario, steady
from hypothesis import given
from hypothesis import strategies as st

from workbench import events as ev
from workbench.document import Document
from workbench.export.json import dump
from workbench.measure import statistics as stats
from workbench.replay import events_of
from workbench.report import Report

CPU, GPU = case("cpu-a"), case("cuda:0-a")
RUN = [
    *events({CPU: steady(0.5), GPU: steady(0.1)}, gpus=["cuda:0"]),
    ev.RunFinished(
        at_s=10.0, status="done", finished_at="2026-11-21T00:00:10Z", duration_s=10.0, exit_code=0
    ),
]


@given(st.integers(1, len(RUN)))
def test_every_prefix_of_a_run_is_a_valid_document(length: int) -> None:
    document = Report.of(RUN[:length]).document()
    text = dump(document)
    assert msgspec.json.decode(text, type=Document, strict=True) == document
    assert "NaN" not in text
    assert document.run.status == ("done" if length == len(RUN) else "incomplete")


def test_what_derives_from_the_samples() -> None:
    (measured, _) = report({CPU: [[2.0] * 60, [4.0] * 60], GPU: []}).measurements
    assert (measured.n, measured.median_s, measured.min_s) == (120, 3.0, 2.0)
    assert measured.throughput.value == pytest.approx(64 / 3)
    assert measured.throughput.unit == "samples/s"
    assert measured.flops_per_s == pytest.approx(1e9 / 3)
    assert measured.p99_s == 4.0
    assert measured.ci95_s == (2.0, 4.0)


def test_tails_and_intervals_need_enough_samples() -> None:
    (measured, nothing) = report({CPU: [[1.0] * 5], GPU: []}).measurements
    assert (measured.p99_s, measured.ci95_s) == (None, None)
    assert [w.code for w in measured.warnings] == ["few_samples"]
    assert (nothing.n, nothing.median_s, nothing.throughput) == (0, None, None)


def test_grouped_iterations_have_no_tail() -> None:
    built = events({CPU: [[1.0] * 200]})
    grouped = [
        msgspec.structs.replace(e, iterations_per_sample=8) if isinstance(e, ev.CasePrepared) else e
        for e in built
    ]
    (measured,) = Report.of(grouped).measurements
    assert measured.p99_s is None
    assert measured.iterations_per_sample == 8


def test_an_unstable_median_is_told() -> None:
    wild = [[1.0, 2.0, 4.0, 8.0]] * 5
    (measured,) = report({CPU: wild}).measurements
    assert "unstable" in [w.code for w in measured.warnings]


def test_a_discarded_block_counts_nowhere() -> None:
    discarded = ev.BlockDiscarded(
        at_s=5.0, case=CPU.id, reason=ev.Reason("suspended", "the machine slept")
    )
    assert Report.of([*RUN, discarded]).measurements == Report.of(RUN).measurements


@given(
    st.lists(st.floats(1e-6, 10), min_size=1, max_size=150),
    st.lists(st.floats(1e-6, 10), min_size=0, max_size=20),
)
def test_a_document_replayed_is_the_same_document(first, second) -> None:
    blocks = {CPU: [first], GPU: [second] if second else []}
    document = report(blocks, gpus=["cuda:0"]).document()
    again = Report.of(events_of(document)).document()
    again.run = document.run
    for before, after in zip(document.measurements, again.measurements, strict=True):
        assert math.isclose(before.flops_per_s or 0, after.flops_per_s or 0, rel_tol=1e-9)
        after.flops_per_s, after.throughput = before.flops_per_s, before.throughput
    assert again == document


def test_an_objective_decides_what_a_round_is_worth() -> None:
    row = scenario(objective="latency_p99")
    blocks = {CPU: [[1.0] * 99 + [50.0]]}
    slow = report(blocks, row=row).contenders[CPU.id].rounds()
    assert slow == {0: stats.quantile(blocks[CPU][0], 0.99)}
    assert report(blocks).contenders[CPU.id].rounds() == {0: 1.0}


def test_without_a_beginning_there_is_no_document() -> None:
    with pytest.raises(ValueError, match="not begun"):
        Report().document()
