"""ONNX Runtime on NVIDIA GPUs: its libraries, its options, and why it cannot use them, in words.

Standard library only and Python 3.8 syntax: `doctor` runs this file by its path.
"""

import contextlib
import importlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
NUMBERED = (CUDA, TENSORRT, "ROCMExecutionProvider")  # they take a device number
PACKAGE = "onnxruntime-gpu[cuda,cudnn]"
# Releases on PyPI by the major version of their CUDA; 1.21 is the first that preloads libraries,
# and 1.27 looks for those of CUDA 13 in the wrong place.
RELEASES = {12: ">=1.21,<1.27", 13: ">=1.28"}
DRIVERS = {12: "525", 13: "580"}  # the oldest for each CUDA
CACHE = "ORT_TENSORRT_CACHE_PATH"  # environment variable: the folder for TensorRT's engines
# y = x + x for one float, and a 3x3 image convolved with itself; IR version 8 and opset 13.
DOUBLING = bytes.fromhex(
    "08083a350a0e0a01780a017812017922034164641201675a0f0a0178120a0a08"
    "080112040a020801620f0a0179120a0a08080112040a0208014202100d"
)
CONVOLUTION = bytes.fromhex(
    "08083a4e0a0f0a01780a01781201792204436f6e761201675a1b0a017812160a14080112100a0208010a0208"
    "010a0208030a020803621b0a017912160a14080112100a0208010a0208010a0208010a0208014202100d"
)

_CAUSES = (  # patterns of messages; the earliest message is the cause
    r"Failed to load library \S+ with error: ([^\n]+)",
    r"(CUDA failure \d+: [^;\n]+)",
    r"(Failed to load [^\n]+)",
    r"(nodes that are assigned to the default CPU EP)",
    r"raised: (?:\[ONNXRuntimeError\] : \d+ : \w+ : )?([^\n]*)",
)


class Unusable(Exception):
    """A provider that does not work, with the remedy."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def providers(
    provider: str, case: Any, cache: str = "", *, shared: bool
) -> list[tuple[str, dict[str, str]]]:
    """The providers of a session with their options, the preferred one first; if the model may be
    `shared`, the CPU takes the rest of it."""
    options = {"device_id": case.device.partition(":")[2] or "0"} if provider in NUMBERED else {}
    if provider == OPENVINO and case.threads:  # it ignores the threads of the session
        options = {"num_of_threads": str(case.threads)}
    found = [(provider, options)]
    if provider in (CUDA, TENSORRT):  # by default they compute FP32 in TF32
        found = [(CUDA, {**options, "use_tf32": str(int("tf32" in (case.precision, case.mode)))})]
    if provider == TENSORRT:
        if cache:
            options.update(trt_engine_cache_enable="1", trt_engine_cache_path=cache)
        # The rest runs in FP16.
        options.update(trt_fp16_enable="1", trt_int8_enable=str(int(case.precision == "int8")))
        found.insert(0, (TENSORRT, options))
    return [*found, (CPU, {})] if shared and provider != CPU else found


def preload(onnxruntime: Any, provider: str = CUDA) -> None:
    """Load libraries from Python packages, which are on no search path of the loader."""
    load = getattr(onnxruntime, "preload_dlls", lambda: importlib.import_module("torch"))
    with contextlib.suppress(Exception):  # the session says what is missing
        load()
        if provider == TENSORRT:
            importlib.import_module("tensorrt")


def open_session(onnxruntime: Any, model: Any, options: Any, wanted: Sequence[Any]) -> Any:
    """A session that uses the first provider of `wanted`, or else Unusable with the cause: ONNX
    Runtime only prints it, also from C++, and falls back to the CPU."""
    provider, heard, problem = wanted[0][0], [""], "\nraised: it is not built in"
    with overheard(heard):
        if provider in (CUDA, TENSORRT):
            preload(onnxruntime, provider)
        if provider in onnxruntime.get_available_providers():
            try:
                chosen = {"providers": list(wanted), "enable_fallback": 0}
                session = onnxruntime.InferenceSession(model, options, **chosen)
                if session.get_providers()[0] == provider:
                    return session
                problem = "\nraised: it is not used"
            except Exception as error:
                if re.search("out of memory|Failed to allocate memory|bad_alloc", str(error)):
                    raise
                problem = f"\nraised: {error}"
    said = heard[0] + problem
    why = next(found[1].strip() for found in (re.search(c, said) for c in _CAUSES) if found)
    message = f"onnxruntime {onnxruntime.__version__} has no working {provider}: {why}"
    raise Unusable(message, _remedy(why, onnxruntime))


@contextlib.contextmanager
def overheard(heard: list[str]) -> Iterator[None]:
    """Capture into `heard` all output during the block, also from C++.  It then goes to stderr,
    since standard output may belong to a document."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
        for descriptor in kept:
            os.dup2(file.fileno(), descriptor)
        try:
            with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                yield
        finally:
            file.flush()
            for descriptor, copy in kept.items():
                os.dup2(copy, descriptor)
                os.close(copy)
            file.seek(0)
            heard[:] = [file.read()]
            os.write(2, heard[0].encode())


def _remedy(why: str, onnxruntime: Any) -> str:
    built = major(getattr(onnxruntime, "cuda_version", ""))
    from importlib import metadata  # slow to import, and screens import this module

    names = {found.metadata["Name"] for found in metadata.distributions()}
    here = [cuda for cuda in RELEASES if f"nvidia-cudnn-cu{cuda}" in names]  # torch installs it
    suited = f"'{PACKAGE}{RELEASES[here[0]] if here else ''}'"
    older = f", or install '{PACKAGE}{RELEASES[12]}'" if built == 13 else ""
    if found := re.search(r"libnv(?:infer|onnxparser)\w*\.so\.(\d+)", why):
        return f"install TensorRT: pip install 'tensorrt-cu{built}=={found[1]}.*'"
    if re.search(r"libcuda\.so|insufficient|driver combination", why):
        return f"update the NVIDIA driver to {DRIVERS.get(built or 0, '525')} or later{older}"
    if "no kernel image" in why:
        return f"this build has no code for the GPU: use another backend{older}"
    missing = re.search("cannot open shared object|cuDNN is unavailable", why)
    if missing and here and built not in here:
        return f"install {suited}: this one is for CUDA {built}, the libraries are for {here[0]}"
    if missing:
        return f"install its CUDA libraries: '{PACKAGE}=={onnxruntime.__version__}'"
    if "not built in" in why:
        return f"uninstall onnxruntime and install {suited}, or use --device cpu"
    return "choose another precision or backend; see workbench doctor"


def major(version: str | None) -> int | None:
    """`CUDA 13.0` or `13.0` -> 13."""
    found = re.match(r"(?:CUDA )?(\d+)", version or "")
    return int(found[1]) if found else None
