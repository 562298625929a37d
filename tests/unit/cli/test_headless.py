"""A result that cannot be written is refused before the run, or kept elsewhere after it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import case, eventful, report
from msgspec.structs import replace

from workbench.cli.headless import EventWriter, log_writer, save, say_why, unmeasured
from workbench.engine.exit_codes import CUT_SHORT, FAILED, OK
from workbench.files import write
from workbench.files.write import Target
from workbench.planning.usage import UsageError, target
from workbench.pool.control import Control
from workbench.records import events as ev
from workbench.records.events import CaseFinished, WarningRaised
from workbench.records.reason import Reason, Warning
from workbench.report import journal
from workbench.report.report import Report
from workbench.report.run_files import open_run

RUN = eventful()
CASE = case("cpu")
REPORT = Report.of(RUN)


@pytest.fixture
def full() -> Iterator[Target]:
    """A stream on which every write fails: no space left on device."""
    with Path("/dev/full").open("wb") as device:
        yield target("--output", Path(f"/dev/fd/{device.fileno()}"), opened=True)


def test_a_file_that_could_not_be_made_is_refused_before_the_run(tmp_path, monkeypatch) -> None:
    target("--output", tmp_path / "new.json", opened=True)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(write, "READER_S", 0.0)
    os.mkfifo(fifo := tmp_path / "fifo")  # without a reader
    for path in (tmp_path / "none" / "x.json", tmp_path / ("x" * 256), tmp_path, fifo):
        with pytest.raises(UsageError, match=f"--output: {path} cannot be written: "):
            target("--output", path, opened=True)


def test_a_document_that_cannot_be_written_says_where_the_run_is_kept(full, capsys) -> None:
    assert save(full, REPORT, OK) == FAILED
    assert "No space left on device; the run is not kept" in capsys.readouterr().err
    run = RUN[0].id
    journal.Journal(journal.runs_folder() / f"{run}.jsonl").close()
    assert save(full, REPORT, CUT_SHORT) == CUT_SHORT
    assert f"the run is kept: `workbench open {run} --json`" in capsys.readouterr().err
    full_disk = journal.no_journal("is kept only up to here", "runs", OSError(28, "full"))
    cut = Report.of([*RUN, WarningRaised(at_s=1.0, warning=full_disk)])
    assert save(full, cut, OK) == FAILED
    said = capsys.readouterr().err
    assert f"only the beginning of the run is kept: `workbench open {run}" in said


def test_neither_a_full_disk_nor_a_full_log_ends_a_run(full: Target, monkeypatch) -> None:
    writer = EventWriter(full, Control())
    with Path("/dev/full").open("w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        log = log_writer(REPORT, verbose=True)
        for event in RUN[:2]:
            writer(event)
            log(event)
    assert "No space left" in str(writer.error)


def test_stderr_gets_failures_and_with_verbose_the_whole_log(capsys) -> None:
    case, scenario = next((case, each.scenario) for case, each in REPORT.candidates.items())
    failure = CaseFinished(
        at_s=1.0, case=case, scenario=scenario, status="failed", reason=Reason("no_memory", "full")
    )
    for verbose in (True, False):
        log = log_writer(REPORT, verbose=verbose)
        for event in (RUN[0], failure):
            log(event)
    words = [line.split()[2] for line in capsys.readouterr().err.splitlines()]
    assert words == ["run", "failed", "failed"]


def test_a_row_without_a_measurement_is_named_with_its_reason() -> None:
    searched = Path(__file__).parents[2] / "fixtures/journals/run-largest-batch.jsonl"
    assert unmeasured(REPORT) == unmeasured(open_run(str(searched)).report) == []
    vain = open_run(str(searched)).report
    vain.largest_batches = [replace(e, batch=None, ended_by="budget") for e in vain.largest_batches]
    ((row, why),) = unmeasured(vain)
    assert why == f"no batch of {row.plan.scenario} was found to fit: lack of time"
    spent = Reason("budget", "no time was left for its turn", "raise --budget")
    found = report({CASE: []}, failed={CASE: spent})
    assert [why for _, why in unmeasured(found)] == [
        "nothing was measured for row: no time was left for its turn - raise --budget"
    ]
    row = found.rows["row"]
    row.plan = replace(row.plan, workload="own", title="model:build")
    found.warnings.append(Warning("busy_machine", "others compute", "stop them", "row"))
    ((_, why),) = unmeasured(found)
    assert why.startswith("nothing was measured for model:build: ")
    assert why.endswith("; others compute")


@pytest.mark.parametrize(("is_logged", "lines"), [(True, 0), (False, 1)])
def test_the_failure_of_an_only_candidate_is_said_once(is_logged, lines, capsys) -> None:
    found = report({CASE: []}, failed={CASE: Reason("user_code", "net:build: KeyError: 'lr'")})
    say_why(found, FAILED, is_logged=is_logged)
    assert capsys.readouterr().err.count("KeyError") == lines


@pytest.mark.parametrize(("code", "shown"), [("timeout", False), ("crashed", True)])
def test_a_worker_that_only_ran_out_of_time_is_no_failure_on_stderr(code, shown, capsys) -> None:
    write = log_writer(Report(), verbose=False)
    write(ev.WorkerEnded(at_s=1.0, worker="cpu/torch", reason=Reason(code, "no answer")))
    assert ("cpu/torch" in capsys.readouterr().err) is shown
