"""Failures of backends in words, and what is given back after them."""

import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from workbench.contract import Accuracy, Task
from workbench.worker import worker
from workbench.worker.serve import FULL_DISK, answer, describe
from workbench.worker.worker import Worker


def test_a_full_gpu_is_told_without_what_torch_adds_in_the_same_line() -> None:
    # As c10/cuda/CUDACachingAllocator.cpp words it.
    short = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    short += "139.81 GiB of which 1.20 GiB is free."
    own = "Including non-PyTorch memory, this process has 138.61 GiB memory in use."
    details = f"{own} Of the allocated memory 138.00 GiB is allocated by PyTorch, and 100.00 MiB is"
    for more in (details, f"Process 7 has 9.00 GiB memory in use. {details}"):
        described = describe(RuntimeError(f"{short} {more} reserved by PyTorch but unallocated."))
        assert described["message"] == f"RuntimeError: {short}"
        assert described["code"] == "no_memory"


def test_tensorflow_names_a_full_gpu_by_its_type() -> None:
    error = type("ResourceExhaustedError", (Exception,), {})("failed to allocate memory [Op:Mul]")
    assert describe(error)["code"] == "no_memory"


def test_a_first_line_that_only_announces_the_cause_is_followed_by_it() -> None:
    text = "Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: a, b.\n\tMore"
    described = describe(RuntimeError(text))["message"]
    assert described.endswith("state_dict for Net: Missing key(s) in state_dict: a, b.")


def test_bold_print_is_left_out_of_a_message() -> None:
    error = ValueError("Weights only load failed, \x1b[1mread this\x1b[0m. ")
    assert describe(error)["message"] == "ValueError: Weights only load failed, read this."


@pytest.mark.parametrize(
    ("message", "code", "fatal", "remedy"),
    [
        ("CUDA error: device-side assert triggered", "failed", True, "suspect the GPU"),
        ("CUDA driver error: invalid argument", "failed", True, "suspect the GPU"),
        ("CUDA failure 719: unspecified launch failure", "failed", True, "suspect the GPU"),
        ("HIP error: an illegal memory access was encountered", "failed", True, "suspect the GPU"),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "failed", True, "suspect the GPU"),
        ("CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED", "failed", True, "suspect the GPU"),
        ("Call to cuMemcpyDtoH results in CUDA_ERROR_ILLEGAL_ADDRESS", "failed", True, "suspect"),
        ("Call to cuMemcpyDtoH results in CUDA_ERROR_LAUNCH_FAILED", "failed", True, "suspect"),
        ("cudaErrorLaunchFailure: unspecified launch failure", "failed", True, "suspect"),
        ("CUDA error: out of memory", "no_memory", False, "smaller"),
        ("Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", "no_memory", False, "smaller"),
        ("NVML_SUCCESS == r INTERNAL ASSERT FAILED at a.cpp", "no_memory", False, "smaller"),
        ("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", "no_memory", False, "smaller"),
        ("CUDA error: no kernel image is available", "unsupported_device", True, "doctor"),
        ("The NVIDIA driver on your system is too old", "driver_too_old", False, "doctor"),
        (
            "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
            "driver_too_old",
            True,
            "update the NVIDIA driver",
        ),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "gpu_busy", True, "-c"),
        ("CUDA failure 214: uncorrectable ECC error encountered", "gpu_faulty", True, "ECC"),
        ("CUDA error: uncorrectable NVLink error detected", "gpu_faulty", True, "nvlink -e"),
        (
            "NOT_IMPLEMENTED : Non-zero status code returned while running Conv node. Name:''"
            " Status Message: cuDNN is unavailable or disabled for CUDA Execution Provider:",
            "no_cudnn",
            False,
            "onnxruntime-gpu[cuda,cudnn]",
        ),
        ("CUDA error: system not yet initialized", "gpu_not_ready", True, "fabricmanager"),
        ("cudaGetDeviceCount(). Error 802: system not yet initialized", "gpu_not_ready", False, ""),
        ("CUDA error: the launch timed out and was terminated", "kernel_timeout", True, "smaller"),
        ("CUDA failure 702: the launch timed out", "kernel_timeout", True, "display"),
        ("No CUDA GPUs are available", "gpu_lost", False, "dmesg"),
        ("CUDA unknown error - this may be due to an environment", "gpu_lost", False, "dmesg"),
        ("Torch not compiled with CUDA enabled", "no_device", False, "CUDA build"),
        ("an unknown error of a file", "failed", False, None),
    ],
)
def test_an_error_of_the_gpu_is_told_with_cause_and_remedy(message, code, fatal, remedy) -> None:
    found = describe(RuntimeError(message))
    assert (found["code"], found["fatal"]) == (code, fatal)
    assert found["message"] == f"RuntimeError: {message}"
    assert found["hint"] is None if remedy is None else remedy in found["hint"]


def test_an_error_of_nccl_is_its_last_one() -> None:
    # As torchtitan#853 quotes it.
    cause = "Error while creating shared memory segment /dev/shm/nccl-1YsMbG (size 7340384)"
    text = (
        "NCCL error in: /pytorch/NCCLUtils.hpp:268, unhandled system error (run with"
        " NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g."
        f" socket, malloc) or external library call failed or device error. \nLast error:\n{cause}"
    )
    found = describe(RuntimeError(text))
    assert found["message"] == f"RuntimeError: NCCL error: {cause}"
    assert found["code"] == "shared_memory" and "--shm-size" in found["hint"]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "Detected incompatible Protobuf Gencode/Runtime versions when loading"
            " a.proto: gencode 7.35.0 runtime 6.31.1"
        ),
        TypeError("Descriptors cannot be created directly.\nIf this call came from a _pb2.py file"),
        ImportError("cannot import name 'runtime_version' from 'google.protobuf' (an/init.py)"),
        AttributeError("'MessageFactory' object has no attribute 'GetPrototype'"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_import_that_protobuf_stops_says_so(error: Exception) -> None:
    found = describe(error)
    assert (found["code"], found["fatal"]) == ("protobuf", False)
    assert "pip check" in found["hint"] and "\n" not in found["message"]


class Library:
    """A backend that counts how often it gave memory back."""

    released = 0

    def release(self, device: str) -> None:
        self.released += 1
        raise RuntimeError("and giving back fails too")

    def reset_memory_peak(self, device: str) -> None:
        pass

    def memory_peak_bytes(self, device: str) -> int | None:
        return None

    def start(self, device: str) -> None:
        raise RuntimeError("CUDA error: out of memory")

    def version(self) -> str:
        return "1.0"


class Hoarder(Task):
    """A task that fails in its check, and again when it is closed."""

    alive = 0

    def __init__(self) -> None:
        Hoarder.alive += 1

    def __del__(self) -> None:
        Hoarder.alive -= 1

    def step(self) -> None:
        pass

    def check(self) -> Accuracy:
        raise RuntimeError(self.message)

    def close(self) -> None:
        raise RuntimeError("and closing fails too")

    message = "CUDA out of memory"


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Worker:
    workload = SimpleNamespace(prepare=lambda case, setup: Hoarder())
    monkeypatch.setattr(worker, "import_workload", lambda name: workload)
    own = Worker("torch", "cuda:0")
    own.__dict__["_library"] = Library()
    return own


def prepare(own: Worker) -> dict[str, Any]:
    fields = {"workload": "w", "device": "cuda:0", "backend": "torch", "precision": "fp32"}
    request = {"case": fields, "seed": 0, "latency": False, "warm_up_s": 0.0}
    more = {"cache_bytes": 1, "files": {}, "from_start": False}
    answered: dict[str, Any] = answer(own, {"op": "prepare", **request, **more})
    return answered["error"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("GET was unable to find an engine to execute this computation", "no_memory"),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate`", "no_memory"),
        ("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "no_memory"),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED", "failed"),
    ],
)
def test_a_batch_that_leaves_no_room_for_libraries_is_too_large(message, code, monkeypatch) -> None:
    monkeypatch.setattr(Quiet, "step", Mock(side_effect=RuntimeError(message)))
    monkeypatch.setattr(Library, "release", lambda self, device: None)
    monkeypatch.setattr(
        worker, "import_workload", lambda name: SimpleNamespace(prepare=lambda *_: Quiet())
    )
    own = Worker("torch", "cuda:0")
    own.__dict__["_library"] = Library()
    case = {"workload": "w", "device": "cuda:0", "backend": "torch", "precision": "fp32"}
    found = answer(own, {"op": "attempt", "case": case, "seed": 0})["error"]
    assert (found["code"], found["fatal"]) == (code, code == "failed")


def test_after_a_failed_preparation_the_memory_is_given_back_and_the_error_stays(
    on_gpu: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    library: Any = on_gpu._library
    monkeypatch.setattr(library, "release", lambda device: seen.append(Hoarder.alive))
    assert prepare(on_gpu)["message"] == "RuntimeError: CUDA out of memory"
    assert seen == [0]  # nothing held the task any more


class Quiet(Task):
    def step(self) -> None:
        pass

    def check(self) -> Accuracy:
        return Accuracy.uncompared("it has no result")


@pytest.mark.parametrize(
    ("cyclic", "peak", "collects"), [(False, 1, 0), (True, 1, 1), (False, 2**31, 1)]
)
def test_a_release_searches_for_cycles_only_where_memory_is_held(
    cyclic: bool, peak: int, collects: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, task, searched = Worker("torch", "cpu"), Quiet(), list[int]()
    if cyclic:
        task.__dict__["itself"] = task
    own.prepared["a"] = worker.Prepared(task, SimpleNamespace(), False)
    del task
    monkeypatch.setattr(worker, "resident_peak", lambda: peak)
    monkeypatch.setattr(worker.gc, "collect", lambda: searched.append(1))
    assert own.release(["a"]) == {}
    assert len(searched) == collects


def test_an_error_in_giving_back_masks_nothing(on_gpu: Worker) -> None:
    assert prepare(on_gpu)["code"] == "no_memory"
    library: Any = on_gpu._library
    assert library.released == 1


def test_after_a_sticky_error_the_gpu_is_left_alone(on_gpu: Worker, monkeypatch) -> None:
    monkeypatch.setattr(Hoarder, "message", "CUDA error: unspecified launch failure")
    assert prepare(on_gpu)["fatal"]
    library: Any = on_gpu._library
    assert library.released == 0


def test_a_gpu_that_is_full_at_the_start_asks_for_no_smaller_batch(on_gpu: Worker) -> None:
    error = answer(on_gpu, {"op": "hello"})["error"]
    assert error["code"] == "no_memory" and "nvidia-smi" in error["hint"]


@pytest.mark.parametrize(("blocks", "hint"), [(1, FULL_DISK), (1000, None)])
def test_a_full_disk_is_the_remedy_where_there_is_no_other(blocks, hint, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", "/small")
    room = SimpleNamespace(f_bavail=blocks, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", {"/small": room}.__getitem__)
    assert describe(RuntimeError("unexpected pos 832 vs 726"))["hint"] == hint
    assert describe(MemoryError())["hint"] != FULL_DISK
