"""The run's clock begins with the process."""

import os
import signal
import socket
import subprocess
import sys
import time
from unittest.mock import Mock

import psutil
import pytest

from workbench.pool import control
from workbench.pool.control import FIRST, NEVER, SECOND, Cancelled, Control

TICK_S = 0.01
CHILD = """
import time
first = time.clock_gettime(time.CLOCK_BOOTTIME)
from workbench.pool.control import process_started_s
print(first, process_started_s())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="field 22 of /proc/self/stat")
def test_a_process_knows_its_start_to_a_tick() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    child = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True
    )
    first, started = map(float, child.stdout.split())
    assert before - TICK_S <= started <= first


@pytest.mark.parametrize(("now_s", "age_s"), [(103.0, 3.0), (1.0, 0.0)])  # then it was set back
def test_without_proc_psutil_knows_the_start(monkeypatch, now_s: float, age_s: float) -> None:
    monkeypatch.setattr(control, "process_started_s", lambda: None)
    monkeypatch.setattr(control.psutil.Process, "create_time", lambda self: 100.0)
    monkeypatch.setattr(control.time, "time", lambda: now_s)
    assert control.process_age_s() == age_s


def test_a_process_without_proc_has_just_started(monkeypatch) -> None:
    missing = Mock(side_effect=psutil.NoSuchProcess(1))
    monkeypatch.setattr(control, "process_started_s", lambda: None)
    monkeypatch.setattr(control.psutil, "Process", missing)
    assert control.process_age_s() == 0.0


@pytest.mark.parametrize(("age_s", "counted_s"), [(9.0, 9.0), (59.0, 10.0), (61.0, 0.0)])
def test_a_long_start_counts_in_part_and_an_implausible_one_not_at_all(
    age_s: float, counted_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "process_started_s", lambda: 100.0)
    monkeypatch.setattr(control.time, "clock_gettime", lambda _: 100.0 + age_s)
    assert control.process_age_s() == counted_s


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_signal_is_noted_and_the_second_one_raises() -> None:
    run = Control()
    with run.signals(), run.raising(SECOND):
        interrupt()
        with pytest.raises(Cancelled, match="SIGINT"):
            interrupt()
        interrupt()  # once: what ends the run is not interrupted
        with pytest.raises(Cancelled):
            run.check()


def test_where_nothing_else_wakes_it_the_first_signal_raises() -> None:
    run = Control()
    with run.signals(), run.raising(FIRST), pytest.raises(Cancelled):
        interrupt()


def test_a_record_is_not_cut_in_two() -> None:
    run = Control()
    with run.signals(), run.raising(FIRST), run.raising(NEVER):
        interrupt()
        interrupt()
    assert run.ends == 2


def test_the_front_ends_cancel_counts_as_a_signal() -> None:
    run = Control()
    run.cancel("cancelled by the user")
    with run.signals(), run.raising(SECOND), pytest.raises(Cancelled, match="by the user"):
        interrupt()


def test_output_that_hangs_is_left_soon_after_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LEAVE_S", 0.01)
    run = Control()
    with run.signals(), run.writing():
        interrupt()
        with pytest.raises(OSError, match="does not read"):
            signal.pause()


@pytest.mark.parametrize(
    "line",
    [b"no JSON", b"[1]", b"3", b"{}", b'{"control": 1}', b"\xff", b"[" * 100_000, b"x" * 60_000],
    ids=lambda line: repr(line[:20]),
)
def test_a_control_line_that_cannot_be_read_asks_for_nothing(line: bytes) -> None:
    read, write = os.pipe()
    worker, held = os.pipe()
    run = Control(read)
    for part in (line[i : i + 4096] for i in range(0, len(line), 4096)):
        os.write(write, part)
        assert run.wait(worker, 0.0) == "deadline"
    os.write(write, b'\n{"control": "cancel"}\n')
    with pytest.raises(Cancelled, match="by the user"):
        run.wait(worker, 30.0)
    for descriptor in (read, write, worker, held):
        os.close(descriptor)


def test_a_control_socket_that_breaks_off_is_the_end_of_the_front_end() -> None:
    ours, theirs = socket.socketpair()
    worker, other = socket.socketpair()
    run = Control(ours.fileno())
    ours.send(b"unread")
    theirs.close()  # what it did not read makes this a reset (unix(7))
    with pytest.raises(Cancelled, match="front end went away"):
        run.wait(worker.fileno(), 30.0)
    for end in (ours, worker, other):
        end.close()
