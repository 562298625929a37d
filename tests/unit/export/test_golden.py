"""Whole outputs of the plain front end, kept as files: the one place that freezes its wording.

After a wanted change: `UPDATE_GOLDEN=1 pytest tests/unit/export/test_golden.py`, and read
the difference.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import builders
import machines
import msgspec
import own_runs
import pytest
import scenes
import simulated_lab

from workbench.advisor.compare import RunSide, compared
from workbench.export.text import run_text, summary_text
from workbench.export.view.ceilings import ceilings_text
from workbench.export.view.comparison import sections
from workbench.export.view.events import log_line
from workbench.export.view.machine import machine_text
from workbench.export.view.section import section_text
from workbench.records import events as ev
from workbench.records.comparison import RunComparison
from workbench.records.document import Document, Tool
from workbench.report.from_document import contradictions, report_of
from workbench.report.report import Report

FOLDER = Path(__file__).parent / "golden"
RUNS = {
    "eventful": builders.eventful(),
    "gpu_server": scenes.h200(),
    "cpu_only": scenes.cpu_only(),
    "simulated": scenes.simulated(),
    "cancelled": scenes.cancelled(),
    "crossover": scenes.crossing(),
    "sweep": scenes.sweep(),
    "profiled": scenes.profiled(),
    "largest_batch": scenes.largest_batch(),
    "model": simulated_lab.done(),
    **{f"own_{name}": make() for name, make in own_runs.GALLERY.items()},
}


def log_of(events: Sequence[ev.AnyEvent]) -> str:
    report, lines = Report(), []
    for event in events:
        report.apply(event)
        lines.append(log_line(event, report))
    return "\n".join(filter(None, lines))


SIDES = RunSide("A", Report.of(RUNS["cpu_only"])), RunSide("B", Report.of(RUNS["gpu_server"]))
COMPARISON = RunComparison(
    schema_version=1,
    tool=Tool("workbench", "0", "compare"),
    fail_on=0.05,
    runs=[side.run for side in SIDES],
    against=[compared(*SIDES, 0.05)],
)
REPORTS = {name: Report.of(events) for name, events in RUNS.items()}
OUTPUTS = {
    **{name: run_text(report) for name, report in REPORTS.items()},
    **{
        f"{name}_80": run_text(REPORTS[name], 80)
        for name in ("gpu_server", "model", "sweep", "own_net")
    },
    **{
        f"{name}_summary": summary_text(REPORTS[name], 80)
        for name in ("cpu_only", "sweep", "own_script")
    },
    **{f"{name}_log": log_of(RUNS[name]) for name in ("eventful", "cancelled", "model", "own_net")},
    "detect": machine_text(*machines.gpu_server()),
    "comparison": section_text(sections(COMPARISON)),
    "ceilings": ceilings_text(builders.ceilings("cpu", "cuda:0")),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_output_is_as_kept(name: str) -> None:
    file = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(OUTPUTS[name] + "\n")
    assert OUTPUTS[name] + "\n" == file.read_text()


def test_every_kept_file_has_its_output() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(OUTPUTS)


@pytest.mark.parametrize("name", RUNS)
def test_a_journal_and_a_document_lead_to_the_same_text(name: str) -> None:
    text, document = run_text(REPORTS[name]), REPORTS[name].document()
    assert run_text(Report.of(ev.decode(ev.encode(event)) for event in RUNS[name])) == text
    assert list(contradictions(document)) == []
    again = report_of(msgspec.json.decode(msgspec.json.encode(document), type=Document))
    assert again.document() == document
    assert run_text(again) == text


@pytest.mark.parametrize("name", OUTPUTS)
def test_plain_text_is_ascii_without_trailing_blanks(name: str) -> None:
    assert OUTPUTS[name].isascii()
    assert all(text == text.rstrip() for text in OUTPUTS[name].splitlines())


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name.endswith(("_80", "_summary"))])
def test_what_goes_to_a_terminal_fits_it(name: str) -> None:
    """Commands and code are for copying: they are not broken."""
    prose, _, _ = OUTPUTS[name].partition("To run it as it was measured")
    assert all(len(text) <= 80 for text in prose.splitlines() if not text.startswith("$ "))
