"""No case is timed while threads of another still spin."""

import pytest

from workbench.worker import quiet, worker


class Clock:
    """Stands for the module `time`, in a process whose threads spin until `quiet_at_s`."""

    def __init__(self, quiet_at_s: float) -> None:
        self.quiet_at_s = quiet_at_s
        self.now_s = self.used_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def process_time(self) -> float:
        return self.used_s

    def sleep(self, seconds: float) -> None:
        self.used_s += min(seconds, max(0.0, self.quiet_at_s - self.now_s))
        self.now_s += seconds


@pytest.mark.parametrize(
    ("quiet_at_s", "returned_s"),
    [
        (0.0, quiet.CHECK_S),
        (0.05, 0.05 + 2 * quiet.CHECK_S),
        (9.0, quiet.LONGEST_S + quiet.CHECK_S),
    ],
)
def test_it_returns_when_the_last_thread_has_stopped_spinning(
    quiet_at_s: float, returned_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(quiet_at_s)
    monkeypatch.setattr(quiet, "time", clock)
    quiet.wait_until_quiet()
    assert min(quiet_at_s, quiet.LONGEST_S) <= clock.now_s <= returned_s + 1e-9


def test_a_block_waits_only_for_thread_pools_of_other_cases(monkeypatch) -> None:
    waited = []
    monkeypatch.setattr(worker, "wait_until_quiet", lambda: waited.append(True))
    own = worker.Worker("numpy", "cpu")
    fields = {"workload": "matmul", "device": "cpu", "backend": "numpy", "precision": "fp32"}
    cases = [{**fields, "threads": 1, "params": {"n": n}} for n in (8, 16)]
    for case in cases:
        own.prepare(case, False, 0.01, False)
    first, second = own.prepared
    bounds = {"seconds": 0.001, "min_samples": 1, "settle_s": 0.0}
    own.block(second, **bounds)  # prepared last
    assert not waited
    own.block(first, **bounds)
    assert len(waited) == 1
    own.block(first, **bounds)
    assert len(waited) == 1
