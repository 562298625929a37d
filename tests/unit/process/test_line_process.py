"""Lines of a child process, its death and its silence."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from workbench.process import line_process
from workbench.process.line_process import (
    Ended,
    LineChannel,
    LineProcess,
    LineTooLong,
    QueryProcess,
)


def start(code: str) -> QueryProcess:
    return QueryProcess([sys.executable, "-c", code])


def test_lines_arrive_one_by_one_and_then_the_end() -> None:
    process = start("print('one'); print('two')")
    assert [process.line(30), process.line(30)] == [b"one", b"two"]
    assert process.line(30) == Ended("crashed", "ended without an answer (exit code 0)")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)", "killed by signal 37"),
    ],
)
def test_each_death_is_named(code: str, words: str) -> None:
    assert start(code).line(30) == Ended("crashed", f"ended without an answer ({words})")


@pytest.mark.parametrize(("deadline_s", "since_start"), [(0.01, False), (600, True)])
def test_a_silent_child_is_killed_at_its_deadline(deadline_s: float, since_start: bool) -> None:
    """The deadline may count from before the wait."""
    process = start("import signal; print('up', flush=True); signal.pause()")
    assert process.line(30) == b"up"
    process._began -= 600
    ended = process.line(deadline_s, since_start=since_start)
    assert ended == Ended("silent", f"gave no answer within {deadline_s:g} s")
    assert process._process.returncode == -signal.SIGKILL


STOPPED = """
import signal, sys
from workbench.process.line_process import QueryProcess
signal.signal(signal.SIGCONT, lambda *_: None)  # as a run has one
process = QueryProcess(["/bin/sleep", "1000"])
print("up", flush=True)
print(process.line(0.5).kind, flush=True)
"""


def test_a_stop_that_lasts_longer_than_the_wait_ends_it() -> None:
    """SimpleQueue.get of Python 3.11 waits for ever then: its time left has become negative."""
    asking = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    assert asking.stdout.readline() == "up\n"
    asking.send_signal(signal.SIGSTOP)
    time.sleep(0.7)  # longer than its wait of 0.5 s
    asking.send_signal(signal.SIGCONT)
    assert asking.communicate(timeout=30)[0] == "silent\n"


def test_a_program_that_is_not_there() -> None:
    ended = QueryProcess(["/no/such/program"]).line(30)
    assert ended == Ended("not_started", "could not be started: No such file or directory")


def test_after_the_end_nothing_more_is_taken_in() -> None:
    process = QueryProcess(["/bin/sh", "-c", "yes; true"])  # `yes` outlives the shell
    assert process.line(30) == b"y"
    process.close()
    while isinstance(process.line(30), bytes):  # for ever, if all were forwarded
        pass


def test_an_answer_that_cannot_be_read_ends_the_child() -> None:
    process = start("import signal; print('x', flush=True); signal.pause()")
    ended = process.parse(process.line(30), int)
    assert isinstance(ended, Ended) and ended.kind == "crashed"
    assert process._process.returncode == -signal.SIGKILL


ECHO = """
import os, sys
line = os.read(int(sys.argv[1]), 100)
print("said", *sys.argv[2:], flush=True)
os.write(int(sys.argv[1]), line + b"half")
"""


def test_a_child_that_is_asked_answers_on_its_socket_and_prints_into_its_log() -> None:
    child = LineProcess([sys.executable, "-c", ECHO], "a", "b", environ=os.environ)
    child.send(b"hello")
    assert child.process.wait(30) == 0
    assert child.receive() == [b"hello"]
    with pytest.raises(EOFError):
        child.receive()
    assert child.log_tail() == "said a b"


def test_a_channel_gives_whole_lines_only() -> None:
    ours, theirs = socket.socketpair()
    channel = LineChannel(ours)
    with pytest.raises(BlockingIOError):
        channel.receive()
    theirs.sendall(b"one\ntw")
    assert channel.receive() == [b"one"]
    theirs.sendall(b"o\nthree\n")
    assert channel.receive() == [b"two", b"three"]
    theirs.close()
    with pytest.raises(EOFError):
        channel.receive()


def test_a_line_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_process, "MOST_LINE_BYTES", 1000)
    ours, theirs = socket.socketpair()
    channel = LineChannel(ours)
    theirs.sendall(b"x" * 800)
    assert channel.receive() == []
    theirs.sendall(b"x" * 800)
    with pytest.raises(LineTooLong):
        channel.receive()
    endless = start("print('x' * 1500)")
    assert endless.line(30) == b""


def test_a_long_log_is_emptied_while_the_child_writes() -> None:
    code = "import os, time; os.write(2, b'x' * (1 << 20) + b'long'); time.sleep(60)"
    child = LineProcess([sys.executable, "-c", code], environ=os.environ)
    while not child.log_tail().endswith("long"):
        time.sleep(0.01)
    child.empty_log_if_long()
    assert child.log_tail() == ""
    child.process.kill()
    child.reap()
