"""Child processes: their import path, their limits, and their end with their parent."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support import lives, until

from workbench.process import children
from workbench.process.line_process import QueryProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl(2), /proc")

# A wrapper as --python may name one: it does not replace itself, and leaves a child behind.
WRAPPER = "#!/bin/sh\nsleep 1000 &\necho $!\nsleep 1000\n"


def gone(pid: int, within_s: float = 30.0) -> bool:
    """Whether a process ends in time; a zombie has ended."""
    return until(lambda: not lives(pid), within_s)


def script(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "script.py"
    file.write_text(text)
    return file


def output(tmp_path: Path, text: str, **environ: str) -> str:
    """The output of a script that is started from the poisoned folder `tmp_path`."""
    argv = children.command(script(tmp_path, text), "one", "two")
    process = children.start(argv, environ={**os.environ, **environ}, stdout=subprocess.PIPE)
    return process.communicate(timeout=30)[0].decode().strip()


@pytest.mark.parametrize("safe", ["", "1"])
def test_a_child_searches_neither_the_current_directory_nor_our_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: str
) -> None:
    monkeypatch.chdir(tmp_path)
    own = str(children.BOOTSTRAP.parent)
    text = f"""
import os, sys
print(sys.argv[1:], [p for p in sys.path if p in ("", os.getcwd(), {own!r})])
"""
    said = output(tmp_path, text, PYTHONPATH=":/nowhere:", PYTHONSAFEPATH=safe)
    assert said == "['one', 'two'] []"


def test_with_p_the_first_folder_of_the_path_stays(tmp_path: Path) -> None:
    """There is no script folder to take off then."""
    argv = children.command(script(tmp_path, "import sys; print(sys.path[0])"))
    usual = subprocess.run(argv, capture_output=True, text=True, timeout=30).stdout
    argv.insert(1, "-P")
    assert subprocess.run(argv, capture_output=True, text=True, timeout=30).stdout == usual != ""


def test_empty_entries_of_pythonpath_go() -> None:
    assert children.clean({"PYTHONPATH": ":/x::/y:", "A": ":"}) == {"PYTHONPATH": "/x:/y", "A": ":"}


def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    process = QueryProcess([str(wrapper)])
    left = process.line(30)
    process.line(0.01)
    assert gone(int(left))


def test_what_a_child_left_behind_ends_too() -> None:
    process = QueryProcess(["/bin/sh", "-c", "sleep 1000 >/dev/null & echo $!"])
    left = process.line(30)
    assert not isinstance(process.line(30), bytes)
    assert gone(int(left))


PARENT = """
import subprocess, sys
from workbench.process.children import command, start
child = start(command(sys.argv[1]), stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_a_child_ends_with_its_parent(tmp_path: Path, frozen: bool) -> None:
    silent = script(tmp_path, "import signal; print('up', flush=True); signal.pause()")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(silent)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child = int(parent.stdout.readline())
    if frozen:
        os.kill(child, signal.SIGSTOP)
    parent.kill()
    parent.communicate(timeout=30)
    assert gone(child)


def test_a_child_whose_parent_is_gone_does_not_begin(tmp_path: Path) -> None:
    argv = children.command(script(tmp_path, "print('it ran')"))
    argv[2] = "1"  # not the process that starts it
    done = subprocess.run(argv, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (1, b"")


def test_an_exit_code_is_known_before_the_child_is_waited_for() -> None:
    for text, code in (("exit 3", 3), ("kill -9 $$", -9)):
        process = children.start(["/bin/sh", "-c", text])
        assert children.exit_code(process, 30) == code
        assert process.returncode is None
        assert children.reap(process, 30) == code
    running = children.start(["/bin/sleep", "1000"])
    assert children.exit_code(running, 0.01) is None
    children.kill(running)
    assert children.reap(running, 30) == -signal.SIGKILL


def test_a_signal_during_the_start_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exception would otherwise leave a child that nobody knows."""
    real = subprocess.Popen

    def interrupted(*arguments: object, **options: object) -> object:
        process = real(*arguments, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        children.start(["/bin/sleep", "1000"])
    started = children._groups[-1]
    children.kill_all()
    assert children.reap(started, 30) == -signal.SIGKILL


def test_a_signal_between_two_handlers_leaves_none_of_them_held_back(monkeypatch) -> None:
    handlers = {number: lambda *_: None for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    real, raised = signal.signal, []

    def interrupted(number: int, handler: object) -> object:
        if handler is handlers.get(signal.SIGTERM) and not raised:
            raised.append(number)
            raise KeyboardInterrupt  # as by a signal whose handler is set already
        return real(number, handler)

    monkeypatch.setattr(children.signal, "signal", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), children._signals_held_back():
            pass
        assert {number: signal.getsignal(number) for number in handlers} == handlers
    finally:
        for number, handler in before.items():
            real(number, handler)


IGNORED = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from workbench.__main__ import main
try:
    main(["--version"])
finally:
    print(signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL)
"""


def test_children_can_be_waited_for_although_our_parent_ignores_theirs() -> None:
    done = subprocess.run([sys.executable, "-c", IGNORED], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_children_are_found_where_the_kernel_does_not_list_them(monkeypatch) -> None:
    """Without CONFIG_PROC_CHILDREN, as in small virtual machines."""
    child = children.start(["/bin/sh", "-c", "sleep 1000 & echo; wait"], stdout=subprocess.PIPE)
    assert child.stdout.readline()
    listed = children.family(child.pid)
    real = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "children" and real(path))
    monkeypatch.setattr(Path, "glob", lambda at, pattern: without_lists(at, pattern))
    assert children.family(child.pid) == listed and len(listed) == 2
    children.kill(child)
    children.reap(child, 30)


def without_lists(folder: Path, pattern: str) -> list[Path]:
    """The files of a kernel that has no lists of children."""
    return [] if "children" in pattern else [each / "stat" for each in folder.iterdir()]


def test_named_bounds_hold_and_none_is_no_bound() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        pid = process.pid
        before = resource.prlimit(pid, resource.RLIMIT_DATA)
        children.limit(pid, DATA=None, FSIZE=1 << 20, CORE=0)
        assert resource.prlimit(pid, resource.RLIMIT_FSIZE) == (1 << 20, 1 << 20)
        assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
        assert resource.prlimit(pid, resource.RLIMIT_DATA) == before
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"
    children.limit(2**22 + 1, DATA=1)  # no process has this number, which is no error


def test_the_tail_of_a_log_is_its_end_and_its_writers_position_stays() -> None:
    with tempfile.TemporaryFile() as log:
        os.write(log.fileno(), b"one\n")
        os.lseek(log.fileno(), 2, os.SEEK_SET)
        assert children.log_tail(log) == "one"
        assert os.lseek(log.fileno(), 0, os.SEEK_CUR) == 2
        log.write(b"first" + b"\n" * children.LOG_TAIL_BYTES + b"last \xff\n")
        assert children.log_tail(log).endswith("last \N{REPLACEMENT CHARACTER}")
        assert "first" not in children.log_tail(log)
