"""The six rows of the table with made-up but plausible candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from workbench.contract import Case, ParameterValue
from workbench.records.document import SetupTimes
from workbench.records.reason import Reason

BUDGET_S = 60.0
NO_BF16 = Reason(
    "unsupported",
    "bf16 batch normalisation is not implemented on this CPU",
    "leave bf16 out with --precision fp32",
)
OUT_OF_MEMORY = Reason(
    "worker_died",
    "the worker was killed by signal 9 (out of memory?)",
    "give the container more memory, or a smaller --batch",
)


@dataclass(frozen=True)
class Entry:
    """One candidate: its true step time, and how it behaves."""

    device: str
    backend: str
    precision: str
    step_s: float
    threads: int | None = None
    quantization: str | None = None
    noise: float = 0.02
    error: float = 2e-6
    leaves_after: int | None = None  # rounds
    fails: Reason | None = None
    ends: str = "failed"
    learns: float = 1.0

    @property
    def kind(self) -> str:
        return "cpu" if self.device == "cpu" else "gpu"

    @property
    def setup(self) -> SetupTimes:
        gpu = self.kind == "gpu"
        return SetupTimes(
            import_s=1.9 if self.backend == "torch" else 0.4,
            build_s=0.012,
            transfer_s=0.034 if gpu else None,
            transfer_out_s=0.0081 if gpu else None,
            compile_s=0.61 if gpu else None,
        )


@dataclass(frozen=True)
class Scenario:
    id: str
    title: str
    question: str
    textbook: str | None
    objective: str
    workload: str
    max_error: float
    item: str
    items: float
    flops: float | None
    why: str
    cpu: tuple[Entry, ...]
    gpu: tuple[Entry, ...]
    batch: int | None = None
    params: Mapping[str, ParameterValue] = field(default_factory=dict)
    trains: bool = False
    point: Mapping[str, ParameterValue] = field(default_factory=dict)  # of a sweep

    @property
    def command(self) -> str:
        if self.textbook is not None:
            return f"workbench advise {self.id} --budget {BUDGET_S:g}"
        settings = [f"--set {name}={value}" for name, value in self.params.items()]
        return " ".join(["workbench run", self.workload, *settings])

    def case(self, entry: Entry) -> Case:
        return Case(
            self.workload,
            entry.device,
            entry.backend,
            entry.precision,
            entry.quantization,
            entry.threads,
            self.batch,
            self.params,
        )

    def entries_on(self, device: str | None) -> list[Entry]:
        """On a machine with a real GPU as they stand; else on the small machine's two cores."""
        if device == "cuda:0":
            return [*self.cpu, *self.gpu]
        small = [replace(entry, threads=min(entry.threads or 1, 2)) for entry in self.cpu]
        if device is None:
            return [replace(entry, leaves_after=None) for entry in small]
        return [*small, *(replace(entry, device=device) for entry in self.gpu)]


def _cpu(precision: str, step_s: float, leaves_after: int | None = None, **more: object) -> Entry:
    backend = str(more.pop("backend", "torch"))
    threads = int(str(more.pop("threads", 16)))
    return Entry(
        "cpu",
        backend,
        precision,
        step_s,
        threads,
        leaves_after=leaves_after,
        **more,  # type: ignore[arg-type]
    )


def _gpu(precision: str, step_s: float, leaves_after: int | None = None, **more: object) -> Entry:
    return Entry("cuda:0", "torch", precision, step_s, leaves_after=leaves_after, **more)  # type: ignore[arg-type]


SCENARIOS = (
    Scenario(
        "training",
        "Large-scale, data-rich training",
        "Training a convolutional network from a stream of batches: where is a step faster?",
        "gpu",
        "throughput",
        "train_cnn",
        0.05,
        "samples",
        64.0,
        1.9e10,
        "The step is dominated by convolutions, which the GPU's tensor cores run in bf16.",
        (_cpu("fp32", 0.118, 4), _cpu("bf16", 0.0795, learns=0.8)),
        (
            _gpu("fp32", 0.00412, 4),
            _gpu("tf32", 0.00291, 5),
            _gpu("bf16", 0.00208, learns=0.9),
            _gpu("fp16", 0.00219, learns=1.1),
        ),
        64,
        {"image": 32},
        trains=True,
    ),
    Scenario(
        "realtime",
        "Real-time inference, small device",
        "One image at a time on at most two cores: which has the shortest 99th percentile?",
        "cpu",
        "latency_p99",
        "infer_cnn",
        0.02,
        "samples",
        1.0,
        2.1e7,
        "One image is too little for the GPU: 71 % of its time is launching kernels.",
        (
            _cpu("fp32", 0.00114, 4, backend="onnxruntime", threads=2),
            _cpu("int8", 0.00161, 3, backend="onnxruntime", threads=2, quantization="dynamic"),
            _cpu("int8", 0.00043, backend="onnxruntime", threads=2, quantization="static"),
            _cpu("fp32", 0.00187, 3, threads=2),
        ),
        (_gpu("fp32", 0.00091), _gpu("fp16", 0.00098, 6)),
        1,
        {"image": 64},
    ),
    Scenario(
        "floating_point",
        "Extensive floating-point computation",
        "Large dense matrix products: where do they run fastest?",
        "gpu",
        "throughput",
        "matmul",
        0.01,
        "products",
        1.0,
        2 * 4096.0**3,
        "Arithmetic alone counts here: 137 GFLOP a product, nothing to wait for.",
        (
            _cpu("fp32", 0.142, 3, backend="numpy"),
            _cpu("fp32", 0.131, 4),
            _cpu("bf16", 0.0561),
            _cpu("fp64", 0.281, 3),
        ),
        (
            _gpu("fp32", 0.00268, 4),
            _gpu("tf32", 0.000391, 5),
            _gpu("bf16", 0.000203),
            _gpu("fp16", 0.000201),
            _gpu("fp64", 0.00223, 4),
        ),
        None,
        {"n": 4096},
    ),
    Scenario(
        "prototyping",
        "Budget-conscious prototyping",
        "A small network, a hundred steps, from an empty shell to the result: what is faster?",
        "cpu",
        "time_to_result",
        "train_mlp",
        0.01,
        "runs",
        1.0,
        None,
        "Start-up and compilation decide: the hundred steps are 0.4 s of 2.6 s on the GPU.",
        (_cpu("fp32", 0.318, threads=1), _cpu("fp32", 0.211)),
        (_gpu("fp32", 0.152),),
        None,
        {"samples": 10000, "steps": 100},
        trains=True,
    ),
    Scenario(
        "convolution",
        "Heavy convolution layers",
        "Forward and backward through 3x3 convolutions of 64 to 256 channels: where is it faster?",
        "gpu",
        "throughput",
        "conv_layers",
        0.05,
        "samples",
        8.0,
        4.4e10,
        "Regular arithmetic in large blocks is what the GPU is built for.",
        (_cpu("fp32", 0.0874), _cpu("bf16", 0.0, fails=NO_BF16, ends="skipped")),
        (
            _gpu("fp32", 0.00231, 4),
            _gpu("tf32", 0.00121, 5),
            _gpu("bf16", 0.000872),
            _gpu("fp16", 0.000931, 5),
            Entry("cuda:0", "onnxruntime", "fp32", 0.0, fails=OUT_OF_MEMORY),
        ),
        8,
        {"image": 32},
    ),
    Scenario(
        "branching",
        "Irregular, branching tasks",
        "A decision forest over small batches, full of data-dependent branches: which is faster?",
        "cpu",
        "throughput",
        "forest",
        1e-5,
        "samples",
        32.0,
        None,
        "84 % of the GPU time is kernel launches (412 per step at 5.1 us).",
        (
            _cpu("fp32", 0.00221, backend="numpy", threads=1, noise=0.06),
            _cpu("fp32", 0.00513, 4, threads=1),
        ),
        (_gpu("fp32", 0.00217, noise=0.05),),
        32,
        {"trees": 50, "depth": 8},
    ),
)
