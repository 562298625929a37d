"""The exceptions of backends in words: one line, and whether memory ran out."""

import re
import traceback

from ..text.sanitize import shown
from .onnx_gpu import PACKAGE

LONGEST = 600  # characters of a message

MEMORY_MARKS = (
    "bad_alloc",
    "Failed to allocate memory",
    "can't allocate",
    "Unable to allocate",
    "out of memory",
    "NVML_SUCCESS == r INTERNAL ASSERT",  # the same, on a MIG slice (pytorch#112377)
    "RESOURCE_EXHAUSTED",  # XLA
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA_ERROR_OUT_OF_MEMORY",  # Numba
)
MEMORY_TYPES = ("OutOfMemory", "ResourceExhausted")  # torch and CuPy, TensorFlow
STYLES = re.compile(r"\x1b\[[\d;]*m")  # colours, and what torch prints in bold
# The process cannot use its GPU any more.
FATAL_MARKS = (
    "CUDA error",
    "CUDA driver error",
    "CUDA failure",
    "HIP error",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUBLAS",
    "device-side assert",
    "illegal memory access",
    "CUDA_ERROR_ILLEGAL_ADDRESS",  # Numba
    "CUDA_ERROR_LAUNCH_FAILED",
    "unspecified launch failure",
)
# torch appends the state of its allocator and advice to the line that reports a full GPU.
_MEMORY_DETAILS = re.compile(
    r" (Including non-PyTorch memory|Process \d+ has|Of the allocated memory)\b.*"
)
# torch's messages on a GPU that is full though products and convolutions have worked: no plan of
# cuDNN fits (torch tries them in turn, Conv_v8.cpp), or the thread of the backward pass has no room
# for its own handles (discuss.pytorch.org/t/125450).
FULL_MARKS = (
    "unable to find an engine to execute",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_NOT_INITIALIZED",
)
MEMORY_HINT = "choose a smaller batch or size, or free memory"
FULL_HINT = "other processes fill the GPU: find them with `nvidia-smi`"
FATAL_HINT = "run it again; if it fails again, suspect the GPU or its driver: read `dmesg`"
_BUILD_HINT = "install the build that `workbench doctor` names"
_PTX_HINT = "update the NVIDIA driver, or install a library that was built with an older CUDA"
_LOST_HINT = "the GPU may have left the bus: read `dmesg | grep -iE 'nvrm|xid'`, then reboot"
_WATCHDOG = "the driver ends long kernels on a GPU with a display, or under Windows"
# For a GPU that admits one process at a time; without -i it would change every GPU.
SHARE_GPU = "`sudo nvidia-smi -i N -c DEFAULT`, N as in `nvidia-smi -L`"
UNCAPTURED = "a CUDA graph cannot record code that waits for the GPU"
# Words of CUDA (cudaGetErrorString) and torch, the code of the reason, and the remedy; the first
# match counts.
GPU_CAUSES = (
    ("not compiled with CUDA", "no_device", "install a CUDA build, or use --device cpu"),
    ("no kernel image", "unsupported_device", _BUILD_HINT),
    ("driver on your system is too old", "driver_too_old", _BUILD_HINT),
    ("insufficient for CUDA runtime", "driver_too_old", _BUILD_HINT),
    ("unsupported toolchain", "driver_too_old", _PTX_HINT),
    ("launch timed out", "kernel_timeout", f"{_WATCHDOG}: choose a smaller size or batch"),
    ("busy or unavailable", "gpu_busy", f"end its processes, or {SHARE_GPU}"),
    ("ECC error", "gpu_faulty", "reset or replace the card: `nvidia-smi -q -d ECC,ROW_REMAPPER`"),
    ("NVLink error", "gpu_faulty", "count its errors: `nvidia-smi nvlink -e`, then reboot"),
    ("captur", "unsupported", UNCAPTURED),
    ("shared memory segment", "shared_memory", "in Docker: `docker run --shm-size 1g`"),  # NCCL
    ("cuDNN is unavailable", "no_cudnn", f"install '{PACKAGE}'"),  # ONNX Runtime
    ("not yet initialized", "gpu_not_ready", "`sudo systemctl start nvidia-fabricmanager`"),
    ("No CUDA GPUs are available", "gpu_lost", _LOST_HINT),
    ("no CUDA-capable device", "gpu_lost", _LOST_HINT),
    ("unknown error", "gpu_lost", _LOST_HINT),
)
# For a library whose generated code does not fit the installed protobuf.
_PROTOBUF = "`pip check` names packages that need another protobuf: upgrade those"
PROTOBUF_CAUSES = tuple(
    (words, "protobuf", _PROTOBUF)
    for words in ("Protobuf Gencode", "Descriptors cannot", "google.protobuf", "MessageFactory")
)


def first_line(error: BaseException) -> str:
    """`ValueError: no such axis`: the type and the first line of the message, with the next one if
    that ends in a colon; for an assertion without a message, its source."""
    line, *others = str(error).strip().splitlines() or [""]
    if line.endswith(":") and others:  # "backend='inductor' raised:", "loading state_dict for Net:"
        line = f"{line} {others[0].strip()}".rstrip()
    if line.startswith("NCCL error in: ") and "Last error:" in others[:-1]:
        line = f"NCCL error: {others[others.index('Last error:') + 1]}"
    if not line and isinstance(error, AssertionError) and error.__traceback__:
        line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    line = STYLES.sub("", _MEMORY_DETAILS.sub("", line)).rstrip()
    return shown(f"{type(error).__name__}: {line}" if line else type(error).__name__, LONGEST)


def is_out_of_memory(error: BaseException) -> bool:
    return (
        isinstance(error, MemoryError)
        or any(name in type(error).__name__ for name in MEMORY_TYPES)
        or any(mark in str(error) for mark in MEMORY_MARKS)
    )


def cause(error: BaseException) -> tuple[str, str] | None:
    """Code and remedy of an error of the GPU, its driver or protobuf; None for other errors."""
    text = str(error)
    causes = GPU_CAUSES if re.search("CUDA|NVIDIA|cudaGetDeviceCount|NCCL", text) else ()
    for words, code, hint in (*PROTOBUF_CAUSES, *causes):
        if words in text:
            return code, hint
    return ("failed", FATAL_HINT) if is_fatal(error) else None


def is_fatal(error: BaseException) -> bool:
    return any(mark in str(error) for mark in FATAL_MARKS)
