"""The real program on a real pseudo-terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from support import Cli, budget, is_pending, lives, marked, until

from workbench.records import events as ev
from workbench.report import journal

SPIN = ("run", "spin", "--budget", "40", "--set", "ms=300", "--set", "trouble=forks")


SCREEN = 2000  # bytes: fewer than a drawn screen has, and more than the rest that it writes


def _has_drawn(program: psutil.Process, since: int) -> bool:
    return program.io_counters().write_chars > since + SCREEN


class Terminal:
    """A program on a terminal of 80 by 24, whose screen somebody keeps reading."""

    def __init__(
        self, environment: dict[str, str], *arguments: str, term: str = "xterm-256color"
    ) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # readline sets LINES and COLUMNS behind `os.environ`: no other size would count.
            sizeless = {k: v for k, v in environment.items() if k not in ("LINES", "COLUMNS")}
            words = [sys.executable, "-m", "workbench", *arguments]
            os.execve(sys.executable, words, {**sizeless, "TERM": term})
        self.resize(24, 80)
        self.screen = bytearray()
        self._news = threading.Condition()
        self._reads = threading.Event()
        self._reads.set()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):
            while self._reads.wait() and (data := os.read(self.fd, 65536)):
                with self._news:
                    self.screen += data
                    self._news.notify_all()

    def until(self, text: bytes, timeout: float = 30) -> None:
        with self._news:
            assert self._news.wait_for(lambda: text in self.screen, timeout), self.screen[-2000:]

    def stall(self) -> None:
        """Read no more, and have the program draw more than the kernel keeps for a reader."""
        self._reads.clear()
        program = psutil.Process(self.pid)
        for lines in range(60, 100):
            written = program.io_counters().write_chars
            self.resize(lines, 400)
            if not until(partial(_has_drawn, program, written), 1.0):
                return  # its write waits for the reader
        raise AssertionError("the kernel keeps whatever it draws")

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)  # not every kernel does

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def exit_code(self, timeout: float = 60) -> int:
        assert until(lambda: not lives(self.pid), timeout), "the program does not end"
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[object]:
    open_terminals: list[Terminal] = []

    def start(*arguments: str, **options: str) -> Terminal:
        open_terminals.append(Terminal(environment, *arguments, **options))
        return open_terminals[-1]

    yield start
    for shown in open_terminals:
        with suppress(OSError):
            os.kill(shown.pid, signal.SIGKILL)
        with suppress(OSError):
            os.close(shown.fd)


def at_work(shown: Terminal, cli: Cli) -> list[psutil.Process]:
    """The processes of a run, once it measures."""
    shown.until(b"ready")
    return marked(the_run(cli).stem)


def assert_gone(family: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


def the_run(cli: Cli) -> Path:
    (path,) = cli.runs.glob("*.jsonl")
    return path


@pytest.mark.parametrize("keys", [b"qq", b"\x03"], ids=["q", "ctrl-c"])
def test_leaving_a_live_run_cuts_it_short_and_keeps_its_journal(terminal, cli, keys) -> None:
    shown = terminal(*SPIN)
    family = at_work(shown, cli)
    shown.press(keys)
    assert shown.exit_code() == 130
    assert_gone(family)
    assert journal.read(the_run(cli))[-1].status == "cancelled"
    shown.until(f"kept: workbench open {the_run(cli).stem}".encode())


def test_after_kill_9_of_the_tui_nothing_of_the_run_remains(terminal, cli) -> None:
    shown = terminal(*SPIN)
    family = at_work(shown, cli)
    assert len(family) >= 3
    os.kill(shown.pid, signal.SIGKILL)
    shown.exit_code()
    assert_gone(family)
    assert isinstance(journal.read(the_run(cli))[-1], ev.RunFinished)


@pytest.mark.parametrize("term", ["xterm-256color", "no-database-knows-it"])
def test_an_earlier_run_opens_in_the_tui_and_q_leaves_with_0(terminal, earlier_run, term) -> None:
    shown = terminal("open", "last", term=term)
    shown.until(b"6 of 6 scenarios")
    assert b"\x1b[?1049h" in shown.screen
    shown.press(b"q")
    assert shown.exit_code() == 0


def test_a_terminal_without_utf_8_gets_text_and_one_line(terminal, environment) -> None:
    environment["PYTHONIOENCODING"] = "latin-1"
    shown = terminal("run", "spin", *budget(3))
    shown.until(b"the screens need a UTF-8 terminal, not iso8859-1")
    assert shown.exit_code() == 0
    assert b"\x1b[?1049h" not in shown.screen


@pytest.mark.parametrize(
    ("plain", "term"), [(("--plain",), "xterm-256color"), ((), "dumb")], ids=["plain", "dumb"]
)
def test_plain_and_a_dumb_terminal_show_text(terminal, plain, term) -> None:
    shown = terminal("run", "spin", *budget(3), *plain, "-v", term=term)
    assert shown.exit_code() == 0
    assert re.search(rb"worker +cpu/numpy", shown.screen)
    assert b"\x1b[?1049h" not in shown.screen  # the alternate screen of a TUI


def test_output_is_written_by_the_tui_too_and_the_result_stays(terminal, cli, tmp_path) -> None:
    target = tmp_path / "report.json"
    shown = terminal("run", "spin", *budget(3), "--output", str(target))
    shown.until(b"done")
    shown.press(b"q")
    assert shown.exit_code() == 0
    assert target.exists()
    shown.until(f"kept: workbench open {the_run(cli).stem}".encode())
    left = bytes(shown.screen).rpartition(b"\x1b[?1049l")[2].decode()
    assert "Candidate" in left
    assert "cpu numpy" in left


def test_a_terminal_that_hangs_up_ends_the_run_and_all_its_processes(terminal, cli) -> None:
    shown = terminal(*SPIN)
    family = at_work(shown, cli)
    assert len(family) >= 3
    os.kill(shown.pid, signal.SIGHUP)
    assert shown.exit_code() == 130
    assert_gone(family)
    assert journal.read(the_run(cli))[-1].status == "cancelled"


def test_a_storm_of_window_sizes_leaves_it_running_until_q(terminal, earlier_run) -> None:
    shown = terminal("open", "last")
    shown.until(b"6 of 6 scenarios")
    for turn in range(50):
        shown.resize(8 + turn, 39 + 4 * turn)
    shown.until(b"\x1b[57;1H")  # the last line of the last size is drawn
    shown.press(b"q")
    assert shown.exit_code() == 0
    assert b"Traceback" not in shown.screen


NO_TEXT = b"\xe9abc\xff\xc3\x1b[9999999999u"  # Latin-1, and a key beyond Unicode
BOTH = pytest.mark.parametrize(
    ("arguments", "ready", "code"), [(SPIN, b"ready", 130), (("watch",), b"busy", 0)]
)


@BOTH
def test_bytes_that_are_no_text_are_ignored(terminal, arguments, ready, code) -> None:
    shown = terminal(*arguments)
    shown.until(ready)
    shown.press(NO_TEXT + b"?")
    shown.until(b"Keys")  # the help
    shown.press(b"\x03")
    assert shown.exit_code() == code
    assert b"Traceback" not in shown.screen


@BOTH
def test_a_signal_ends_it_although_the_terminal_does_not_read(
    terminal, cli, arguments, ready, code
) -> None:
    shown = terminal(*arguments)
    shown.until(ready)
    shown.stall()
    os.kill(shown.pid, signal.SIGTERM)
    assert shown.exit_code() == code
    if arguments is SPIN:
        assert journal.read(the_run(cli))[-1].status == "cancelled"


def test_a_second_signal_does_not_wait_for_the_engine(terminal, cli) -> None:
    shown = terminal(*SPIN)
    shown.until(b"ready")
    # Another child describes the workload, which is a user's file.
    (engine,) = (p for p in psutil.Process(shown.pid).children() if "--control" in p.cmdline())
    engine.suspend()
    os.kill(shown.pid, signal.SIGTERM)
    shown.until(b"stopping")  # both at once would be one signal
    os.kill(shown.pid, signal.SIGTERM)
    assert shown.exit_code() == 130
    assert engine.status() == psutil.STATUS_STOPPED
    engine.resume()
    psutil.wait_procs([engine], timeout=10)
    assert journal.read(the_run(cli))[-1].status == "cancelled"


def test_to_be_continued_without_a_stop_changes_nothing(terminal) -> None:
    """Textual would start its threads anew, and the program could not end."""
    shown = terminal("watch")
    shown.until(b"memory")
    os.kill(shown.pid, signal.SIGCONT)
    assert until(lambda: not is_pending(shown.pid, signal.SIGCONT))
    shown.press(b"q")
    assert shown.exit_code() == 0
