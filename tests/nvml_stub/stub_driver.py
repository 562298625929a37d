"""Builds the stub driver libraries and the environment under which a child loads them.

The children must load the stubs as they would the real driver: by the loader's own search, so
through LD_LIBRARY_PATH at their start.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

_SOURCES = Path(__file__).parent
_FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")
# library folder -> source, soname, further flags
_LIBRARIES = {
    "nvml": ("nvml.c", "libnvidia-ml.so.1", ()),
    "old_nvml": ("nvml.c", "libnvidia-ml.so.1", ("-DOLD_DRIVER",)),
    "cuda": ("cuda.c", "libcuda.so.1", ()),
}


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


@dataclass(frozen=True)
class StubDriver:
    folder: Path

    def environ(self, *libraries: str, **settings: str) -> dict[str, str]:
        """This process's environment with the `libraries` to be found and the stub's settings."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "NVML_STUB"))}
        found = os.pathsep.join(str(self.folder / library) for library in libraries)
        return {**clean, "LD_LIBRARY_PATH": found, **settings}

    @contextmanager
    def loaded(self, *libraries: str, **settings: str) -> Iterator[None]:
        """Let the children that start in the block load the stubs."""
        with patch.dict(os.environ, self.environ(*libraries, **settings), clear=True):
            yield


def build(folder: Path) -> StubDriver:
    """Compile all stubs into the new `folder`, 0.3 s; what another test built is used again."""
    if folder.exists():
        return StubDriver(folder)
    gcc = compiler()
    assert gcc is not None
    for name, (source, soname, flags) in _LIBRARIES.items():
        (folder / name).mkdir(parents=True)
        target = folder / name / soname
        command = [gcc, *_FLAGS, *flags, f"-Wl,-soname,{soname}", "-o", str(target)]
        subprocess.run([*command, str(_SOURCES / source)], check=True)
    return StubDriver(folder)
