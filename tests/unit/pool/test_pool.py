"""Workers that are lost, or never start."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from builders import case
from pool_stand_ins import HELLO, KEY, Control, Listener, Process, no_room, pool

from workbench.pool import pool as workers
from workbench.pool.answers import Block, SmallProbe
from workbench.pool.control import Cancelled
from workbench.pool.pool import Pool, WorkerFailed
from workbench.pool.worker_process import WorkerKey, WorkerSettings
from workbench.process.line_process import LineTooLong
from workbench.records.comparison import Side

PLAIN = case("cpu-a")
COMPILED = replace(PLAIN, mode="compile")


def block(of: Any) -> dict[str, Any]:
    return {"op": "block", "case": of.id}


def prepare(of: Any) -> dict[str, Any]:
    return {"op": "prepare", "case": of}


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize(
    ("answered", "lost_at", "is_dropped"),
    [
        ([], prepare(PLAIN), False),
        ([], prepare(COMPILED), True),
        ([prepare(COMPILED)], block(COMPILED), True),  # the rest is compiled at the first turn
        ([prepare(COMPILED), block(COMPILED)], block(COMPILED), False),
        ([prepare(COMPILED)], prepare(PLAIN), False),
        ([prepare(COMPILED)], {"op": "release", "cases": [COMPILED.id]}, False),
    ],
)
def test_only_a_compilation_cut_short_costs_what_was_compiled(
    dropped, answered, lost_at, is_dropped, interrupted
) -> None:
    control = Control()
    lost = pool(control)
    for request in answered:
        Process.answers = [b'{"ok": {}}']
        lost.ask(KEY, 1.0, dict, **request)
    control.interrupted = interrupted
    with pytest.raises(Cancelled if interrupted else WorkerFailed):
        lost.ask(KEY, 1.0, dict, **lost_at)
    lost.end_all(at_once=True)
    lost.close()
    assert dropped == [True] * is_dropped


def test_a_worker_that_cannot_be_started_is_a_reason(dropped: list[bool], monkeypatch) -> None:
    made = pool(Control())
    monkeypatch.setattr(workers, "WorkerProcess", no_room)
    other = WorkerKey("cpu", "numpy")
    with pytest.raises(WorkerFailed, match="could not be started: Resource temporarily") as caught:
        made.start(other, 1.0)
    assert caught.value.reason.code == "not_started"
    assert not made.is_alive(other)


def test_a_file_is_written_in_a_hidden_folder_next_to_it_that_the_guardian_removes(
    dropped: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, owned = pool(Control()), list[Path]()
    monkeypatch.setattr(made._guardian, "own_folder", owned.append)
    hidden = made.folder_next_to(Path("out/best.onnx"))
    assert hidden.parent == Path("out").absolute() and hidden.name.startswith(".")
    assert owned == [hidden]
    made.end_all(at_once=True)
    made.close()


def test_its_listener_hears_of_the_workers(dropped: list[bool]) -> None:
    made = pool(Control())
    Process.answers = [b'{"ok": {}}']
    made.ask(KEY, 1.0, dict, op="block", case=PLAIN.id)  # `freeze` of the stand-in fails
    made.end_all(at_once=True)
    expected = ["not_frozen", "WorkerStarted", "not_frozen", "WorkerEnded"]
    assert made._listener.happened == expected


@pytest.mark.usefixtures("dropped")
def test_a_library_that_was_not_tested_and_two_openmps_are_warnings() -> None:
    made = pool(Control())
    versions = {"xgboost": "9.1.0", "OpenMP": "libgomp and libiomp"}
    Process.answers = [json.dumps({"ok": {"versions": versions}}).encode()]
    made.start(WorkerKey("cpu", "xgboost"), 1.0)
    assert made._listener.happened[-2:] == ["untested_version", "two_openmp_runtimes"]


def test_without_time_no_worker_is_started(dropped: list[bool]) -> None:
    made = pool(Control())
    other = WorkerKey("cpu", "numpy")
    with pytest.raises(WorkerFailed, match="no time was left") as caught:
        made.start(other, 0.0)
    assert caught.value.reason.code == "timeout"
    assert caught.value.reason.hint == "raise --budget", "the user's code is not to blame"
    assert not made.is_alive(other)


def test_a_request_without_time_costs_no_worker_its_life(dropped: list[bool]) -> None:
    made = pool(Control())
    with pytest.raises(WorkerFailed, match="no time was left to ask it"):
        made.ask(KEY, 0.0, Block, **block(PLAIN))
    assert made.is_alive(KEY)


@pytest.mark.parametrize(("deadline_s", "text"), [(0.4, "0.4 s"), (0.01, "0.1 s"), (8.0, "8 s")])
def test_a_deadline_is_named_as_it_was(dropped, deadline_s, text, monkeypatch) -> None:
    made = pool(Control())
    monkeypatch.setattr(Control, "wait", lambda *_: "deadline")
    with pytest.raises(WorkerFailed, match=f"no answer within {text}"):
        made.ask(KEY, deadline_s, Block, **block(PLAIN))


def test_the_log_of_a_worker_is_emptied_while_it_computes(dropped, monkeypatch) -> None:
    made = pool(Control())

    def answering(_: Process) -> None:
        Process.answers = [b'{"ok": {}}']

    monkeypatch.setattr(workers, "LOG_S", 1.0)
    monkeypatch.setattr(Process, "empty_log_if_long", answering, raising=False)
    assert made.ask(KEY, 60.0, dict, **block(PLAIN)).result == {}


@pytest.mark.parametrize(
    "line", [b"no JSON", b"[1]", b"{}", b'{"ok": 3}', b'{"error": "it broke"}']
)
def test_an_answer_that_cannot_be_read_is_the_end_of_its_worker_only(dropped, line) -> None:
    made = pool(Control())
    Process.answers = [line]
    with pytest.raises(WorkerFailed, match="an answer that cannot be read") as caught:
        made.ask(KEY, 1.0, SmallProbe, op="probe_small")
    assert caught.value.reason.code == "worker_died"
    assert not made.is_alive(KEY)


@pytest.mark.parametrize(("soft_s", "expected"), [(-1, "lack of memory"), (60, "ulimit -t")])
def test_a_killed_worker_may_have_used_up_its_processor_time(
    dropped, monkeypatch, soft_s: int, expected: str
) -> None:
    monkeypatch.setattr(Process, "exit_code", lambda *_: -signal.SIGKILL)
    monkeypatch.setattr(workers.resource, "getrlimit", lambda _: (soft_s, -1))
    with pytest.raises(WorkerFailed) as caught:
        pool(Control()).ask(KEY, 1.0, dict, **block(PLAIN))
    assert expected in str(caught.value.reason.hint)


def test_an_answer_without_an_end_is_the_end_of_its_worker_only(dropped, monkeypatch) -> None:
    made = pool(Control())
    monkeypatch.setattr(Process, "answer", Mock(side_effect=LineTooLong))
    Process.answers = [b""]
    with pytest.raises(WorkerFailed, match="without an end"):
        made.ask(KEY, 1.0, SmallProbe, op="probe_small")
    assert not made.is_alive(KEY)


def test_a_number_that_no_journal_may_hold_is_the_end_of_its_worker_only(dropped) -> None:
    made = pool(Control())
    block_of = {"samples_s": [1e-3], "lead_in_s": [], "clocks": None, "figures": {}, "gap": False}
    block_of |= {"began_s": 0.0, "settled_s": 0.0, "ended_s": 0.0, "loss": 1e35}
    Process.answers = [json.dumps({"ok": block_of}).encode()]
    with pytest.raises(WorkerFailed, match=r"loss cannot be 1e\+35"):
        made.ask(KEY, 1.0, Block, **block(PLAIN))
    assert not made.is_alive(KEY)


GPU = WorkerKey("cuda:0", "torch")
REFUSAL = json.dumps(
    {"error": {"code": "no_device", "message": "no GPU", "hint": "buy one", "fatal": False}}
).encode()


def refused(made: Pool, key: WorkerKey, *answers: bytes) -> str:
    """The code of the reason why a worker does not start."""
    Process.answers = list(answers)
    with pytest.raises(WorkerFailed) as caught:
        made.start(key, 60.0)
    assert not made.is_alive(key)
    return caught.value.reason.code


def test_a_backend_that_cannot_use_a_gpu_is_not_started_on_it_again(dropped: list[bool]) -> None:
    made = pool(Control())
    assert refused(made, GPU, REFUSAL) == "no_device"
    assert refused(made, GPU, HELLO) == "no_device"
    assert refused(made, replace(GPU, alone="row"), HELLO) == "no_device"
    assert Process.answers == [HELLO]  # it was never asked
    made.start(replace(GPU, backend="onnxruntime"), 60.0)
    Process.answers = [HELLO]
    made.start(replace(GPU, device="cuda:1"), 60.0)


def test_a_first_start_on_a_gpu_that_was_cut_short_proves_nothing(dropped: list[bool]) -> None:
    made, slow = pool(Control()), replace(GPU, device="cuda:1")
    for key, deadline_s in ((GPU, 5.0), (slow, 20.0)):
        with pytest.raises(WorkerFailed, match="was not loaded within"):
            made.start(key, deadline_s)
    assert refused(made, slow, HELLO) == "timeout"
    made.start(replace(GPU, alone="row"), 60.0)
    assert made.is_alive(replace(GPU, alone="row"))


def test_a_gpu_that_the_run_has_filled_is_asked_again(dropped: list[bool]) -> None:
    full = REFUSAL.replace(b"no_device", b"no_memory")
    made = pool(Control())
    assert refused(made, replace(GPU, backend="onnxruntime"), full) == "no_memory"
    assert refused(made, replace(GPU, backend="onnxruntime"), HELLO) == "no_memory"
    Process.answers = [HELLO]
    made.start(GPU, 60.0)
    assert refused(made, replace(GPU, alone="compiled"), full) == "no_memory"
    Process.answers = [HELLO]
    made.start(replace(GPU, alone="next row"), 60.0)


def test_a_gpu_that_does_not_answer_is_not_asked_again(dropped: list[bool]) -> None:
    made = pool(Control())
    assert refused(made, GPU) == "timeout"
    assert refused(made, GPU, HELLO) == "timeout"


def test_each_side_of_a_comparison_has_a_python_that_may_find_the_gpu(dropped: list[bool]) -> None:
    made = pool(Control())
    sides = {"a": Side("", ""), "b": Side("", "")}
    made._settings = replace(made._settings, sides=sides)
    assert refused(made, replace(GPU, alone="a"), REFUSAL) == "no_device"
    Process.answers = [HELLO]
    made.start(replace(GPU, alone="b"), 60.0)


def test_a_library_that_a_cpu_worker_lacks_is_asked_for_each_time(dropped: list[bool]) -> None:
    made = pool(Control())
    key = WorkerKey("cpu", "numpy")
    Process.answers = [REFUSAL]
    with pytest.raises(WorkerFailed):
        made.start(key, 60.0)
    assert made.is_alive(key)


def test_a_second_start_on_a_gpu_has_no_more_time_than_it_can_need(dropped, monkeypatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Control, "wait", lambda _, __, left_s: waits.append(left_s) or "deadline")
    control = Control()
    settings = WorkerSettings("test", "python", 1, 0, hide_gpus=False)
    made = Pool(settings, control=control, listener=Listener())
    made.import_s = {GPU: 6.0, WorkerKey("cpu", "torch"): 6.0}
    for key in (replace(GPU, alone="row"), WorkerKey("cpu", "torch", 2)):
        with pytest.raises(WorkerFailed):
            made.start(key, 120.0)
    assert waits == pytest.approx([30.0, 120.0], abs=1.0)


def test_a_gpu_that_admits_one_process_loses_its_worker_to_the_next(dropped: list[bool]) -> None:
    made = pool(Control())
    made._settings = replace(made._settings, exclusive=frozenset({"cuda:0"}))
    other = WorkerKey("cuda:1", "torch")
    for key in (GPU, other, replace(GPU, alone="row")):
        Process.answers = [HELLO]
        made.start(key, 60.0)
        made.held(key).add("a case")
    assert not made.is_alive(GPU)
    assert made.is_alive(replace(GPU, alone="row")) and made.is_alive(other)
    assert made.is_alive(KEY)
    assert (made.held(GPU), made.held(other)) == (set(), {"a case"})  # the others stay prepared


def test_a_worker_that_the_kernel_cannot_end_is_reported_and_left_behind(
    dropped: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pool(Control())
    Process.answers = [HELLO]
    made.start(GPU, 60.0)
    monkeypatch.setattr(Process, "reap", lambda _: None)
    Process.answers = []
    with pytest.raises(WorkerFailed, match="no answer within"):
        made.ask(GPU, 1.0, dict, **block(PLAIN))
    listener = made._listener
    assert isinstance(listener, Listener) and listener.happened[-1] == "not_ended"
    assert refused(made, GPU, HELLO) == "not_ended"
    made.end_all(at_once=True)
    made.close()  # waits for none of them without a bound
