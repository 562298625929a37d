"""Parts of every torch candidate: device, precision, transfers, compiling, graphs, networks."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any

from workbench import contract
from workbench.contract import Case, DeviceTimer, Profile, Setup, Task, WorkloadError, kind_of
from workbench.worker import allocator
from workbench.worker.libraries import nn, np, torch

from .._backends.torch import library_of
from . import profiling
from .network import EPSILON, Attention, Conv, Gelu, Layer, Mean, Norm, Residual

TORCH_ALIGNMENT_BYTES = 64  # c10/core/alignment.h, gAlignment
MOST_COMPILED = 64  # compiled cases of one worker
WARM_UPS = 3  # calls before the capture of a CUDA graph, as torch's documentation recommends
HIGHEST_CLOCK_HZ = 3e9  # no GPU is faster, so cycles counted by it never end too early
STREAMING = ("cuda", "xpu")  # GPUs with streams, events and copies from page-locked memory
ON_CUDA_ONLY = ("graph", "reduce-overhead", "max-autotune", "cudnn-benchmark")  # modes
# Messages of torch._inductor without g++, Triton or gcc (torch/_inductor/exc.py, cpp_builder.py).
NO_COMPILER_MARKS = (
    "No working C++ compiler",
    "Cannot find a working triton",
    "Failed to find C compiler",
    "is not a working C++ compiler",
    "cuda_utils.c",  # Triton's own module, which needs Python's headers
)


def device_of(case: Case) -> Any:
    """The torch device of a case; the test device `fake:N` computes on the CPU."""
    if case.computes_on == "cpu":
        return torch.device("cpu")
    device = torch.device(case.device)
    library = getattr(torch, device.type, None)
    if library is None or (device.index or 0) >= library.device_count():
        text = f"torch {torch.__version__} finds no device {case.device}"
        hint = "a CPU build of torch finds no GPU: install one for it, or use --device cpu"
        raise WorkloadError(text, code="no_device", hint=hint)
    if device.type == "cuda" and not torch.version.hip:
        least = contract.LEAST_CAPABILITY.get(case.precision, (0, 0))
        is_missing = torch.cuda.get_device_capability(device) < least
    else:
        is_missing = case.precision == "tf32"
    if is_missing:
        text = f"{case.device} has no {case.precision}"
        raise WorkloadError(text, code="unsupported_precision", hint="choose fp32 or fp16")
    return device


def arithmetic(case: Case) -> str:
    """The precision that is really used: the fake GPU computes everything below FP64 in FP32."""
    if kind_of(case.device).simulated and case.precision != "fp64":
        return "fp32"
    return case.precision


def dtype_of(case: Case) -> Any:
    """The element type of a case's tensors; TF32 is FP32 in memory."""
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
    return types.get(arithmetic(case), torch.float32)


def set_tf32(enabled: bool) -> None:
    """Let FP32 products and convolutions on CUDA use TF32, or make them true FP32.

    torch 2.9 replaced `allow_tf32` with `fp32_precision`.  The old setters set both; after the new
    ones, torch's own readers of the old ones raise an error, and Inductor still is such a reader
    (pytorch#166387).  Convolutions on CUDA use TF32 by default.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    for wider in (torch.backends, cudnn):  # a user's module may set these, and they outlast False
        if hasattr(wider, "fp32_precision"):
            wider.fp32_precision = "none"
    try:
        matmul.allow_tf32 = enabled
        cudnn.allow_tf32 = enabled
    except AttributeError:
        matmul.fp32_precision = cudnn.conv.fp32_precision = "tf32" if enabled else "ieee"


def end_compilers() -> None:
    """End the processes that torch keeps for later compilations, since each slows a freeze."""
    inductor = sys.modules.get("torch._inductor.async_compile")
    getattr(inductor, "shutdown_compile_workers", lambda: None)()


@contextmanager
def true_fp32(device: str) -> Iterator[None]:
    """Compute FP32 on `device` without TF32, as a reference does."""
    if device == "cpu":
        yield
        return
    parts, before = (torch.backends.cuda.matmul, torch.backends.cudnn), [False, False]
    with suppress(AttributeError, RuntimeError):  # set by the new names: each task sets its own
        before = [part.allow_tf32 for part in parts]
    set_tf32(enabled=False)
    try:
        yield
    finally:
        for part, was in zip(parts, before, strict=True):
            with suppress(AttributeError):
                part.allow_tf32 = was


class TorchTask(Task):
    """A task whose work is queued by torch."""

    is_users_code = False  # the user's own code decides itself whether cuDNN searches

    def __init__(self, case: Case) -> None:
        self.case = case
        self.modes = case.mode_words
        self.device = device_of(case)
        self.on_gpu = self.device.type != "cpu"
        on_cuda = self.device.type == "cuda"
        missing = [mode for mode in self.modes if mode in ON_CUDA_ONLY and not on_cuda]
        if missing:
            where = f"{case.device} computes on the {self.device.type.upper()}"
            text = f"mode {missing[0]} needs a CUDA device, and {where}"
            raise WorkloadError(text, hint="choose another --mode here")
        if "keep" in self.modes:
            allocator.keep()

    def laid_out(self, network: Any) -> Any:
        """The network in the layout of the case: channels last in mode "nhwc"."""
        return network.to(memory_format=torch.channels_last) if "nhwc" in self.modes else network

    def moved(self, tensor: Any, *, non_blocking: bool = True, copy: bool = False) -> Any:
        """The tensor on the device, in the layout of the case."""
        is_laid_out = "nhwc" in self.modes and tensor.dim() == 4
        layout = torch.channels_last if is_laid_out else torch.preserve_format
        return tensor.to(self.device, non_blocking=non_blocking, copy=copy, memory_format=layout)

    def page_locked(self, tensor: Any) -> Any:
        """The tensor in page-locked memory, if it will be copied to a GPU."""
        return tensor.pin_memory() if self.device.type in STREAMING else tensor

    def waiter(self) -> Callable[[], None]:
        """A function that waits for the current stream only, the shortest way to wait."""
        if self.device.type not in STREAMING:
            return self.finish
        stream = library_of(self.device.type).current_stream(self.device)
        wait: Callable[[], None] = stream.synchronize
        return wait

    def activate(self) -> None:
        if self.case.threads is not None:
            torch.set_num_threads(self.case.threads)
        if self.device.type == "cuda":
            set_tf32(self.case.precision == "tf32")
            if not self.is_users_code:
                torch.backends.cudnn.benchmark = "cudnn-benchmark" in self.modes
        if self.case.is_compiled:
            end_compilers()

    def finish(self) -> None:
        synchronize(self.device)

    def timed(self, call: Callable[[], Any], times: int) -> list[float]:
        """The seconds of each of `times` calls; the device is idle before and after each."""
        spent = []
        for _ in range(times):
            self.finish()
            began = time.perf_counter()
            call()
            self.finish()
            spent.append(time.perf_counter() - began)
        return spent

    def result(self) -> Any:
        """The tensor that a step leaves on the device; None if no caller would copy one."""

    def transfer_out_s(self) -> float | None:
        result = None if self.case.device_kind == "cpu" else self.result()
        return None if result is None else self.timed(partial(result.to, "cpu", copy=True), 1)[0]

    def profile(self, steps: int) -> Profile:
        return profiling.by_torch(self, steps)

    def device_timer(self) -> DeviceTimer | None:
        return StreamTimer(self.device) if self.device.type in STREAMING else None


class StreamTimer(DeviceTimer):
    """A pair of events in a device's current stream; they resolve 0.5 us (cudaEventElapsedTime)."""

    def __init__(self, device: Any) -> None:
        library, self.device = library_of(device.type), device
        self.stream = library.current_stream(device)
        self.marks = [library.Event(enable_timing=True) for _ in range(2)]

    def start(self) -> None:
        self.marks[0].record(self.stream)

    def stop(self) -> None:
        self.marks[1].record(self.stream)

    def elapsed_s(self) -> float:
        return float(self.marks[0].elapsed_time(self.marks[1])) * 1e-3

    def hold(self, seconds: float) -> bool:
        if self.device.type != "cuda" or torch.version.hip:
            return False  # ROCm counts the cycles of another clock
        torch.cuda._sleep(int(seconds * HIGHEST_CLOCK_HZ))  # in the current stream
        return True


def synchronize(device: Any) -> None:
    """Wait for all work queued on `device`; a CPU has no queue."""
    if device.type == "mps":
        library_of("mps").synchronize()  # there is one
    elif device.type != "cpu":
        library_of(device.type).synchronize(device)


def to_device(setup: Setup, case: Case, *things: Any) -> list[Any]:
    """Tensors or modules moved to the case's device, timed as the phase "transfer" on a GPU."""
    device = device_of(case)
    if case.device_kind == "cpu":
        return [aligned(thing) for thing in things]
    synchronize(device)  # the first call starts the CUDA context, which is not a transfer
    with setup.phase("transfer"):
        moved = [thing.to(device) for thing in things]
        synchronize(device)
    return moved


def aligned(thing: Any) -> Any:
    """A tensor aligned as torch's own: NumPy's 16 bytes slow a large product on AVX-512 by 1 %."""
    if isinstance(thing, torch.Tensor) and thing.data_ptr() % TORCH_ALIGNMENT_BYTES:
        return thing.clone(memory_format=torch.preserve_format)
    return thing


def compiled(setup: Setup, function: Any, mode: str | None, /, *args: Any, **kwargs: Any) -> Any:
    """`function` or a module through torch.compile, called once with the other arguments.

    Call the task's `activate` first: the code depends on the current number of threads and TF32
    setting.  If they differ later, torch compiles again in a timed step.

    Raises WorkloadError "no_compiler" if the C++ compiler or Triton is missing.
    """
    # Cases that share code count as recompilations.  Since torch 2.7 an alias (pytorch#143709).
    torch._dynamo.config.cache_size_limit = MOST_COMPILED
    with setup.phase("compile"):
        made = torch.compile(function, dynamic=False, mode=mode)
        try:
            made(*args, **kwargs)
        except Exception as error:
            if not any(mark in str(error) for mark in NO_COMPILER_MARKS):
                raise
            text = "torch.compile finds no working compiler"
            hint = "install g++ (and, for a GPU, triton and the Python headers)"
            raise WorkloadError(text, code="no_compiler", hint=hint) from error
    return made


def graphed(call: Callable[[], Any], inside: Iterable[Any] = ()) -> Callable[..., Any]:
    """A function that copies its arguments into the tensors `inside`, from which `call` reads, and
    replays `call` by one launch.  It returns the same output each time, overwritten.  Source:
    torch's documentation, "CUDA Graphs"."""
    targets = list(inside)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Not on torch's one stream for captures: the end of a graph frees the memory that cuBLAS has
    # for its stream, and other graphs that were captured there still use it (pytorch#193402).
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        output = call()

    def replay(*given: Any) -> Any:
        for target, source in zip(targets, given, strict=True):
            target.copy_(source)
        graph.replay()
        return output

    return replay


def self_attention(heads: int, *, causal: bool = False) -> Any:
    """A torch module of self-attention, from queries, keys and values side by side."""

    class SelfAttention(nn.Module):  # type: ignore[misc]  # torch is not typed here
        def forward(self, x: Any) -> Any:
            qkv = x.view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(*qkv.unbind(), is_causal=causal)
            return mixed.transpose(1, 2).flatten(2)

    return SelfAttention()


def initialise(network: Any, seed: int, draw: Callable[[Any, str, Any], Any]) -> Any:
    """`network` with matrices and kernels by `draw(generator, name, shape)`, and biases of zero."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.from_numpy(draw(rng, name, parameter.shape)))
            elif name.endswith("bias"):
                parameter.zero_()
    return network


def module(layers: Sequence[Layer]) -> Any:
    """The network as a torch module in FP32 on the CPU."""

    class MeanOf(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.mean(dim=(2, 3) if x.dim() == 4 else 1)

    class Added(nn.Sequential):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + super().forward(x)

    def parts(layer: Layer) -> list[Any]:
        if isinstance(layer, Mean):
            return [MeanOf()]
        if isinstance(layer, Attention):
            return [self_attention(layer.heads)]
        if isinstance(layer, Gelu):
            return [nn.GELU()]
        if isinstance(layer, Residual):
            return [Added(*chain.from_iterable(map(parts, layer.layers)))]
        outputs, *inputs = layer.weight.shape
        if isinstance(layer, Conv):
            part = nn.Conv2d(inputs[0], outputs, 3, stride=layer.stride, padding=1)
        elif isinstance(layer, Norm):
            part = nn.LayerNorm(outputs, eps=EPSILON)
        else:
            part = nn.Linear(inputs[0], outputs)
        with torch.no_grad():
            part.weight.copy_(torch.from_numpy(layer.weight))
            part.bias.copy_(torch.from_numpy(layer.bias))
        return [part, nn.ReLU()] if getattr(layer, "relu", False) else [part]

    return nn.Sequential(*chain.from_iterable(map(parts, layers)))
