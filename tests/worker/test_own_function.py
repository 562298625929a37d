"""A user's function and command in real workers: what they do stays there."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import marked

from workbench.contract import Case
from workbench.pool.worker_process import WorkerKey, WorkerProcess, WorkerSettings
from workbench.worker.code import COMMAND, FUNCTION, Code

OWN = Path(__file__).resolve().parents[1] / "fixtures" / "own"
RUN = f"test-{os.getpid()}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], WorkerProcess]]:
    workers: list[WorkerProcess] = []

    def started(backend: str) -> WorkerProcess:
        settings = WorkerSettings(RUN, sys.executable, 1, 8 << 30, hide_gpus=True)
        workers.append(WorkerProcess(WorkerKey("cpu", backend), settings, tmp_path))
        return workers[-1]

    yield started
    for worker in workers:
        worker.kill()
        worker.reap()


def _ask(worker: WorkerProcess, **request: Any) -> Any:
    """The decoded answer; TimeoutError without one."""
    worker.request(request)
    worker.socket.settimeout(30.0)
    line = worker.socket.makefile("rb").readline()
    return json.loads(line)


def _code(tmp_path: Path, target: str, kind: str = FUNCTION, **given: Any) -> str:
    return Code(kind, target, str(tmp_path), str(OWN), **given).as_text()


def _consult(worker: WorkerProcess, code: str) -> Any:
    return _ask(worker, op="consult", workload="own", question="examine", code=code)


def _preparing(case: Case, code: str) -> dict[str, Any]:
    return {
        "op": "prepare",
        "case": case,
        "seed": 0,
        "latency": True,
        "warm_up_s": 0.01,
        "cache_bytes": 1 << 20,
        "files": {"code": code},
        "from_start": False,
    }


def _prepare(worker: WorkerProcess, case: Case, code: str) -> Any:
    return _ask(worker, **_preparing(case, code))


def test_exits_prints_and_changes_of_inputs_leave_the_worker_in_order(start, tmp_path) -> None:
    worker = start("python")
    exits = _consult(worker, _code(tmp_path, "exits_at_import:x"))["error"]
    assert exits["code"] == "user_code"
    assert "exits_at_import.py:7" in exits["message"]
    lacking = _consult(worker, _code(tmp_path, "lacks_package:x"))["error"]
    assert lacking["code"] == "missing_package"
    assert lacking["hint"] == "`pip install a_package_that_nobody_has`"
    sorting = _code(tmp_path, "works:sorts")
    assert _consult(worker, sorting)["ok"]["mutated"] == ["values"]
    case = Case("own", "cpu", "python", "", threads=1, batch=2000)
    assert _prepare(worker, case, sorting)["ok"]["warmup"]["iterations"] == 1
    block = _ask(worker, op="block", case=case.id, seconds=0.0, min_samples=3, settle_s=0.0)
    assert len(block["ok"]["samples_s"]) >= 3
    assert _prepare(worker, Case("own", "cpu", "python", ""), _code(tmp_path, "works:prints"))["ok"]
    assert "printed by the user" in worker.log_tail()


def test_what_the_users_code_wrote_is_in_its_file_when_the_worker_has_ended(
    start, tmp_path
) -> None:
    written = tmp_path / "log.txt"
    text = f"log = open({str(written)!r}, 'w')\ndef work():\n    log.write('row')\n"
    (tmp_path / "held.py").write_text(text)
    worker = start("python")
    code = Code(FUNCTION, "held:work", str(tmp_path), str(tmp_path))
    assert _consult(worker, code.as_text())["ok"]
    assert written.read_text() == "", "it waits in the buffer"
    worker.ask_to_end()
    assert worker.exit_code(30.0) == 0
    assert written.read_text().startswith("row")


@pytest.mark.parametrize("change", ["['CUDA_VISIBLE_DEVICES'] = '0'", ".clear()"])
def test_code_that_names_a_gpu_sees_none_in_a_worker_on_the_cpu(start, tmp_path, change) -> None:
    text = (
        f"import ctypes, os\nos.environ{change}\n"
        "seen = ctypes.CDLL(None).getenv\nseen.restype = ctypes.c_char_p\n"
        "def work():\n    return seen(b'CUDA_VISIBLE_DEVICES').decode()\n"
        "work.check = lambda result: result == os.environ['CUDA_VISIBLE_DEVICES'] == ''\n"
    )
    (tmp_path / "names_a_gpu.py").write_text(text)
    code = Code(FUNCTION, "names_a_gpu:work", str(tmp_path), str(tmp_path))
    facts = _consult(start("python"), code.as_text())["ok"]
    assert "it sets CUDA_VISIBLE_DEVICES, perhaps too late to have an effect" in facts["notes"]


def test_a_hang_at_import_is_left_to_the_deadline(start, tmp_path) -> None:
    worker = start("python")
    code = _code(tmp_path, "hangs_at_import:x")
    worker.request({"op": "consult", "workload": "own", "question": "examine", "code": code})
    _once(lambda: "about to wait" in worker.log_tail())
    worker.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        worker.socket.recv(1)
    worker.kill()
    assert worker.exit_code(5.0) == -signal.SIGKILL


def _once(happens: Callable[[], object]) -> None:
    """Return once something happens; fail after 30 seconds."""
    until = time.monotonic() + 30.0
    while not happens():
        assert time.monotonic() < until


def _own_children(worker: WorkerProcess) -> list[psutil.Process]:
    return [one for one in marked(RUN) if one.pid != worker.pid]


def test_what_a_command_starts_ends_with_it_and_is_paused_with_its_worker(start, tmp_path) -> None:
    worker = start("command")
    code = _code(tmp_path, f"{sys.executable} process.py children", COMMAND)
    case = Case("own", "cpu", "command", "")
    assert _prepare(worker, case, code)["ok"]["accuracy"]["reference"] == "exit status 0"
    assert _own_children(worker) == [], "orphans too"
    until = _code(tmp_path, f"{sys.executable} process.py line", COMMAND, until="done")
    assert _prepare(worker, case, until)["ok"]
    assert _own_children(worker) == []
    endless = _code(tmp_path, f"{sys.executable} process.py line", COMMAND)
    worker.request(_preparing(case, endless))
    # Before its exec a child holds the worker in vfork, where neither can be stopped.
    _once(lambda: ["process.py" in one.cmdline()[1:2] for one in _own_children(worker)] == [True])
    assert worker.freeze()
    (one,) = _own_children(worker)
    assert one.status() == psutil.STATUS_STOPPED
    worker.kill()
    worker.exit_code(5.0)
    with suppress(psutil.NoSuchProcess):
        one.wait(5.0)
    assert not one.is_running()


def test_a_script_that_kills_its_group_does_not_take_the_worker_along(start, tmp_path) -> None:
    worker = start("command")
    killing = _code(tmp_path, "sh -c 'trap : TERM; kill 0; exit 0'", COMMAND)
    assert _prepare(worker, Case("own", "cpu", "command", ""), killing)["ok"]
