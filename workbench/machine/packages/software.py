"""The software stack: the packages of the workers' interpreter, and relevant variables.

Their versions are found without importing them, and trials show whether they work.
"""

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ... import catalog
from ...process.children import adopt_orphans, command
from ...process.line_process import Ended, QueryProcess
from ...records.inspection import Trial
from ...records.machine import Package, Software
from ...text.sanitize import printable_json
from . import stack_query, stack_trial

ORT = "onnxruntime"
_GREETING_LINES = 10
FOREIGN_DEADLINE_S = 20.0  # a conda interpreter on a cold network file system takes seconds
TRIAL_DEADLINE_S = 120.0  # a CUDA build on a cold network disk takes most of a minute to import

# Packages that this program's own interpreter needs, even if another one runs the workers.
_OWN = ("textual", "nvidia-ml-py")

# Code of a warning to its variables, message and remedy; `{}` stands for NAME=VALUE in the message
# and for NAME in the remedy.
WARNED = {
    "thread_variable": (
        "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS",
        "{} is set and may limit the threads of a backend",
        "`unset {}`; workbench sets the threads of each case itself",
    ),
    "isa_variable": (
        "ATEN_CPU_CAPABILITY DNNL_MAX_CPU_ISA MKL_DEBUG_CPU_TYPE MKL_ENABLE_INSTRUCTIONS"
        " NPY_DISABLE_CPU_FEATURES ONEDNN_MAX_CPU_ISA OPENBLAS_CORETYPE",
        "{} is set and may keep libraries from using this CPU's instruction set",
        "`unset {}` to measure what the CPU can do",
    ),
    "precision_variable": (
        "NVIDIA_TF32_OVERRIDE TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
        " CUBLAS_EMULATE_SINGLE_PRECISION CUBLAS_EMULATE_DOUBLE_PRECISION"
        " ONEDNN_DEFAULT_FPMATH_MODE DNNL_DEFAULT_FPMATH_MODE",
        "{} overrides a program's precision; the workers run without it",
        "`unset {}`, or expect other results where it is set",
    ),
    "debug_variable": (
        "CUDA_LAUNCH_BLOCKING PYTHONDEVMODE PYTHONMALLOC PYTORCH_NO_CUDA_MEMORY_CACHING"
        " TORCHDYNAMO_DISABLE TORCH_COMPILE_DISABLE",
        "{} is set; it helps to find errors and slows the work down",
        "`unset {}`",
    ),
    "share_variable": (
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "{} is set; under MPS it limits this process to a part of the GPU",
        "`unset {}` to measure the whole GPU",
    ),
}
# Workers run without these, since a case names its precision.
PRECISION_VARIABLES = WARNED["precision_variable"][0].split()
# Further variables that change results or visibility.
_FURTHER = (
    "OMP_PROC_BIND OMP_PLACES OMP_WAIT_POLICY OMP_THREAD_LIMIT GOMP_CPU_AFFINITY KMP_AFFINITY",
    "KMP_BLOCKTIME MKL_DYNAMIC NUMEXPR_NUM_THREADS TF_NUM_INTRAOP_THREADS TF_NUM_INTEROP_THREADS",
    "TF_ENABLE_ONEDNN_OPTS TF_XLA_FLAGS XLA_FLAGS JAX_PLATFORMS JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_ENABLE_X64 CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_MODULE_LOADING",
    "NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF",
    "WORLD_SIZE LOCAL_WORLD_SIZE HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK",
    "SLURM_JOB_ID SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS LD_PRELOAD GLIBC_TUNABLES",
    "MALLOC_MMAP_MAX_ MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_",
)
# The values of these are shown, with paths cut to file names, so variables that usually hold tokens
# or names do not belong here.
VARIABLES = " ".join([*(names for names, *_ in WARNED.values()), *_FURTHER]).split()

# Variables that differ for each job of a scheduler; no result depends on their values.
OF_A_JOB = ("SLURM_JOB_ID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The `VARIABLES` that are set."""
    values = {name: environ[name] for name in VARIABLES if name in environ}
    for name in values.keys() & {"LD_PRELOAD", "TF_XLA_FLAGS", "XLA_FLAGS"}:
        values[name] = re.sub(r"[^\s:=]*/", "", values[name])
    return values


def shorten_home(path: str | Path) -> str:
    """The path with `~` for the home folder, which often contains a person's name."""
    path, home = str(path), str(Path.home()).rstrip(os.sep)
    return "~" + path[len(home) :] if home and path.startswith(home + os.sep) else path


def package_of(name: str, software: Software) -> str | None:
    """The installed package that `import name` would find; several provide onnxruntime."""
    names = catalog.backend(name).packages or (name,)
    for package, found in software.packages.items():
        fits = package in names or (name == ORT and package.startswith(f"{ORT}-"))
        if found.version and fits:
            return package
    return None


class StackQuery:
    """The versions in this interpreter, or in `python`, which is asked in the background."""

    def __init__(self, python: str | None) -> None:
        self._python = python
        self._process: QueryProcess | None = None
        if python is not None:
            adopt_orphans()  # a foreign interpreter may be a script that starts other processes
            self._process = QueryProcess(command(Path(stack_query.__file__), python=python))

    def collect(self, deadline_s: float = FOREIGN_DEADLINE_S) -> Software:
        own = msgspec.convert(stack_query.query(), Software)
        found: Software | Ended = own
        if self._process is not None:
            found = _foreign(self._process, min(deadline_s, FOREIGN_DEADLINE_S))
            self._process.close()
        if isinstance(found, Ended):
            given = shorten_home(self._python or "")
            reason = f"{given} {found.message}"
            unknown = Package(version=None, detail="unknown: the interpreter did not answer")
            packages = {name: unknown for name in stack_query.CORE if name not in _OWN}
            why = {"python": reason, "packages": reason}
            found = Software("", given, packages, {}, unavailable=why)
        return msgspec.structs.replace(
            found,
            executable=shorten_home(found.executable or sys.executable),
            packages=found.packages | {name: own.packages[name] for name in _OWN},
            environment=environment(),
        )


def _foreign(process: QueryProcess, deadline_s: float) -> Software | Ended:
    """The answer of another interpreter; a wrapper may print a greeting before it."""
    until = time.monotonic() + deadline_s
    for _ in range(_GREETING_LINES + 1):
        line = process.line(max(0.0, until - time.monotonic()))
        if isinstance(line, Ended):
            return line
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(printable_json(line), type=Software)
    return Ended("crashed", "does not answer like a Python interpreter")


def try_packages(
    names: Sequence[str], python: str | None = None, *, at_once: bool = True
) -> dict[str, Trial]:
    """Package -> trial; a crash or a hang is that package's failure.

    `at_once` is not for GPUs that admit one process at a time.
    """
    file = Path(stack_trial.__file__)
    processes = (QueryProcess(command(file, name, python=python)) for name in names)
    started = list(processes) if at_once else processes
    return dict(zip(names, map(_trial, started), strict=True))


def _trial(process: QueryProcess) -> Trial:
    decode = msgspec.json.Decoder(Trial).decode
    trial = process.answer(
        lambda line: decode(printable_json(line)), TRIAL_DEADLINE_S, since_start=True
    )
    if isinstance(trial, Ended):
        return Trial(failure=f"the process that tried it {trial.message}")
    return trial
