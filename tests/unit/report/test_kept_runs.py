"""Journals and documents of older versions still open and still say the same."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from workbench.advisor.verdict import decide
from workbench.export.json import dump
from workbench.planning import scenarios
from workbench.records import events as ev
from workbench.records.document import Document
from workbench.report.report import Report
from workbench.report.run_files import open_run, read_journal
from workbench.stats import paired

FIXTURES = Path(__file__).parents[2] / "fixtures"
JOURNALS = sorted(FIXTURES.glob("journals/*.jsonl"))
NAMES = [path.stem for path in JOURNALS]
SCENARIOS = scenarios.load()
PROSE = {"message", "remedy", "hint", "reasons", "next_best"}


@pytest.fixture(autouse=True)
def trimmed_as_then(monkeypatch) -> None:
    """The ratios of these runs were trimmed from five rounds on."""
    monkeypatch.setattr(paired, "TRIMMED_FROM", 5)


def expected(name: str) -> Any:
    """The document, with the keys that are younger."""
    document = msgspec.json.decode((FIXTURES / f"documents/{name}.json").read_bytes())
    document["run"] = {**document["run"], "resumes": None, "carried": {}}
    document["run"]["extended_s"] = 0.0
    if (overhead := document["run"]["overhead"]) is not None:
        phases = ("starting_s", "preparing_s", "idle_s", "closing_s")
        overhead |= {**dict.fromkeys(phases), "rows": {}}
    for measured in document["measurements"]:
        measured["work"].setdefault("host_bytes", 0.0)
        measured["setup"].setdefault("loading_s", None)
        if (accuracy := measured["accuracy"]) is not None:
            accuracy |= {"error_bound": None, "held_out": False, "inputs": 0}
            for output in accuracy["outputs"]:
                output.setdefault("part", None)
    if (code := document.get("code")) is not None:
        code["facts"] |= {"passes_device": False, "named": False, "threads": None}
        code["facts"] |= {"trains": False, "lingers": False, "of_one_size": False}
        code["facts"] |= {"compiled": False, "graph": False, "calls": 1, "returns_changes": False}
        for module in code["facts"]["modules"]:
            module |= {"altered": False, "sizes": 0}
    if (model := document.get("model")) is not None:
        model["facts"] |= {"check_samples": 0, "folds": 0}
        model["facts"] |= {"needed_inputs": None, "no_promise": None, "weights_are_inputs": False}
    document["machine"]["cpu"].setdefault("usable_physical_cores", None)
    document["machine"].setdefault("mps", False)
    for gpu in document["machine"]["gpus"]:
        gpu.setdefault("compute_mode", None)
        gpu.setdefault("worker_cores", None)
        gpu.setdefault("l2_cache_bytes", None)
        gpu.setdefault("platform", None)
        gpu.setdefault("row_remap", None)
    for verdict in document["verdicts"]:
        verdict.setdefault("confidence", "unrated")
        if (crossover := verdict["crossover"]) is not None:
            crossover.setdefault("before", None)
    return {"code": None, "summary": [], "unanswered": [], **document}


def without_prose(value: Any) -> Any:
    """The same JSON value with every sentence that may be reworded left out."""
    if isinstance(value, dict):
        return {key: without_prose(item) for key, item in value.items() if key not in PROSE}
    return [without_prose(item) for item in value] if isinstance(value, list) else value


def comparable(document: Any) -> Any:
    """The document without the words of measurement warnings, the only ones derived on opening."""
    for measurement in document["measurements"]:
        measurement["warnings"] = without_prose(measurement["warnings"])
    return {**document, "summary": []}  # derived from the verdicts


def as_json(report: Report) -> Any:
    return comparable(msgspec.json.decode(dump(report.document())))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["journals/{}.jsonl", "documents/{}.json"])
def test_a_kept_run_opens_as_the_same_document(name: str, kind: str) -> None:
    report = open_run(str(FIXTURES / kind.format(name))).report
    assert as_json(report) == comparable(expected(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["journals/{}.jsonl", "documents/{}.json"])
def test_a_kept_run_leads_to_the_same_verdicts(name: str, kind: str) -> None:
    report = open_run(str(FIXTURES / kind.format(name))).report
    recorded = [v for v in expected(name)["verdicts"] if v["scenario"] in SCENARIOS]
    for verdict in recorded:
        again = decide(report, SCENARIOS[verdict["scenario"]])
        found = without_prose(msgspec.json.decode(msgspec.json.encode(again)))
        # Found after the verdict, and younger than the kept runs.
        later = {"crossover": None, "confidence": again.confidence}
        best = ("best_cpu", "best_gpu")  # without these an entry is younger, too
        measured = [each for each in found["equal_precision"] if any(map(each.get, best))]
        assert {**found, "equal_precision": measured} == without_prose({**verdict, **later})


def test_the_kept_runs_hold_what_a_run_can_hold() -> None:
    documents = [msgspec.convert(expected(name), Document) for name in NAMES]
    assert {d.run.status for d in documents} == {"done", "cancelled"}
    measurements = [m for d in documents for m in d.measurements]
    assert {m.status for m in measurements} == {"ok", "skipped", "failed", "cancelled"}
    assert any(m.simulated for m in measurements)
    assert any(m.operators for m in measurements)
    assert any(m.metrics for m in measurements)
    for name in ("sweeps", "model", "trace", "largest_batches", "verdicts"):
        assert any(getattr(d, name) for d in documents), name
    assert any(v.crossover for d in documents for v in d.verdicts)
    assert any(v.prices for d in documents for v in d.verdicts)


def test_a_row_without_a_turn_hides_no_result_of_a_row_with_the_same_cases() -> None:
    (path,) = (each for each in JOURNALS if each.stem == "advise-command")
    events = read_journal(path).events
    report = Report.of(events)
    for kind in (ev.RacePlanned, ev.RaceStarted):
        first = next(event for event in events if isinstance(event, kind))
        report.apply(replace(first, scenario="again"))
    assert report.has_results
