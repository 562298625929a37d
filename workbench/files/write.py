"""The one way to write files that a user names, or that replace earlier files.

docs/decisions/017-files.md has the rules and their reasons.  Every failure is an OSError whose
`strerror` completes "NAME cannot be written: ".  Standard library only, since workers use it too.
"""

import errno
import fcntl
import os
import re
import select
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

READER_S = 5.0  # for the reader of a FIFO to open it
STALLED_MS = 1000  # without a byte taken, after which a reader is given up if the run is to end
MOST_LINKS = 40  # the limit of Linux: path_resolution(7)
NULL = Path(os.devnull)
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def resolved(path: Path) -> Path:
    """The path behind all links of `path`; it need not exist."""
    for _ in range(MOST_LINKS):
        if _DESCRIPTOR.fullmatch(str(path)):
            return path
        found = _status(path)
        if found is None or not stat.S_ISLNK(found.st_mode):
            return path
        if found.st_uid not in (0, os.geteuid()):
            reason = "it is a link that belongs to another user: name the file it leads to"
            raise PermissionError(errno.EACCES, reason)
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


class Target:
    """A file or stream that a result goes to; OSError if it cannot be written."""

    def __init__(self, named: Path) -> None:
        self.named = named  # as the user wrote it
        self.path = resolved(named)
        self.is_stream = _is_stream(self.path)
        self._stream: int | None = None
        if not self.is_stream:
            descriptor, new = _made(self.path)  # a trial: access rights would allow files in /proc
            _undo(descriptor, new)

    def open(self) -> None:
        """Open a stream; the reader of a FIFO has five seconds.  A file is not opened yet."""
        if self.is_stream:
            self._stream = _opened(self.path)

    def write(self, content: bytes, *, is_ending: Callable[[], bool] = lambda: False) -> None:
        """Write a whole result; for `is_ending` see `send`."""
        if self._stream is None:
            replace(self.path, content)
        else:
            send(self._stream, content, is_ending=is_ending)

    def begin(self) -> int:
        """A descriptor for a result that grows: the stream, or a new file under the name."""
        if self._stream is not None:
            return self._stream
        descriptor, new = _made(self.path)
        try:
            new.replace(self.path)
        except BaseException:
            _undo(descriptor, new)
            raise
        return descriptor


def replace(path: Path, content: bytes, *, mode: int = 0o666, within: Path | None = None) -> None:
    """Put a file with this `content` at the resolved `path`, atomically for readers.  `within` is
    the temporary file's folder, on the same disk; `mode`, less the umask, is for a new file."""
    descriptor, new = _made(path, mode, within)
    try:
        send(descriptor, content)
        os.fsync(descriptor)
        new.replace(path)
    except BaseException as error:
        _undo(descriptor, new)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
    os.close(descriptor)


def send(descriptor: int, content: bytes, *, is_ending: Callable[[], bool] = lambda: False) -> None:
    """Write all of `content`.  BrokenPipeError if the reader is gone, or takes nothing while
    `is_ending`.  It never blocks in write(2), which Python would repeat after a signal: a pipe that
    is writable by poll(2) takes PIPE_BUF bytes without blocking (pipe(7))."""
    rest = memoryview(content)
    writable = select.poll()
    writable.register(descriptor, select.POLLOUT)
    while rest:
        if not writable.poll(STALLED_MS):
            if is_ending():
                raise BrokenPipeError(errno.EPIPE, "its reader takes nothing")
            continue
        with suppress(BlockingIOError):
            rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]


def _status(path: Path) -> os.stat_result | None:
    """The status of `path` itself; None if nothing is there."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _is_stream(path: Path) -> bool:
    found = _status(path)
    is_fifo = found is not None and stat.S_ISFIFO(found.st_mode)
    return is_fifo or path == NULL or _DESCRIPTOR.fullmatch(str(path)) is not None


def _made(path: Path, mode: int = 0o666, within: Path | None = None) -> tuple[int, Path]:
    """A new empty file that can replace the one at `path`; see `replace`."""
    old = _status(path)
    if old is not None:
        _require_file(path, old)
    new = (within or path.parent) / f".workbench-{os.urandom(8).hex()}.tmp"
    descriptor = os.open(new, _NEW, mode if old is None else 0o600)
    if old is not None:
        with suppress(OSError):  # a file system without permissions
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)
    return descriptor, new


def _require_file(path: Path, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "it has become a link since the run began")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if os.path.ismount(path):
        reason = "it is a mount point and cannot be replaced: mount its folder"
        raise OSError(errno.EBUSY, reason)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _undo(descriptor: int, new: Path) -> None:
    with suppress(OSError):
        os.close(descriptor)
    with suppress(OSError):
        new.unlink()


def _opened(path: Path) -> int:
    """A descriptor of the stream at `path`."""
    named = _DESCRIPTOR.fullmatch(str(path))
    if named is None:
        return _opened_fifo(path)
    own = int(named.group(1))
    if fcntl.fcntl(own, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "it is not open for writing")
    return os.dup(own)  # opening it by name would start again at the beginning of a file


def _opened_fifo(path: Path) -> int:
    # Also for /dev/null, which always has a reader.
    until = time.monotonic() + READER_S
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:  # a FIFO without a reader: fifo(7)
                raise
        if time.monotonic() >= until:
            reason = "it is a FIFO that no process reads: start its reader first"
            raise OSError(errno.ENXIO, reason)
        time.sleep(0.02)
    if path != NULL and not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no longer a FIFO")
    return descriptor
