"""Whatever dies, the rest goes on or ends cleanly, and what was measured can be read."""

import json
import os
import signal
from pathlib import Path

import onnx_models
import psutil
import pytest
from support import budget, printed

from workbench.records import events as ev
from workbench.report import journal
from workbench.report.report import Report

LONG = ("run", "spin", "--budget", "60", "--set", "gain=1")


def only(events: list[ev.AnyEvent], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


def assert_all_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive, alive


def test_a_worker_killed_mid_block_costs_its_case_only(live_engine) -> None:
    engine = live_engine("run", "spin", *budget(6), "--set", "ms=20")
    started = engine.until(ev.WorkerStarted)
    engine.until(ev.BlockMeasured, 2)
    os.kill(started.pid, signal.SIGKILL)
    events = engine.rest()
    finished = {event.case: event for event in only(events, ev.CaseFinished)}
    assert sorted(event.status for event in finished.values()) == ["failed", "ok"]
    reason = next(event.reason for event in finished.values() if event.status == "failed")
    assert reason.code == "worker_died"
    assert "SIGKILL" in reason.message
    assert only(events, ev.RunFinished)[0].status == "done"
    assert engine.process.returncode == 1  # a plain run owes every candidate


def test_after_kill_9_of_the_engine_nothing_of_the_run_remains(live_engine, cli) -> None:
    engine = live_engine(*LONG, "--set", "trouble=forks", "--device", "cpu", "--device", "fake:0")
    engine.until(ev.BlockMeasured, 3)
    family = engine.family()
    assert len(family) >= 6  # two workers with a child each, the guardian, the engine
    engine.process.kill()
    engine.process.wait()
    assert_all_gone(family)
    report = Report.of(journal.read(cli.runs / f"{engine.run_id}.jsonl"))
    assert report.status == "incomplete"
    assert sum(len(candidate.blocks) for candidate in report.candidates.values()) >= 3
    shown = cli("open", engine.run_id, "--json")
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["run"]["status"] == "incomplete"


def test_when_the_front_end_dies_the_engine_ends_the_run(live_engine) -> None:
    engine = live_engine(*LONG, "--set", "trouble=forks")
    engine.until(ev.BlockMeasured)
    family = engine.family()
    engine.process.stdin.close()
    events = engine.rest()
    assert events[-1].status == "cancelled"
    assert engine.process.returncode == 130
    assert_all_gone(family)


@pytest.mark.campaign
def test_dataloader_children_are_frozen_with_their_worker_and_end_with_it(live_engine) -> None:
    engine = live_engine(
        "run", "train_cnn", "--mode", "plain", "--batch", "4", "--budget", "60",
        "--device", "cpu", "--device", "fake:0", "--precision", "fp32",
    )  # fmt: skip
    engine.until(ev.BlockMeasured, 2)
    family = engine.family()
    stopped = [p for p in family if p.status() == psutil.STATUS_STOPPED]
    assert len(stopped) >= 2  # the idle worker and its loader
    engine.process.kill()
    engine.process.wait()
    assert_all_gone(family)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whatever_ends_the_engine_its_scratch_folder_goes(
    live_engine, environment, tmp_path: Path, number
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment["TMPDIR"] = str(temporary)
    model = onnx_models.saved(tmp_path, onnx_models.conv_net())
    engine = live_engine("advise", "--model", model, "--budget", "30")
    engine.until(ev.ModelInspected)
    (scratch,) = temporary.iterdir()
    assert (scratch / "inputs.npz").is_file()
    family = engine.family()
    engine.process.send_signal(number)
    assert engine.process.wait(20) == {signal.SIGKILL: -9, signal.SIGTERM: 130}[number]
    assert_all_gone(family)
    assert list(temporary.iterdir()) == []
    assert sorted(file.name for file in tmp_path.glob("*.onnx*")) == ["model.onnx"]


def test_under_nohup_a_hang_up_ends_nothing(live_engine) -> None:
    engine = live_engine(
        "run", "spin", *budget(4),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    engine.until(ev.BlockMeasured)
    engine.process.send_signal(signal.SIGHUP)
    assert engine.rest()[-1].status == "done"
    assert engine.process.returncode == 0


def test_ctrl_z_freezes_the_worker_and_the_block_is_discarded(live_engine) -> None:
    engine = live_engine("run", "spin", *budget(5), "--set", "ms=300")
    started = engine.until(ev.WorkerStarted)
    engine.until(ev.BlockMeasured)
    os.kill(engine.process.pid, signal.SIGTSTP)
    _, status = os.waitpid(engine.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert psutil.Process(started.pid).status() == psutil.STATUS_STOPPED
    os.kill(engine.process.pid, signal.SIGCONT)
    events = engine.rest()
    statuses = [event.status for event in only(events, ev.StatusChanged)]
    assert statuses == ["paused", "running"]
    assert [event.reason.code for event in only(events, ev.BlockDiscarded)] == ["suspended"]
    assert events[-1].status == "done"


def test_a_pause_holds_the_clock_and_resume_goes_on(live_engine) -> None:
    engine = live_engine("run", "spin", *budget(5), "--set", "ms=300")
    engine.until(ev.BlockMeasured)
    engine.say("pause")
    paused = engine.until(ev.StatusChanged)
    engine.say("resume")
    resumed, *events = engine.until(ev.StatusChanged), *engine.rest()
    assert resumed.at_s >= paused.at_s
    assert len(only(events, ev.BlockDiscarded)) == 1
    assert events[-1].status == "done"


def test_cancel_while_paused_ends_the_run(live_engine) -> None:
    engine = live_engine(*LONG)
    engine.until(ev.BlockMeasured)
    engine.say("pause")
    engine.until(ev.StatusChanged)
    family = engine.family()
    engine.say("cancel")
    assert engine.rest()[-1].status == "cancelled"
    assert_all_gone(family)


def test_a_reader_that_leaves_ends_the_run(live_engine) -> None:
    engine = live_engine(*LONG)
    engine.until(ev.BlockMeasured)
    family = engine.family()
    engine.process.stdout.close()
    engine.process.wait(20)
    assert engine.process.returncode == 130
    assert_all_gone(family)


def test_a_state_folder_that_cannot_be_written_is_a_warning(cli, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    done = cli("run", "spin", *budget(3), "--json", XDG_STATE_HOME=str(blocked))
    document = printed(done)
    assert "no_journal" in [warning["code"] for warning in document["warnings"]]
