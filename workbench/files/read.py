"""The one way to read files that others wrote: regular files of bounded size.

Every failure is an OSError whose `strerror` completes "NAME cannot be read: ".
"""

import errno
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO


def whole(path: Path, most: int) -> bytes:
    """The content of a file; OSError if it has more than `most` bytes."""
    with opened(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise _too_large(most)
    return content


def lines(path: Path, most: int, longest: int) -> Iterator[bytes]:
    """The lines of a file; OSError if it has more than `most` bytes, or a line more than `longest`
    bytes with its end."""
    with opened(path) as file:
        left = most
        for number, line in enumerate(iter(partial(file.readline, longest + 1), b""), start=1):
            left -= len(line)
            if left < 0:
                raise _too_large(most)
            if len(line) > longest:
                raise OSError(errno.EINVAL, f"line {number} is longer than {_size(longest)}")
            yield line


def opened(path: Path) -> BinaryIO:
    """The file, open for reading."""
    try:  # O_NONBLOCK: opening a FIFO does not wait for a writer (fifo(7))
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error)) from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise OSError(errno.EINVAL, f"it is {kind}")
    return os.fdopen(descriptor, "rb")


def _too_large(most: int) -> OSError:
    return OSError(errno.EINVAL, f"it is larger than {_size(most)}")


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
