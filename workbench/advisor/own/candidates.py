"""The candidates of own code: a function, a command, or the ways to call a torch module, each with
the condition under which it starts.

Pure functions of facts.  No way is sure to help: autocast to BF16 without native support is up to
500 times slower (pytorch#146508), and torch.compile (pytorch#98441, #106466) and channels_last
(pytorch#50036) can slow a module down.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...contract import DEVICE_KINDS, HALF, Case, kind_of
from ...machine.host.isa import native
from ...planning.cases import one_thread_per_core
from ...planning.questions import OwnQuestion, parse_over
from ...planning.request import Request
from ...planning.scenario import Scenario
from ...records.code import CodeFacts
from ...records.machine import Cpu
from ...worker.code import OWN
from ...worker.session_options import OPENVINO

# Seconds to compile a graph: a base, one for each operation, and more for each convolution.  Upper
# bounds over twelve modules of the corpus on two cores with AVX-512, torch 2.13.
COMPILE_S, OPERATION_S, CONVOLUTION_S = 1.0, 0.05, 0.4
BACKWARD = 2.3  # factor for gradients; four of the modules had 1.8 to 3.1
COLD_S = 14.0  # more seconds if torch has not yet used this compiler, measured on two cores
# Seconds to import torch on the same machine.  A slower import means a slower machine, but the
# factor is bounded, since a cold disk slows imports alone.
IMPORT_S, SLOWEST = 1.2, 2.5
UNKNOWN = 200, 50  # operations and convolutions of a module that was not exported
NHWC, COMPILE, GRAPH, REDUCE = "nhwc", "compile", "graph", "compile+reduce-overhead"
KEEP = "keep"


def way(device: str, precision: str, mode: str | None = None, threads: int | None = None) -> Case:
    """A case of a torch module, without a batch; on a GPU `threads` is None."""
    return Case(OWN, device, "torch", precision, threads=threads, mode=mode)


@dataclass(frozen=True)
class CodeSpace:
    """The code, the machine and the options that decide which candidates there can be."""

    facts: CodeFacts
    cpu: Cpu
    threads: tuple[int, ...]  # thread counts to try, the largest first
    gpus: tuple[str, ...]
    request: Request

    @property
    def on_cpu(self) -> bool:
        return self.facts.needs_gpu is None and self.request.with_cpu

    @property
    def devices(self) -> dict[str, int | None]:
        """The devices, each with the threads of candidates other than eager (None on a GPU)."""
        on_cpu = {"cpu": self.threads[0]} if self.on_cpu else {}
        return {**on_cpu, **dict.fromkeys(self.gpus)}

    def exported_precision(self, backend: str) -> str:
        """The precision of the exported module: OpenVINO's CPU plugin computes in FP32 anyway."""
        return "fp32" if backend == OPENVINO else self.facts.precision


def as_written(space: CodeSpace) -> list[Case]:
    """Eager with each number of threads, the code's own or torch's first, then on each GPU."""
    own, chosen = space.facts.precision, space.facts.threads or one_thread_per_core(space.cpu)
    found = [way("cpu", own, threads=n) for n in _threads(space, chosen) if space.on_cpu]
    found += [way(gpu, own) for gpu in space.gpus]
    return list(filter(space.request.admits, found))


def _threads(space: CodeSpace, own: int | None) -> list[int]:
    """The numbers of threads to try, that of the code as written first."""
    is_free = own in space.threads or not space.request.threads
    return list(dict.fromkeys([own, *space.threads] if own and is_free else space.threads))


def precisions(device: str, space: CodeSpace) -> list[str]:
    """The module's own precision, then those of autocast that the device has instructions for.

    Weights of 16 bits that a CPU has no instructions for race in FP32 too: with AVX2 alone a layer
    took 4 to 30 times as long in BF16 and FP16 (torch 2.13).
    """
    own = space.facts.precision
    if own in HALF and device == "cpu" and not native(own, space.cpu):
        return [own, "fp32"]
    if own != "fp32":
        return [own]
    if device == "cpu":
        return [own, *(name for name in HALF if native(name, space.cpu))]
    return [own, "tf32", "fp16", "bf16"]


def quick_changes(space: CodeSpace) -> list[Case]:
    """Other precisions and layouts, which take little time to prepare, then CUDA graphs."""
    found: list[Case] = []
    for device, threads in space.devices.items():
        modes: list[str | None] = [None, NHWC] if space.facts.convolves else [None]
        # A graph replays one call, so changes of state or inputs would be lost.
        if not (kind_of(device).on_host or space.facts.stateful or space.facts.mutated):
            modes.append(GRAPH)
        for precision in precisions(device, space):
            found += [way(device, precision, mode, threads) for mode in modes]
    known = set(as_written(space))
    found = [each for each in found if each not in known and space.request.admits(each)]
    return sorted(found, key=lambda case: case.mode == GRAPH)  # each has a worker of its own


def keeping(case: Case) -> Case:
    """The case in a process that keeps freed memory."""
    return replace(case, mode="+".join(filter(None, [case.mode, KEEP])))


def compiled(space: CodeSpace, best: Iterable[Case]) -> list[Case]:
    """torch.compile of the best eager candidate on each device."""
    found = []
    for case in best:
        modes = [COMPILE] if kind_of(case.device).on_host else [COMPILE, REDUCE]
        # The compiler chooses its own memory layout.
        kept = [word for word in case.mode_words if word == KEEP]
        found += [replace(case, mode="+".join([mode, *kept])) for mode in modes]
    return list(filter(space.request.admits, found))


def compile_s(
    operations: int, convolutions: int, *, cold: bool, trains: bool = False, import_s: float = 0.0
) -> float:
    """Seconds that compiling may take on two cores; `import_s` is the time to import torch."""
    found_s = COMPILE_S + OPERATION_S * operations + CONVOLUTION_S * convolutions
    found_s = found_s * (BACKWARD if trains else 1.0) + (COLD_S if cold else 0.0)
    return found_s * min(SLOWEST, max(1.0, import_s / IMPORT_S))


def function_cases(space: CodeSpace, scenario: Scenario) -> list[Case]:
    """The function with each number of threads, and on each GPU if it has a parameter for the
    device; one that needs a GPU but has no such parameter computes on the first.

    A case's batch is the function's size.
    """
    params, batch = scenario.params, scenario.batch
    plain = Case(OWN, "cpu", "python", "", batch=batch, params=params)
    counts = _threads(space, space.facts.threads)
    found = [replace(plain, threads=count) for count in counts if space.on_cpu]
    takes, needs = space.facts.takes_device, space.facts.needs_gpu is not None
    gpus = [gpu for gpu in space.gpus if takes or (needs and is_first(gpu))]
    return found + [replace(plain, device=gpu) for gpu in gpus]


def is_first(gpu: str) -> bool:
    """Whether it is the first real GPU, on which code computes by default."""
    return not kind_of(gpu).simulated and gpu.partition(":")[2] in ("", "0")


def _device(word: str) -> str:
    kind, _, number = word.partition(":")
    kind, number = ("cuda", kind) if kind.isdecimal() else (kind, number or "0")
    known = DEVICE_KINDS.get("cuda" if kind == "gpu" else kind)
    if known is None or known.simulated or not (known.numbered and number.isdecimal()):
        return "cpu"
    return f"{known.name}:{int(number)}"


def command_cases(space: CodeSpace, question: OwnQuestion) -> list[Case]:
    """The command with every combination of the values of --over.

    The value of an axis called `device` says where it runs: `cuda` and `gpu` mean the first GPU, a
    number means that GPU, and any word that names no kind of device means the CPU.
    """
    axes = parse_over(question.over, question.target)
    found = []
    for values in itertools.product(*axes.values()):
        tuning = dict(zip(axes, values, strict=True))
        device = _device(tuning.get("device", "cpu"))
        found.append(Case(OWN, device, "command", "", tuning=tuning))
    wanted = space.request.devices
    return [case for case in found if not wanted or {case.device, case.device_kind} & {*wanted}]
