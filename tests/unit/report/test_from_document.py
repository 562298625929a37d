"""A document is as good as the journal it came from, for every way of showing it."""

import json
import math
from dataclasses import replace

import msgspec
import pytest
from builders import OTHER_ROW, case, changed, eventful, events, scenario, steady
from hypothesis import given, strategies as st

from workbench import catalog
from workbench.advisor.verdict import decide
from workbench.export.json import document_parts, dump
from workbench.export.text import run_text
from workbench.records import events as ev
from workbench.records.document import Document
from workbench.report.candidate import ENERGY
from workbench.report.from_document import candidate_of, report_of
from workbench.report.report import Report
from workbench.stats.objectives import OBJECTIVES
from workbench.stats.samples import median

RUN = eventful()
DOCUMENT = Report.of(RUN).document()


@given(st.integers(1, len(RUN)))
def test_a_document_of_a_run_cut_short_anywhere_keeps_what_was_measured(length: int) -> None:
    document = Report.of(RUN[:length]).document()
    again = report_of(document).document()
    assert again.run.status == document.run.status
    measured = {m.id for m in document.measurements}
    assert {m.id for m in again.measurements} == measured
    assert again.measurements == document.measurements
    assert again.warnings == document.warnings
    assert again.verdicts == document.verdicts
    assert again.unanswered == document.unanswered
    assert again.machine == document.machine


def close(value: object, expected: object) -> bool:
    """Whether two JSON values differ by rounded samples at most."""
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            close(value[key], expected[key]) for key in expected
        )
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(close, value, expected))
    if isinstance(expected, float):
        return value == pytest.approx(expected, rel=1e-5)
    return value == expected


def test_rounded_samples_lead_to_the_same_statistics_but_for_a_hundred_thousandth() -> None:
    run = changed(RUN, ev.BlockMeasured, samples_s=lambda e: [s * math.pi for s in e.samples_s])
    report = Report.of(run)
    text = b"".join(document_parts(report))
    again = report_of(msgspec.json.decode(text, type=Document))
    assert close(json.loads(dump(again.document())), json.loads(dump(report.document())))
    assert b"".join(document_parts(again)) != text  # the medians are those of rounded samples
    twice = report_of(msgspec.json.decode(b"".join(document_parts(again)), type=Document))
    assert b"".join(document_parts(twice)) == b"".join(document_parts(again))


def test_a_row_with_a_verdict_comes_back_with_its_question_and_its_command() -> None:
    live, replayed = Report.of(RUN), report_of(DOCUMENT)
    assert list(replayed.rows) == list(live.rows) == ["row", "other"]
    for name, row in live.rows.items():
        again, plan = replayed.rows[name].plan, row.plan
        for field in ("title", "question", "textbook", "objective", "reproduce"):
            assert getattr(again, field) == getattr(plan, field)
        candidates = [(c.case, c.work) for c in row.candidates]  # including those that joined
        assert [(c.case, c.work) for c in replayed.rows[name].candidates] == candidates


def searched(objective: str) -> Report:
    """A row with prices, energy and memory, and one point of its crossover."""
    row = scenario(objective=objective)
    prices = {"cpu": 0.3, "gpu": 3.0}
    report = Report()
    for at, of in ((32, None), (64, "row")):
        cpu, other, gpu, apart = (
            replace(case(name, precision), params={"of": name, "n": at})
            for name, precision in (
                ("cpu-a", "fp32"),
                ("cpu-b", "bf16"),
                ("cuda:0-a", "fp32"),
                ("cpu-a", "fp64"),
            )
        )
        blocks = {cpu: steady(0.03), other: steady(0.01, 8, 0.2), gpu: steady(0.02)}
        raced = blocks if of else {**blocks, apart: steady(0.05)}
        named = row if of is None else scenario(id="row[n=64]", objective=objective)
        for event in events(raced, gpus=["cuda:0"], row=named)[2 if of else 0 :]:
            if isinstance(event, ev.RacePlanned):
                fields = {"of": of, "point": {"n": at}, "textbook": None, "title": row.title}
                fields = {"workload": "work", "prices": prices, **(fields if of else {})}
                event = msgspec.structs.replace(event, **fields)
            if isinstance(event, ev.CasePrepared):
                peak = len(event.case) << 20
                event = msgspec.structs.replace(event, memory_peak_bytes=peak)
            if isinstance(event, ev.BlockMeasured) and event.round != 3:  # a counter wrapped around
                joules = 70 * median(event.samples_s) * (1 + 0.01 * event.round)
                event = msgspec.structs.replace(event, metrics={ENERGY: joules, "waiting_s": 0.1})
            report.apply(event)
        if of is None:
            verdict = decide(report, row)
            report.apply(ev.VerdictReached(at_s=9.2, verdict=verdict))
    return report


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_point_of_a_crossover_counts_what_its_scenario_counts(objective: str) -> None:
    live = searched(objective)
    document = live.document()
    assert any(m.against for m in document.measurements if m.scenario == "row[n=64]")
    again = report_of(msgspec.json.decode(dump(document), type=Document))
    assert dump(again.document()) == dump(
        msgspec.structs.replace(document, run=again.document().run)  # it was not over
    )
    one, other = live.rows["row[n=64]"].plan, again.rows["row[n=64]"].plan
    fields = ("title", "question", "textbook", "objective", "reference_only", "prices", "point")
    for field in (*fields, "of"):
        assert getattr(other, field) == getattr(one, field)


def test_a_plain_run_keeps_the_title_and_objective_of_its_workload() -> None:
    name = "infer_cnn"
    measured = DOCUMENT.measurements[0]
    plain = msgspec.structs.replace(
        measured, scenario=name, case=replace(measured.case, workload=name)
    )
    report = report_of(msgspec.structs.replace(DOCUMENT, measurements=[plain], verdicts=[]))
    workload = catalog.load(name)
    plan = report.rows[name].plan
    assert (plan.title, plan.objective) == (workload.title, "latency_p99")


def test_rounds_of_energy_survive() -> None:
    live = searched("energy")
    again = report_of(live.document())
    for name, candidate in live.candidates.items():
        rounds = candidate.rounds()
        assert again.candidates[name].rounds() == rounds
        assert len(set(rounds.values())) == 7  # one of eight blocks was not read
    verdict = live.rows["row"].verdict
    assert verdict.pick_ratio_ci95 is not None
    assert decide(again, scenario(objective="energy")) == verdict


class Counting(list):
    """Counts how often it is walked through."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_opening_takes_time_in_proportion_to_the_blocks() -> None:
    """A day of measuring has tens of thousands of blocks: no walk through all for each of them."""
    measured = max(DOCUMENT.measurements, key=lambda m: len(m.blocks))
    blocks = Counting(measured.blocks * 50)
    many = msgspec.structs.replace(measured, blocks=blocks, samples_s=measured.samples_s * 50)
    assert len(candidate_of(many, objective="latency").blocks) == len(blocks) >= 50
    assert blocks.walks <= 5


def test_rounds_and_loss_curve_survive() -> None:
    replayed = report_of(DOCUMENT).candidates[case("cpu-a").id]
    assert replayed.loss == [1 / (1 + i) for i in range(8)]
    assert len(replayed.samples_s) == 40
    assert replayed.rounds() == Report.of(RUN).candidates[case("cpu-a").id].rounds()


def test_a_live_document_opened_later_is_incomplete() -> None:
    live = Report()
    for event in RUN[:20]:
        live.apply(event)
    document = live.document()
    assert document.run.status == "running"
    assert report_of(document).document().run.status == "incomplete"


def test_a_row_without_a_verdict_comes_back_as_it_was_planned() -> None:
    row = msgspec.structs.replace(scenario(), title="A job of mine", objective="latency_p99")
    cut = Report.of(events({case("cpu-a"): steady(1.0)}, row=row)[:4])
    assert "A job of mine" in run_text(cut)
    assert run_text(report_of(cut.document())) == run_text(cut)


def test_a_verdict_follows_again_from_its_document() -> None:
    replayed = report_of(DOCUMENT)
    for decided, row in zip(DOCUMENT.verdicts, (scenario(), OTHER_ROW), strict=True):
        again = decide(replayed, row)
        assert again == msgspec.structs.replace(decided, crossover=None)  # found after the verdict
