"""A result that cannot be written is refused before the run, or kept elsewhere after it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from builders import eventful

from workbench.cli.headless import EventWriter, log_writer, save
from workbench.cli.launch import check_output
from workbench.engine.exit_codes import CUT_SHORT, FAILED, OK
from workbench.export.formats import FORMATS
from workbench.planning.usage import UsageError
from workbench.report import journal
from workbench.report.report import Report

FULL = Path("/dev/full")  # every write: no space left on device
RUN = eventful()
REPORT = Report.of(RUN)


def test_a_file_that_could_not_be_made_is_refused_before_the_run(tmp_path: Path) -> None:
    check_output("--output", tmp_path / "new.json")
    assert list(tmp_path.iterdir()) == []
    for path in (tmp_path / "none" / "x.json", tmp_path / ("x" * 250), tmp_path):
        with pytest.raises(UsageError, match="cannot be written: "):
            check_output("--output", path)


def test_a_document_that_cannot_be_written_says_where_the_run_is_kept(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert save(FULL, REPORT, OK) == FAILED
    assert "No space left on device; the run is not kept" in capsys.readouterr().err
    run = RUN[0].id
    journal.Journal(journal.runs_folder() / f"{run}.jsonl").close()
    assert save(FULL, REPORT, CUT_SHORT) == CUT_SHORT
    assert f"the run is kept: `workbench open {run} --json`" in capsys.readouterr().err


def test_neither_a_full_disk_nor_a_full_log_ends_a_run(monkeypatch) -> None:
    writer = EventWriter(FORMATS["jsonl"], FULL)
    with FULL.open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        log = log_writer(REPORT)
        for event in RUN[:2]:
            writer(event)
            log(event)
    assert "No space left" in str(writer.error)
