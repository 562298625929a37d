"""Workers that start at once, and what a pause does to their imports."""

from contextlib import nullcontext
from typing import Any, ClassVar

import pytest
from pool_stand_ins import HELLO, KEY, Control, Process, no_room, pool

from workbench.pool import pool as workers
from workbench.pool.control import Cancelled
from workbench.pool.pool import WorkerFailed
from workbench.pool.worker_process import WorkerKey

TWO = [WorkerKey("cpu", "numpy", 1), WorkerKey("cpu", "numpy", 2)]


class Launched(Process):
    """A worker that notes what is done with it."""

    did: ClassVar[list[tuple[str, WorkerKey]]] = []

    def __init__(self, key: WorkerKey, *_: Any) -> None:
        super().__init__()
        self.key = key
        self.did.append(("launch", key))

    def answer(self) -> bytes:
        self.did.append(("answer", self.key))
        return super().answer()

    def kill(self) -> None:
        self.did.append(("kill", self.key))

    def freeze(self) -> bool:
        self.did.append(("freeze", self.key))
        return True

    def thaw(self) -> None:
        self.did.append(("thaw", self.key))


@pytest.fixture
def did(dropped: list[bool], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, WorkerKey]]:
    monkeypatch.setattr(Launched, "did", [])
    monkeypatch.setattr(workers, "WorkerProcess", Launched)
    return Launched.did


def test_workers_that_start_at_once_are_launched_before_the_first_answer(did) -> None:
    made = pool(Control())
    did.clear()
    with made.starting([KEY, *TWO]):  # the first has started already
        Process.answers = [HELLO, HELLO]
        for key in (KEY, *TWO):
            made.start(key, 60.0)
    launched = [(what, key) for what, key in did if what != "freeze"]
    assert launched == [(what, key) for what in ("launch", "answer") for key in TWO]
    assert all(made.is_alive(key) for key in (KEY, *TWO))


def test_a_worker_that_nothing_waits_for_is_killed_before_the_races(did) -> None:
    made = pool(Control())
    with made.starting(TWO):
        Process.answers = []
        with pytest.raises(WorkerFailed, match="its library was not loaded within 60 s") as failed:
            made.start(TWO[0], 60.0)
        assert "smaller size" not in (failed.value.reason.hint or "")
        did.clear()
    assert did == [("kill", TWO[1])]
    assert not any(made.is_alive(key) for key in TWO)
    Process.answers = [HELLO]
    made.start(TWO[1], 60.0)
    assert ("launch", TWO[1]) in did


def test_a_run_that_ends_meanwhile_ends_them_all(did: list[tuple[str, WorkerKey]]) -> None:
    control = Control()
    made = pool(control)
    control.interrupted = True
    with pytest.raises(Cancelled), made.starting(TWO):
        made.start(TWO[0], 60.0)
    made.end_all(at_once=True)
    assert {key for what, key in did if what == "kill"} == {KEY, *TWO}


def test_one_that_cannot_be_launched_is_reported_when_its_turn_comes(did, monkeypatch) -> None:
    made = pool(Control())
    monkeypatch.setattr(workers, "WorkerProcess", no_room)
    with made.starting(TWO), pytest.raises(WorkerFailed, match="could not be started"):
        made.start(TWO[0], 60.0)


def test_a_pause_holds_every_worker_that_imports(did, monkeypatch) -> None:
    made = pool(Control())
    wishes = ["pause", "readable", "readable"]
    monkeypatch.setattr(Control, "wait", lambda *_: wishes.pop(0))
    monkeypatch.setattr(Control, "wait_for_resume", lambda _: did.append(("resume", KEY)), False)
    monkeypatch.setattr(Control, "at_pause", lambda _: nullcontext(did.append(("pause", KEY))))
    monkeypatch.setattr(Control, "exclude", lambda *_: None, False)
    with made.starting(TWO):
        did.clear()
        Process.answers = [HELLO, HELLO]
        made.start(TWO[0], 60.0)
        held = [*(("freeze", key) for key in TWO), ("pause", KEY), ("resume", KEY)]
        assert did[:6] == [*held, *(("thaw", key) for key in TWO)]
        made.start(TWO[1], 60.0)


def test_a_pause_is_no_part_of_an_import(did: list[tuple[str, WorkerKey]], monkeypatch) -> None:
    made, clock, wishes = pool(Control()), [100.0], ["pause", "readable"]
    monkeypatch.setattr(Control, "wait", lambda *_: wishes.pop(0))
    monkeypatch.setattr(Control, "wait_for_resume", lambda _: clock.append(150.0), False)
    monkeypatch.setattr(Control, "exclude", lambda *_: None, False)
    Process.answers = [b'{"ok": {"versions": {}, "ready_s": 150.0}}']
    with monkeypatch.context() as patch:
        patch.setattr(workers.time, "monotonic", lambda: clock[-1])
        made.start(TWO[0], 60.0)
    assert made.import_s[TWO[0]] == 0.0


def test_a_pause_that_ends_in_a_cancel_is_no_time_of_the_run(did, monkeypatch) -> None:
    def cancel(_: Control) -> None:
        clock.append(150.0)
        raise Cancelled("cancelled by the user")

    made, clock, excluded = pool(Control()), [100.0], list[float]()
    monkeypatch.setattr(Control, "wait", lambda *_: "pause")
    monkeypatch.setattr(Control, "wait_for_resume", cancel, False)
    monkeypatch.setattr(Control, "exclude", lambda _, away: excluded.append(away), False)
    with monkeypatch.context() as patch, pytest.raises(Cancelled):
        patch.setattr(workers.time, "monotonic", lambda: clock[-1])
        made.start(TWO[0], 60.0)
    assert excluded == [50.0]


def test_an_import_ends_when_its_worker_says_so(did, monkeypatch) -> None:
    made = pool(Control())
    times = iter([100.0, 101.0, 100.0, 101.0])
    monkeypatch.setattr(made, "_await", lambda *_: (said, False))
    for ready_s, took_s in ((100.25, 0.25), (99.0, 1.0)):  # a clock of its own counts for nothing
        said = b'{"ok": {"versions": {}, "ready_s": %f}}' % ready_s
        with monkeypatch.context() as patch:
            patch.setattr(workers.time, "monotonic", lambda: next(times))
            made.start(key := WorkerKey("cpu", f"after {took_s} s"), 60.0)
        assert made.import_s[key] == took_s
