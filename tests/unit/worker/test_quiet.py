"""No case is timed while threads of another still spin."""

from __future__ import annotations

import threading
import time

import pytest

from workbench.worker import worker
from workbench.worker.quiet import wait_until_quiet


def test_the_wait_ends_when_the_last_thread_stops_spinning() -> None:
    done = threading.Event()

    def spin() -> None:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        done.set()

    threading.Thread(target=spin).start()
    wait_until_quiet(at_most_s=30.0)
    assert done.is_set()


def test_a_block_waits_only_for_thread_pools_of_other_cases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = []
    monkeypatch.setattr(worker, "wait_until_quiet", lambda: waited.append(True))
    own = worker.Worker("numpy", "cpu")
    fields = {"workload": "matmul", "device": "cpu", "backend": "numpy", "precision": "fp32"}
    cases = [{**fields, "threads": 1, "params": {"n": n}} for n in (8, 16)]
    for case in cases:
        own.prepare(case, 0, False, 0.01, 1 << 20, {}, False)
    first, second = own.prepared
    own.block(second, 0.001, 1, 0.0)  # prepared last
    assert not waited
    own.block(first, 0.001, 1, 0.0)
    assert len(waited) == 1
    own.block(first, 0.001, 1, 0.0)
    assert len(waited) == 1
