"""A user's command, run whole or until it prints a certain line."""

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from workbench.contract import Accuracy, Case, Task, WorkloadError
from workbench.process import children
from workbench.process.children import MOST_LOGGED, empty_if_long, ending, log_tail
from workbench.worker.code import ASSIGNMENT, Code, command_words, placeholders
from workbench.worker.failures import STYLES
from workbench.worker.serve import LOG

LARGEST_BYTES = 1 << 24  # for a file that is hashed by its content
PIPE_BYTES = 1 << 16  # pipe(7)
STARTS = "name a program, or the interpreter that runs the file"
FED = "its standard input is empty: feed it with `sh -c '... <FILE'`"
END_S = 1.0  # for a command to end its containers and remove its files


class CommandTask(Task):
    """Each step runs the command to its end, or until it prints the line.

    Its processes stay in the worker's group, so that they are paused and killed with it.
    """

    restores = True

    def __init__(self, code: Code, case: Case) -> None:
        self._directory = code.directory
        self._argv = command_words(code.target, case.tuning)
        self._until = None if code.until is None else re.compile(code.until)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `close` does it
        self._process: subprocess.Popen[bytes] | None = None
        self._others = set(children.offspring(os.getpid()))

    def step(self) -> None:
        reads = self._until is not None
        try:
            self._process = subprocess.Popen(
                self._argv,
                cwd=self._directory,
                # The line must not wait in a buffer.
                env={**os.environ, "PYTHONUNBUFFERED": "1"} if reads else None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if reads else LOG,
                stderr=subprocess.STDOUT if reads else self._errors,
            )
        except OSError as error:
            text = f"{self._argv[0]} cannot be started: {error.strerror}"
            raise WorkloadError(text, code="user_code", hint=STARTS) from error
        if self._process.stdout is not None and self._finds_line(self._process.stdout.fileno()):
            return
        status = self._process.wait()
        if status:
            text = "it failed"
        elif self._until is not None:
            text = f"it ended without a line that matches {self._until.pattern!r}"
        else:
            return
        text = ending(text, status, log_tail(self._errors))
        self.restore()
        raise WorkloadError(text, code="user_code", hint=FED if "EOFError" in text else None)

    def _finds_line(self, pipe: int) -> bool:
        """Wait for the line; False if the output ends without it.

        The line of a progress bar ends with a carriage return.  A long line keeps its start and its
        end only, since a command may print dots for hours.
        """
        rest = b""
        while data := os.read(pipe, PIPE_BYTES):
            os.write(LOG, data)
            self._errors.write(data)
            if self._errors.tell() > MOST_LOGGED:
                self._empty_logs()
            first, *more = re.split(rb"[\r\n]", data)
            *lines, rest = rest + first, *more
            if any(self._matches(line) for line in lines if line):
                return True
            if len(rest) > 2 * PIPE_BYTES:
                rest = rest[:PIPE_BYTES] + rest[-PIPE_BYTES:]
        return bool(rest) and self._matches(rest)

    def _matches(self, line: bytes) -> bool:
        text = STYLES.sub("", line.decode(errors="replace"))
        return self._until is not None and self._until.search(text) is not None

    def restore(self) -> None:
        """End the command and everything that it has started, and copy its errors to the log."""
        if self._process is not None:
            with self._process:  # waits, and closes the pipe
                self._process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
                self._process.kill()
            if self._until is None and (tail := log_tail(self._errors)):
                os.write(LOG, f"{tail}\n".encode())
            self._process = None
        self._empty_logs()
        while left := set(children.offspring(os.getpid())) - self._others:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _empty_logs(self) -> None:
        """Keep what the command prints from filling the disk."""
        empty_if_long(LOG)
        self._errors.seek(0)
        self._errors.truncate()

    def check(self) -> Accuracy:
        """There is nothing to compare: a run that fails raises."""
        return Accuracy.uncompared("exit status 0" if self._until is None else "its line")

    def close(self) -> None:
        self.restore()
        self._errors.close()


def adopt_processes() -> None:
    """Adopt processes that a command leaves behind, and survive a `kill 0` of its group."""
    children.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: None)  # unlike SIG_IGN, children do not inherit it


def examine(code: Code) -> dict[str, Any]:
    """Facts about the command, which is not run: a hash of its text and of the files it names.

    Raises WorkloadError "bad_target" if there is no such program.
    """
    words, folder = shlex.split(code.target), Path(code.directory)
    while len(words) > 1 and ASSIGNMENT.match(words[0]):
        del words[0]
    program = str(folder / words[0]) if os.sep in words[0] else words[0]
    if not placeholders(program) and shutil.which(program) is None:
        if Path(program).is_file():
            why = f"{words[0]} is not executable: `chmod +x` it, or start it with its interpreter"
            raise WorkloadError(why, code="bad_target")
        raise WorkloadError(f"there is no program {words[0]}", code="bad_target")
    text = hashlib.sha256(os.fsencode(code.target))
    for file in (folder / word for word in words[1:]):
        with suppress(OSError, ValueError):
            found = file.stat()
            if not file.is_file():
                continue  # a folder changes as the command writes into it
            if found.st_size <= LARGEST_BYTES:
                text.update(file.read_bytes())
            else:
                text.update(f"{found.st_size} {found.st_mtime_ns}".encode())
    return {"code_sha256": text.hexdigest(), "inputs_sha256": "", "precision": ""}
