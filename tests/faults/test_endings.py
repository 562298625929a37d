"""A run ends when it is asked to, whatever it waits for, and leaves nothing behind."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from schemas import checked_document
from support import budget, is_pending, lives, marked, until

from workbench.records import events as ev

LONG = ("run", "spin", "--budget", "60", "--set", "gain=1")
SOON_S = 10.0  # generous: what is asked for takes a tenth of a second on an idle machine
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """An interpreter that never answers, and the child of a wrapper; both note their ids."""
    wrapper, pids = tmp_path / "silent", tmp_path / "pids"
    noted = shlex.quote(str(pids))
    wrapper.write_text(f"#!/bin/sh\nsleep 1000 &\necho $$ $! >> {noted}\nsleep 1000\n")
    wrapper.chmod(0o755)
    return wrapper


def noted(silent: Path) -> list[int]:
    """The ids of the silent interpreter and its child, once they run."""
    pids = silent.with_name("pids")
    assert until(lambda: pids.exists() and pids.read_text().endswith("\n"), 60)
    return [int(pid) for pid in pids.read_text().split()]


def assert_gone(pids: Sequence[int]) -> None:
    assert until(lambda: not any(map(lives, pids)), SOON_S), [pid for pid in pids if lives(pid)]


@pytest.fixture
def temporary(tmp_path: Path, environment: dict[str, str]) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    environment["TMPDIR"] = str(folder)
    return folder


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[object]:
    """Start a run that writes a document."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "workbench", *arguments, "--json", "-v"],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def at_work(process: subprocess.Popen[str]) -> None:
    """Return once a worker has started."""
    for line in process.stderr:
        if re.search(r"worker +cpu/numpy", line):
            return


def guardian_of(process: subprocess.Popen[str]) -> psutil.Process:
    children = psutil.Process(process.pid).children()
    return next(child for child in children if "guardian.py" in " ".join(child.cmdline()))


def ended(process: subprocess.Popen[str]) -> dict:
    """The document of a run that ends soon, cut short."""
    out, log = process.communicate(timeout=SOON_S)
    assert process.returncode == 130
    assert "Traceback" not in log
    document = checked_document(out)
    assert document["run"]["status"] == "cancelled"
    return document


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_run_with_a_valid_partial_document(start, number) -> None:
    process = start(*LONG)
    at_work(process)
    process.send_signal(number)
    document = ended(process)
    assert {m["status"] for m in document["measurements"]} == {"cancelled"}
    (cut,) = (warning for warning in document["warnings"] if warning["code"] == "cut_short")
    assert cut["remedy"] == "run it again"  # no row is complete, so it cannot be resumed


@pytest.mark.parametrize("number", SIGNALS)
def test_one_signal_ends_a_detection_that_waits_for_a_silent_interpreter(
    start, silent: Path, number: signal.Signals
) -> None:
    process = start(*LONG, "--python", str(silent))
    processes = noted(silent)
    process.send_signal(number)
    ended(process)
    assert_gone(processes)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_detect_with_all_that_it_started(environment, silent, number) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", "detect", "--python", str(silent)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    processes = noted(silent)
    process.send_signal(number)
    _, log = process.communicate(timeout=SOON_S)
    assert (process.returncode, log.strip()) == (130, "")
    assert_gone(processes)


def test_a_silent_interpreter_has_no_more_time_than_the_run(cli, silent: Path) -> None:
    done = cli("run", "spin", "--budget", "3", "--python", str(silent))
    assert done.returncode == 2
    assert re.search(r"workbench: --python: .* gave no answer within [12](\.\d+)? s", done.stderr)
    assert_gone(noted(silent))


@pytest.mark.parametrize("signals", [1, 2])
def test_a_stopped_guardian_holds_nothing_up(start, temporary: Path, signals: int) -> None:
    process = start(*LONG)
    at_work(process)
    guardian = guardian_of(process)
    guardian.suspend()
    for number in SIGNALS[:signals]:  # two of one number could count as one
        process.send_signal(number)
    ended(process)
    assert_gone([guardian.pid])
    assert list(temporary.iterdir()) == []


def test_a_stopped_guardian_costs_a_finished_run_nothing(start, temporary: Path) -> None:
    process = start("run", "spin", "--budget", "15")
    at_work(process)
    guardian = guardian_of(process)
    guardian.suspend()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["run"]["status"] == "done"
    assert_gone([guardian.pid])
    assert list(temporary.iterdir()) == []


def test_two_signals_end_a_run_whose_worker_never_answers(start) -> None:
    process = start(*LONG, "--set", "trouble=hang")
    at_work(process)
    workers = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
    ended(process)
    assert_gone(workers)


def test_a_storm_of_signals_leaves_the_document_whole(start) -> None:
    process = start(*LONG)
    at_work(process)
    for _ in range(30):
        process.send_signal(signal.SIGINT)
        # What reaches a process that has just ended stays pending.
        assert until(
            lambda: process.poll() is not None or not is_pending(process.pid, signal.SIGINT)
        )
    ended(process)


def test_two_signals_leave_a_reader_that_does_not_read(environment, cli) -> None:
    """The pipe is full, so the engine hangs in a write; its journal is whole all the same."""
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *LONG, "--jsonl"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    hung = psutil.Process(process.pid)
    fill_up(process.stdout.fileno())
    # An event is written to the journal first, and then to the pipe, which is full.
    assert until(lambda: any(path.stat().st_size for path in cli.runs.glob("*.jsonl")), 60)
    assert until(lambda: hung.status() == psutil.STATUS_SLEEPING)
    for number in SIGNALS[:2]:  # two of one number could count as one
        process.send_signal(number)
    assert process.wait(SOON_S) == 130
    process.stdout.close()
    assert not hung.is_running()
    (journal,) = cli.runs.glob("*.jsonl")
    assert isinstance(ev.decode(journal.read_bytes().splitlines()[-1]), ev.RunFinished)


def fill_up(reader: int) -> None:
    """Fill the pipe whose reading end this is."""
    writer = os.open(f"/proc/self/fd/{reader}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(writer, b"\n" * 4096)
    except BlockingIOError:
        os.close(writer)


def test_the_scratch_folder_goes_although_the_guardian_was_killed(live_engine, temporary) -> None:
    engine = live_engine(*LONG)
    engine.until(ev.BlockMeasured)
    guardian_of(engine.process).kill()
    engine.process.send_signal(signal.SIGINT)
    assert engine.rest()[-1].status == "cancelled"
    assert list(temporary.iterdir()) == []


def test_frozen_workers_end_with_the_engine_although_the_guardian_was_killed(live_engine) -> None:
    engine = live_engine(*LONG, "--device", "cpu", "--device", "fake:0")
    engine.until(ev.BlockMeasured, 3)
    family = [process.pid for process in engine.family()]
    guardian_of(engine.process).kill()
    engine.process.kill()
    engine.process.wait()
    assert_gone(family)
    assert marked(engine.run_id) == []


def test_nothing_is_left_open_at_the_end(cli) -> None:
    done = cli("run", "spin", *budget(3), "--set", "trouble=die", PYTHONWARNINGS="error")
    assert "ResourceWarning" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_ctrl_c_during_the_imports_is_silent(environment, tmp_path: Path) -> None:
    """Here the first import of another package takes long, and the signal comes meanwhile."""
    slow = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()\n"
    (tmp_path / "click.py").write_text(slow)
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"
    command = [sys.executable, "-m", "workbench", "list"]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    "words",
    [
        ("advise", "--model", "m.onnx"),
        ("advise", "--model", "m.onnx", "--save-best", "best.onnx"),
        ("run", "matmul", "--backend", "torch"),
        ("ab", "matmul", "--env", "A=1", "--env", "A=2"),
        ("doctor",),
    ],
)
def test_a_deleted_current_directory_is_named(environment, tmp_path: Path, words) -> None:
    command = shlex.join([sys.executable, "-P", "-m", "workbench", *words])
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["/bin/sh", "-c", f"cd gone && rmdir ../gone && {command}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("workbench: the current directory no longer exists")


def test_too_few_files_are_named_with_their_limit(environment) -> None:
    command = shlex.join([sys.executable, "-m", "workbench", "run", "spin", "--budget", "3"])
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -n 8; exec {command}"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "ulimit -n" in done.stderr.splitlines()[-1]
    assert "internal error" not in done.stderr
