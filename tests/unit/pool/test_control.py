"""The run's clock begins with the process."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from workbench.pool import control

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


def test_without_proc_psutil_knows_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "process_started_s", lambda: None)
    monkeypatch.setattr(control.psutil.Process, "create_time", lambda self: 100.0)
    monkeypatch.setattr(control.time, "time", lambda: 103.0)
    assert control.process_age_s() == 3.0


def test_a_clock_that_was_set_back_is_no_negative_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "process_started_s", lambda: None)
    monkeypatch.setattr(control.psutil.Process, "create_time", lambda self: 100.0)
    monkeypatch.setattr(control.time, "time", lambda: 1.0)
    assert control.process_age_s() == 0.0
