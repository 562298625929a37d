"""A stub of CUDA for tests: the CPU build of torch gets GPUs that compute on the CPU.

The C++ files in this folder register an allocator, a device guard, random number generators and a
CUDA kernel for every operator, so torch itself checks devices, runs autograd and raises most
errors.  This module adds what `torch._C` has only in a CUDA build.  Work is complete when it has
been issued, so the stub shows neither what overlaps on a real GPU, nor how fast it is, nor what
cuDNN, cuBLAS and Triton do.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

# As torch reports an H200.
PROPERTIES = {
    "name": "NVIDIA H200",
    "major": 9,
    "minor": 0,
    "total_memory": int(os.environ.get("CUDA_STUB_BYTES", 141 * 2**30)),
    "multi_processor_count": 132,
    "L2_cache_size": 60 * 2**20,
    "is_integrated": 0,
    "is_multi_gpu_board": 0,
    "warp_size": 32,
    "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "clock_rate": 1980000,
    "memory_clock_rate": 3201000,
    "memory_bus_width": 6144,
    "gcnArchName": "NVIDIA H200",
    "pci_domain_id": 0,
    "pci_device_id": 0,
}
LIBRARY = os.environ["CUDA_STUB_LIBRARY"]
ARCHITECTURES = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"
NCCL = "ProcessGroupNCCL is only supported with GPUs, no GPUs found!"
DEFAULT_STREAM = (
    "CUDA graphs must be captured on a non-default stream. "
    "(However, after capture, it's ok to replay them on the default stream.)"
)


def devices() -> list[int]:
    """NVML's numbers of the GPUs that this process may use, as the stub of libcuda lists them."""
    found = [int(n) for n in os.environ.get("CUDA_STUB_DEVICES", "0").split(",") if n]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    chosen = list[int]()
    for word in map(str.strip, visible.split(",")):
        if word.isdigit() and int(word) < len(found):
            chosen.append(found[int(word)])
        elif word.startswith("GPU-"):
            chosen += [n for n in found if f"GPU-{uuid(n)}".startswith(word)]
        else:
            break
    return chosen


def uuid(number: int) -> str:
    return f"{number:08x}-1111-2222-3333-444444444444"


@cache
def library(kind: type[ctypes.CDLL] = ctypes.CDLL) -> Any:
    """The stub's own functions; of PyDLL where tensors may be freed, which takes Python's lock."""
    found = kind(LIBRARY)
    for name in ("allocated", "peak", "limit", "stream", "new_stream"):
        getattr(found, f"stub_{name}").restype = ctypes.c_longlong
    for name in ("capture_end", "graph_free", "replay"):
        getattr(found, f"stub_{name}").argtypes = [ctypes.c_longlong]
    found.stub_error.restype = ctypes.c_char_p
    found.stub_setup.argtypes = [ctypes.c_int, ctypes.c_longlong]
    found.stub_set_stream.argtypes = [ctypes.c_int, ctypes.c_longlong]
    found.stub_setup(len(devices()), PROPERTIES["total_memory"])
    return found


def checked(code: int) -> None:
    """Raise what torch would where a function of the stub has failed."""
    if code:
        import torch

        text = library().stub_error().decode()
        kinds = {"out of memory": torch.OutOfMemoryError, "CUDA error": torch.AcceleratorError}
        raise next((kind for part, kind in kinds.items() if part in text), RuntimeError)(text)


class Properties:
    def __init__(self, ordinal: int) -> None:
        number = devices()[ordinal]
        vars(self).update(PROPERTIES, uuid=uuid(number), pci_bus_id=0x18 + number)


def current(device: int | None = None) -> int:
    return library().stub_get_device() if device is None or device < 0 else device


def set_device(device: int) -> None:
    checked(library().stub_set_device(device))


def exchange_device(device: int) -> int:
    if device < 0:
        return -1
    before = current()
    set_device(device)
    return before


def start() -> None:
    import torch

    if not devices():
        raise RuntimeError("No CUDA GPUs are available")
    torch.cuda._get_device_properties = Properties
    generators = (torch.Generator(f"cuda:{n}") for n in range(len(devices())))
    torch.cuda.default_generators = tuple(generators)


def memory_stats(device: int) -> dict[str, Any]:
    now, peak = library().stub_allocated(device), library().stub_peak(device)
    each = {"all": {"current": now, "peak": peak, "allocated": peak, "freed": peak - now}}
    return {f"{kind}_bytes": each for kind in ("allocated", "reserved", "active")} | {"num_ooms": 0}


def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    if device_index != current():
        set_device(device_index)
    library().stub_set_stream(device_index, stream_id)


class Event:
    def __new__(cls, *args: Any, **options: Any) -> Any:  # torch hands these on
        return object.__new__(cls)

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.timing, self.at_s, self.cuda_event = enable_timing, -1.0, 0

    def record(self, stream: Any) -> None:
        checked(library().stub_check())
        self.at_s, self.cuda_event = time.perf_counter(), id(self)

    def wait(self, stream: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        checked(library().stub_synchronize())

    def elapsed_time(self, end: Event) -> float:
        if not (self.timing and end.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if min(self.at_s, end.at_s) < 0:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end.at_s - self.at_s) * 1e3


class Graph:
    count = 0

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, keep_graph: bool = False) -> None:
        Graph.count += 1
        self.number, self.handle = Graph.count, (0, Graph.count)
        self.is_captured = False

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if not library().stub_stream(current()):
            raise RuntimeError(DEFAULT_STREAM)
        self.handle = pool or self.handle
        checked(library().stub_capture_begin())

    def capture_end(self) -> None:
        checked(library(ctypes.PyDLL).stub_capture_end(self.number))
        self.is_captured = True

    def instantiate(self) -> None:
        pass

    def replay(self) -> None:
        if not self.is_captured:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        checked(library().stub_replay(self.number))

    def reset(self) -> None:
        library(ctypes.PyDLL).stub_graph_free(self.number)
        self.is_captured = False

    __del__ = reset

    def pool(self) -> tuple[int, int]:
        return self.handle


def stream_class(base: Any) -> type:
    class Stream(base):
        def __new__(
            cls, priority: int = 0, stream_id: int = 0, device_index: int = 0, device_type: int = 0
        ) -> Any:
            if not device_type:  # a new one
                stream_id, device_index, device_type = library().stub_new_stream(), current(), 1
            found = {"stream_id": stream_id, "device_index": device_index}
            return base.__new__(cls, **found, device_type=device_type)

        def __init__(self, *args: Any, **options: Any) -> None:
            pass

        cuda_stream = property(lambda self: self.stream_id)

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            checked(library().stub_synchronize())

        def __eq__(self, other: object) -> bool:
            return (self.stream_id, self.device_index) == (other.stream_id, other.device_index)

        __hash__ = base.__hash__

    return Stream


class Cudart:
    cudaError = SimpleNamespace(success=0)  # noqa: N815 - CUDA's name
    cudaProfilerStart = cudaProfilerStop = staticmethod(lambda: 0)  # noqa: N815

    @staticmethod
    def cudaMemGetInfo(device: int) -> tuple[int, int]:  # noqa: N802
        limit = library().stub_limit()
        return limit - library().stub_allocated(device), limit


class Cudnn:
    is_cuda = True
    getRuntimeVersion = getCompileVersion = staticmethod(lambda: (9, 13, 0))  # noqa: N815
    getVersionInt = staticmethod(lambda: 91300)  # noqa: N815


class Nvtx:
    rangePushA = rangePop = markA = staticmethod(lambda *message: 0)  # noqa: N815


def _nothing(*args: Any) -> None:
    pass


def before_torch_cuda() -> None:
    """Give torch._C what a CUDA build has, which `torch.cuda` looks for when it is imported."""
    c, stub = sys.modules["torch._C"], library()
    unused = ["_cuda_emptyCache", "_host_emptyCache", "_cuda_clearCublasWorkspaces"]
    unused += ["_cuda_resetAccumulatedMemoryStats", "_cuda_set_sync_debug_mode"]
    unused += ["_cuda_set_cudnn_benchmark_limit", "_cuda_ipc_collect"]
    unused += ["_cuda_sleep"]  # it delays the GPU's stream, and no work waits there
    vars(c).update(dict.fromkeys(unused, _nothing))
    vars(c).update(
        _has_cuda=True,
        _has_cudnn=True,
        _cudart=Cudart,
        _cudnn=Cudnn,
        _nvtx=Nvtx,
        _cuda_init=start,
        _cuda_getDeviceCount=lambda: len(devices()),
        _cuda_setDevice=set_device,
        _cuda_getDevice=current,
        _cuda_exchangeDevice=exchange_device,
        # Dynamo needs another object than `_cuda_exchangeDevice`, and a hashable one below.
        _cuda_maybeExchangeDevice=lambda device: exchange_device(device),
        _cuda_synchronize=lambda: checked(stub.stub_synchronize()),
        _cuda_getArchFlags=lambda: ARCHITECTURES,
        _cuda_isInBadFork=lambda: False,
        _cuda_canDeviceAccessPeer=lambda one, other: True,
        _cuda_resetPeakMemoryStats=lambda device: stub.stub_reset_peak(device),
        _cuda_get_sync_debug_mode=lambda: 0,
        _cuda_getCurrentRawStream=lambda device: stub.stub_stream(current(device)),
        _cuda_get_cudnn_benchmark_limit=lambda: 10,
        _cuda_getAllocatorBackend=lambda: "native",
        _cuda_cudaCachingAllocator_is_enabled=lambda: True,
        _cuda_memoryStats=memory_stats,
        _CudaDeviceProperties=Properties,
        _CudaStreamBase=stream_class(c.Stream),
        _CudaEventBase=Event,
        _CUDAGraph=Graph,
        _graph_pool_handle=lambda: (1, Graph.count),
        _cuda_getCurrentStream=lambda d: (stub.stub_stream(current(d)), current(d), 1),
        _cuda_getDefaultStream=lambda d: (0, current(d), 1),
        _cuda_setStream=set_stream,
        _cuda_isCurrentStreamCapturing=lambda: bool(stub.stub_capturing()),
    )


def after_torch(torch: ModuleType) -> None:
    """Storages are made by a C function that knows no other device than the CPU."""
    kind = torch.UntypedStorage
    base = kind.__mro__[1]

    def new(cls: type, *args: Any, device: Any = None, **options: Any) -> Any:
        is_size = not args or isinstance(args[0], int)
        if device is not None and torch.device(device).type == "cuda" and is_size:
            size = args[0] if args else 0
            return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
        placed = {} if device is None else {"device": device}
        return base.__new__(cls, *args, **placed, **options)

    kind.__new__ = staticmethod(new)
    torch.accelerator.empty_host_cache = torch.accelerator.empty_cache = _nothing


def after_inductor(module: ModuleType) -> None:
    """Graphs on the GPU run as they are, since no Triton compiles for it."""
    real = module.compile_fx

    def compile_fx(graph: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        places = {getattr(getattr(each, "device", None), "type", "") for each in inputs}
        return graph.forward if "cuda" in places else real(graph, inputs, *args, **options)

    module.compile_fx = compile_fx


def after_distributed(module: ModuleType) -> None:
    """Gloo takes NCCL's place."""
    real = module.init_process_group

    def init_process_group(backend: str | None = None, *args: Any, **options: Any) -> Any:
        if backend == "nccl":
            if not devices():
                raise RuntimeError(NCCL)
            checked(library().stub_nccl())
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            backend = "cpu:gloo,cuda:gloo"
            options.pop("device_id", None)
        return real(backend, *args, **options)

    module.init_process_group = init_process_group


class Loader:
    """A module's own loader with something before, and something after."""

    def __init__(self, own: Any, before: Callable[[], Any], after: Callable[[Any], None]) -> None:
        self.own, self.before, self.after = own, before, after

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self.own
        self.before()
        self.own.exec_module(module)
        self.after(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


class Finder:
    """Finds modules as Python does, and loads these with what they need."""

    CHANGED: ClassVar = {
        "torch": (library, after_torch),
        "torch.cuda": (before_torch_cuda, _nothing),
        "torch._inductor.compile_fx": (_nothing, after_inductor),
        "torch.distributed.distributed_c10d": (_nothing, after_distributed),
    }

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in cls.CHANGED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            if name == "torch":  # its version.py says CUDA
                spec.submodule_search_locations.insert(0, str(Path(LIBRARY).parent))
            spec.loader = Loader(spec.loader, *cls.CHANGED[name])
        return spec


def install() -> None:
    sys.meta_path.insert(0, Finder)
