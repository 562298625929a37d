"""A user's workloads and backends, as child processes describe them; every answer is checked."""

import atexit
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..contract import (
    Backend,
    Case,
    Host,
    ParameterValue,
    ParameterValues,
    Setup,
    Task,
    Work,
    Workload,
    WorkloadError,
)
from ..process.children import command, ending
from ..process.line_process import LineProcess, LineTooLong
from ..records.reason import Reason
from ..records.reply import LONGEST, Failure, Unreadable, read
from ..text.sanitize import shown
from . import faults
from .faults import BackendDescription, WorkloadDescription

LONGEST_TEXT = 300  # characters of a title
DEADLINE_S = 5.0  # for the import, which may include NumPy, and for each question
DEATH_S = 1.0  # for the child to end once its pipe has closed
HINT = "import libraries inside functions"
MODULE = "workbench.worker.description"

T = TypeVar("T")
_MAYBE_CASE: Any = Case | None
Stamp = tuple[int, int, int]  # inode, size and time of the last change
_known: dict[tuple[str, Path], "UserFile"] = {}


class UserFile:
    """One user's file with a "workload" or "backend" (`kind`).  A child process answers for it,
    since its code can print, hang, crash or exit.  The child is stopped between questions, so that
    it cannot disturb a measurement."""

    def __init__(self, kind: str, name: str, file: Path, stamp: Stamp) -> None:
        self._kind, self._name, self._file, self.stamp = kind, name, file, stamp
        self._child: LineProcess | None = None
        self._method = ""  # the method of the current question, for messages
        self._ended: Reason | None = None  # why it answers no more questions
        self._answers: dict[bytes, Any] = {}  # by question; a `Reason` if there is no answer

    def ask(
        self, op: str, kind: type[T], find: Callable[[T], Iterable[str]], **arguments: Any
    ) -> T:
        """The answer to one question, asked only once; WorkloadError if there is none, or if `find`
        finds a fault in it."""
        question = msgspec.json.encode({"op": op, **arguments})
        if question not in self._answers:
            self._method = "" if op == "describe" else f"{op}(): "
            self._answers[question] = self._answer(question, kind, find)
        answer = self._answers[question]
        if isinstance(answer, Reason):
            raise WorkloadError(answer.message, code=answer.code, hint=answer.hint)
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the child; its answers stay known."""
        if self._child is not None:
            self._child.kill()
            self._child.reap()
            self._child = None
        self._ended = self._ended or self._broken("it is closed")

    def _answer(
        self, question: bytes, kind: type[T], find: Callable[[T], Iterable[str]]
    ) -> T | Reason:
        line = self._ended or self._converse(question)
        if isinstance(line, Reason):
            return line
        try:
            answer = read(line, kind)
        except Unreadable as error:
            return self._broken(str(error))
        if isinstance(answer, Failure):
            hint = None if answer.code == "non_finite" else answer.reason.hint
            return self._broken(answer.reason.message, hint)
        found = next(iter(find(answer)), None)
        return answer if found is None else self._broken(found)

    def _converse(self, question: bytes) -> bytes | Reason:
        """The child's line; a child without an answer is ended for good."""
        try:
            child = self._awake()
            child.send(question)
            return child.line(time.monotonic() + DEADLINE_S)
        except TimeoutError:
            self._ended = self._broken(f"it gave no answer within {DEADLINE_S:g} s", HINT)
        except LineTooLong:
            self._ended = self._broken("its answer is too long")
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._ended = self._broken(self._death())
        except BaseException:  # by a signal: a late answer must not go to the next question
            self.close()
            raise
        finally:
            self._stop()
        self.close()
        return self._ended

    def _awake(self) -> LineProcess:
        if self._child is None:
            self._child = LineProcess(command(MODULE), self._kind, self._name, new_session=True)
        else:
            self._child.signal_group(signal.SIGCONT)
        return self._child

    def _stop(self) -> None:
        if self._child is not None:
            self._child.signal_group(signal.SIGSTOP)

    def _death(self) -> str:
        assert self._child is not None  # it has been asked
        exit_code = self._child.exit_code(DEATH_S)
        return ending("its process ended", exit_code, self._child.log_tail())

    def _broken(self, text: str, hint: str | None = None) -> Reason:
        """`text` as a reason that names the file and the method."""
        name = shown(self._file.name)
        message = text if text.startswith(name) else f"{name}: {self._method}{text}"
        return Reason(f"broken_{self._kind}", shown(message, LONGEST), hint)


class DescribedWorkload(Workload):
    """A user's workload; its child process answers every call."""

    def __init__(self, name: str, file: Path) -> None:
        """WorkloadError says why the file cannot be used."""
        self._file = _user_file("workload", name, file)
        found = self._file.ask("describe", WorkloadDescription, faults.in_workload)
        texts = {key: shown(getattr(found, key), LONGEST_TEXT) for key in ("title", "teaches")}
        # They are class attributes in the contract, but differ between instances here.
        vars(self).update({**msgspec.structs.asdict(found), **texts, "name": name})

    def work(self, case: Case) -> Work:
        return self._file.ask("work", Work, faults.in_work, case=case)

    def small_probe(self, case: Case) -> Case | None:
        find = partial(faults.in_probe, case=case, parameters=self.parameters)
        small: Case | None = self._file.ask("small_probe", _MAYBE_CASE, find, case=case)
        return small

    def tuning_values(self, parameter: str, host: Host, device_kind: str) -> ParameterValues:
        find = partial(faults.in_values, next(p for p in self.parameters if p.name == parameter))
        asked = {"parameter": parameter, "host": host, "device_kind": device_kind}
        return self._file.ask("tuning_values", list[ParameterValue], find, **asked)

    def prepare(self, case: Case, setup: Setup) -> Task:
        """Refused, since only workers may run the user's code."""
        raise WorkloadError(f"{self.name} can be prepared in a worker only")


def describe_backend(name: str, file: Path) -> Backend:
    """The backend in a user's file; WorkloadError says why it cannot be used."""
    asked = _user_file("backend", name, file)
    try:
        found = asked.ask("describe", BackendDescription, faults.in_backend)
    finally:
        asked.close()  # there are no further questions
    backend = Backend()
    vars(backend).update({**msgspec.structs.asdict(found), "name": name})
    return backend


def _user_file(kind: str, name: str, file: Path) -> UserFile:
    """The process that knows this version of the file."""
    try:
        status = file.stat()
    except OSError as error:
        text = f"{shown(file.name)} cannot be read: {error.strerror}"
        raise WorkloadError(text, code=f"broken_{kind}") from None
    stamp = status.st_ino, status.st_size, status.st_mtime_ns
    before = _known.get((kind, file))
    if before is not None and before.stamp == stamp:
        return before
    if before is not None:
        before.close()
    found = _known[kind, file] = UserFile(kind, name, file, stamp)
    return found


@atexit.register
def close_all() -> None:
    """End every child."""
    for asked in _known.values():
        asked.close()
    _known.clear()
