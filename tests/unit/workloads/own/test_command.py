"""A user's command as a task: real processes, which never outlive a step."""

import os
import shlex
import sys
import tracemalloc
from contextlib import ExitStack, closing

import msgspec
import pytest
from checking import fails_with

from workbench.contract import Case, Setup, WorkloadError
from workbench.process import children
from workbench.records.code import CodeFacts
from workbench.worker.block import Prepared, run_block, warm_up
from workbench.worker.code import COMMAND
from workbench.worker.worker import Worker
from workloads.own import command
from workloads.own.workload import WORKLOAD

PYTHON = shlex.quote(sys.executable)


@pytest.fixture(autouse=True)
def _no_process_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "adopt_processes", lambda: None)


@pytest.fixture
def task_of(code):
    """Tasks of commands in Python, which are closed in the end."""
    with ExitStack() as tasks:

        def made(text: str, tuning: dict[str, object] | None = None, **given: object):
            command = code(f"{PYTHON} {text}", COMMAND, **given)
            case = Case("own", "cpu", "command", "", tuning=tuning or {})
            task = WORKLOAD.prepare(case, Setup(files={"code": command.as_text()}))
            return tasks.enter_context(closing(task))

        yield made


def _children() -> int:
    return len(children.offspring(os.getpid()))


def test_a_step_runs_the_command_with_the_values_of_its_case(task_of, tmp_path) -> None:
    target = tmp_path / "out file"
    write = "-c 'import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])'"
    task = task_of(f"{write} {{path}} x{{workers}}y", tuning={"path": str(target), "workers": 2})
    assert task.restores
    task.step()
    assert target.read_text() == "x2y"
    assert task.check().passed
    assert task.check().reference == "exit status 0"


def test_a_failing_command_is_named_with_its_last_error(task_of, capfd) -> None:
    task = task_of("process.py fail")
    with fails_with("user_code") as caught:
        task.step()
    assert str(caught.value) == ("it failed (exit code 3); its log ends: first | no such device")
    logged = capfd.readouterr().err
    assert "started fail" in logged
    assert "first" in logged


def test_a_command_that_asks_has_its_remedy(task_of) -> None:
    with fails_with("user_code", "EOFError", hint="its standard input is empty: feed it with"):
        task_of("-c 'input()'").step()


@pytest.fixture
def log(tmp_path, monkeypatch):
    with (tmp_path / "log").open("w+b") as log:
        monkeypatch.setattr(command, "LOG", log.fileno())
        yield log


def test_what_a_command_prints_does_not_fill_the_disk(log, task_of) -> None:
    task = task_of(f"-c 'print(\"x\" * {2 * command.MOST_LOGGED})'")
    for _ in range(3):
        task.step()
        assert os.fstat(log.fileno()).st_size <= 2 * command.MOST_LOGGED + 1
        task.restore()
        assert not os.fstat(log.fileno()).st_size


def test_what_it_prints_before_its_line_does_not_either(log, task_of) -> None:
    lines = f'for n in range(9): print(n, "x" * {command.MOST_LOGGED})'
    task = task_of(f"-c '{lines}'", until="^8 x")
    task.step()
    files = (log, task._errors)
    assert all(os.fstat(f.fileno()).st_size <= 2 * command.MOST_LOGGED for f in files)


def test_a_command_is_ended_at_its_line(task_of, capfd) -> None:
    before = _children()
    task = task_of("process.py line", until="epoch [0-9]+ done$")
    for _ in range(2):
        task.step()
        assert _children() == before + 1
        task.restore()
        assert _children() == before
    assert "epoch 1 done" in capfd.readouterr().err


def test_a_command_that_is_ended_may_clean_up(task_of, tmp_path) -> None:
    (tmp_path / "cleans.py").write_text(
        "import pathlib, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('step 1', flush=True)\n"
        "signal.sigwait([signal.SIGTERM])\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
    )
    done, before = tmp_path / "done", _children()
    task = task_of(f"{tmp_path / 'cleans.py'} {done}", until="step 1")
    task.step()
    task.restore()
    assert done.exists() and _children() == before


def test_a_line_counts_when_its_carriage_return_comes(task_of) -> None:
    task = task_of("process.py progress", until="^step 3$")
    task.step()  # the next line would come in a minute


def test_colours_in_a_line_do_not_count(task_of) -> None:
    task = task_of(r"""-c 'print("\x1b[1;32mstep\x1b[0m 3")'""", until="^step 3$")
    task.step()


def test_the_beginning_of_a_line_does_not_count(task_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PIPE_BYTES", len("epoch 1"))
    task = task_of("-c \"print('epoch 10')\"", until="epoch 1$")
    with pytest.raises(WorkloadError, match="it ended without a line"):
        task.step()


def test_a_line_that_does_not_end_takes_no_memory(task_of) -> None:
    task = task_of("""-c 'print("go", end="." * (1 << 24)); print("on")'""", until="^go.*on$")
    tracemalloc.start()
    task.step()
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_a_command_without_its_line_is_an_error(task_of) -> None:
    task = task_of("process.py quick", until="never")
    with fails_with("user_code", "without a line that matches 'never'"):
        task.step()
    failing = task_of("process.py fail", until="never")
    with pytest.raises(WorkloadError, match=r"exit code 3\).* no such device$"):
        failing.step()


def test_a_killed_command_is_an_error(task_of) -> None:
    dead = task_of("-c 'import os; os.kill(os.getpid(), 9)'")
    with pytest.raises(WorkloadError, match="killed by SIGKILL"):
        dead.step()


@pytest.mark.parametrize(
    ("name", "why"), [("gone", "No such file or directory"), ("bare", "Exec format error")]
)
def test_a_program_that_cannot_be_started_has_its_remedy(code, tmp_path, name, why) -> None:
    bare = tmp_path / "bare"
    bare.write_text("echo no line names an interpreter")
    bare.chmod(0o755)
    program = str(tmp_path / name)
    case = Case("own", "cpu", "command", "", tuning={"program": program})
    given = {"code": code("{program} x", COMMAND).as_text()}
    with pytest.raises(WorkloadError) as caught:
        WORKLOAD.prepare(case, Setup(files=given)).step()
    assert str(caught.value) == f"{program} cannot be started: {why}"
    assert caught.value.hint == command.STARTS


def test_facts_come_without_running_it(code) -> None:
    def facts(text: str) -> CodeFacts:
        made = code(text, COMMAND)
        return msgspec.convert(WORKLOAD.consult("examine", code=made.as_text()), CodeFacts)

    found = facts(f"{PYTHON} process.py fail")
    assert (found.kind, found.precision) == ("command", "")
    assert f"{PYTHON} process.py fail".startswith(found.name.removesuffix("..."))
    assert found.code_sha256 != facts(f"{PYTHON} works.py fail").code_sha256
    assert facts("{program} x").code_sha256, "its program is not known yet"
    assert facts(f"{PYTHON} \udcff.py").code_sha256, "a file name that is not UTF-8"
    for text in ("./nothing.sh", "pythn x"):
        with fails_with("bad_target", "there is no program"):
            facts(text)


def test_a_program_that_is_not_executable_has_its_remedy(code, tmp_path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("exit 0\n")
    with pytest.raises(WorkloadError, match=r"train.sh is not executable: `chmod \+x` it"):
        WORKLOAD.consult("examine", code=code(str(script), COMMAND).as_text())


def test_each_sample_is_a_whole_run(task_of) -> None:
    task = task_of("-c pass")
    warmed = warm_up(task, latency=False, seconds=0.05)
    assert warmed.iterations == 1
    ready = Prepared(task, warmed, latency=False)
    found = run_block(ready, seconds=0.0, min_samples=1, settle_s=0.0)
    assert found["samples_s"][0] > 1e-3


def test_the_worker_says_hello() -> None:
    assert Worker("command", "cuda:0").hello()["versions"]["command"] == ""
    assert Worker("python", "cpu").hello()["versions"]["python"] == sys.version.split()[0]
