"""The summary on top of a document says what its verdicts say."""

import msgspec
import pytest
import scenes
from builders import case, changed, eventful
from msgspec.structs import replace

from workbench.export.json import document_parts
from workbench.records import events as ev
from workbench.report.from_document import report_of
from workbench.report.report import Report


@pytest.mark.parametrize("events", [eventful(), scenes.h200(), scenes.cancelled()])
def test_it_has_one_entry_for_each_verdict(events: list[ev.AnyEvent]) -> None:
    document = Report.of(events).document()
    assert document.verdicts
    for entry, verdict in zip(document.summary, document.verdicts, strict=True):
        assert (entry.scenario, entry.device) == (verdict.scenario, verdict.choice)
        lead, bounds = verdict.lead
        assert entry.lead == (lead and float(f"{lead:.6g}"))
        assert entry.lead_ci95 == (bounds and tuple(float(f"{end:.6g}") for end in bounds))
        assert (entry.pick.id if entry.pick else None) == verdict.pick
        assert (entry.confidence, entry.basis) == (verdict.confidence, verdict.basis)
    assert report_of(document).document().summary == document.summary


def test_the_lead_is_that_of_the_device_where_both_raced() -> None:
    seen = set()
    for verdict in Report.of(scenes.h200()).verdicts:
        ratio, bounds = verdict.device_ratio, verdict.device_ratio_ci95
        on_gpu = verdict.pick == verdict.best_gpu
        seen.add(on_gpu)
        lead, ci95 = verdict.lead
        assert lead == pytest.approx(ratio if on_gpu else 1 / ratio)
        assert ci95 == pytest.approx(bounds if on_gpu else (1 / bounds[1], 1 / bounds[0]))
    assert seen == {True, False}
    alone = Report.of(scenes.cpu_only()).verdicts[0]
    assert alone.lead == (alone.pick_ratio, alone.pick_ratio_ci95)


def test_a_pick_has_the_keys_that_apply_to_it() -> None:
    text = b"".join(document_parts(Report.of(eventful()))).decode()
    (first, *_) = msgspec.json.decode(text)["summary"]
    gpu = case("cuda:0-a")
    expected = {"id": gpu.id, "device": "cuda:0", "backend": "torch", "precision": "fp32"}
    assert first["pick"] == expected
    picks = [entry.pick for entry in Report.of(scenes.cpu_only()).document().summary]
    assert all(pick and pick.threads and pick.threads >= 1 for pick in picks)
    assert text.index('"summary"') < text.index('"measurements"')


def test_a_verdict_without_a_pick_has_none() -> None:
    unknown = {"verdict": lambda event: replace(event.verdict, pick=None, choice="unknown")}
    found = Report.of(changed(eventful(), ev.VerdictReached, **unknown)).document().summary
    assert [(entry.pick, entry.device) for entry in found] == [(None, "unknown")] * 2
