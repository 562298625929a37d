"""A helper's lines, its death and its silence."""

from __future__ import annotations

import signal
import sys

import pytest

from workbench.process.line_process import Ended, Helper


def start(code: str) -> Helper:
    return Helper([sys.executable, "-c", code])


def test_lines_arrive_one_by_one_and_then_the_end() -> None:
    helper = start("print('one'); print('two')")
    assert [helper.line(30), helper.line(30)] == [b"one\n", b"two\n"]
    assert helper.line(30) == Ended("crashed", "ended with exit status 0")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise SystemExit(3)", "ended with exit status 3"),
        ("import os; os.kill(os.getpid(), 11)", "died of SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)", "died of signal 37"),
    ],
)
def test_each_death_is_named(code: str, message: str) -> None:
    assert start(code).line(30) == Ended("crashed", message)


def test_a_silent_child_is_killed() -> None:
    helper = start("import signal; print('up', flush=True); signal.pause()")
    assert helper.line(30) == b"up\n"
    assert helper.line(0.01) == Ended("silent", "gave no answer within 0.01 s")
    assert helper._process is not None
    assert helper._process.returncode == -signal.SIGKILL


def test_a_program_that_is_not_there() -> None:
    ended = Helper(["/no/such/program"]).line(30)
    assert ended == Ended("not_started", "could not be started: No such file or directory")


def test_after_the_end_nothing_more_is_taken_in() -> None:
    helper = Helper(["/bin/sh", "-c", "yes; true"])  # which outlives the shell that is killed
    assert helper.line(30) == b"y\n"
    helper.close()
    while isinstance(helper.line(30), bytes):  # for ever, if all were forwarded
        pass
