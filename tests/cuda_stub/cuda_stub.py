"""Builds the stub of CUDA, and the environment under which a child finds it."""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import torch

_HERE = Path(__file__).parent
_SOURCES = ("device", "kernels", "timer")
_FLAGS = ("-O0", "-g0", "-fPIC", "-std=c++20", "-w")


def build(folder: Path) -> Path:
    """Compile into `folder`, which takes about 15 s."""
    root = Path(torch.__file__).parent
    found = (root / "include", root / "include/torch/csrc/api/include")
    found += (Path(sysconfig.get_paths()["include"]),)
    include = [f"-I{each}" for each in found]
    compiling = [
        subprocess.Popen(
            ["g++", *_FLAGS, *include, "-c", str(_HERE / f"{name}.cpp"), "-o", f"{name}.o"],
            cwd=folder,
        )
        for name in _SOURCES
    ]
    assert [each.wait() for each in compiling] == [0] * len(_SOURCES)
    library = folder / "libcuda_stub.so"
    objects = [f"{name}.o" for name in _SOURCES]
    linked = (f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{root / 'lib'}")
    text = (root / "version.py").read_text()
    (folder / "version.py").write_text(re.sub(r"^cuda\b.*", 'cuda = "13.0"', text, flags=re.M))
    subprocess.run(["g++", "-shared", "-o", library, *objects, *linked], cwd=folder, check=True)
    return library


def is_possible() -> bool:
    """Whether there is a compiler, and a torch without CUDA of its own."""
    return shutil.which("g++") is not None and torch.version.cuda is None


def settings(library: Path, drivers: Path) -> dict[str, str]:
    """The variables that let a child find a GPU: in torch, and in the stub driver libraries of the
    folder `drivers`."""
    return {
        "LD_LIBRARY_PATH": os.pathsep.join((str(drivers / "nvml"), str(drivers / "cuda"))),
        "PYTHONPATH": os.pathsep.join((str(_HERE / "site"), str(_HERE.parents[1]))),
        "CUDA_STUB_LIBRARY": str(library),
    }
