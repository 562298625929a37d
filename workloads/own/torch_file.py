"""A file for torch's writers that survives a full disk."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def torch_file(path: Path) -> Iterator[io.RawIOBase]:
    """A file for torch's writers, which would end the process if a write fails: the error of a
    write is raised at the end of the block instead."""
    with path.open("wb") as file:
        writing = _Writing(file)
        yield writing
        if writing.error is not None:
            raise writing.error


class _Writing(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.error: Exception | None = None

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)  # torch.export.save returns to the start

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                self._file.write(data)
            except (OSError, ValueError) as error:  # a writer may outlive its file
                self.error = error
        return len(data)
