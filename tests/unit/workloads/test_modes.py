"""Modes of torch candidates: CUDA graphs, torch.compile's, channels last, cuDNN's search, fused."""

import importlib
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from small import tuning_of
from tasks import prepared

from workbench import catalog
from workbench.contract import COMPILED, Case, Host, Variant
from workloads._shared import inference, torch_task
from workloads._shared.torch_task import ON_CUDA_ONLY, TorchTask

SIZES: dict[str, dict[str, int]] = {
    "infer_cnn": {"image": 16},
    "infer_mlp": {"width": 16},
    "infer_encoder": {"tokens": 8},
    "forest": {"trees": 4, "depth": 3},
    "train_mlp": {"samples": 50, "steps": 7},
    "train_cnn": {"image": 16},
    "train_resnet": {"blocks": 1},
    "train_gpt": {"tokens": 16, "width": 128, "blocks": 1},
    "launch": {},
    "conv_layers": {"image": 16},
}
BATCHES = {"train_cnn": 4, "train_resnet": 4, "train_gpt": 2, "forest": 4}
GRAPHED = ("infer_cnn", "infer_mlp", "infer_encoder", "forest", "train_mlp", "launch")
DEVICES = ("cpu", "cuda:0")
LAID_OUT = [("infer_cnn", "bf16"), ("train_cnn", "bf16"), ("train_resnet", "bf16")]


def case_of(name: str, mode: str | None, precision: str = "fp32", device: str = "cpu") -> Case:
    workload = catalog.load(name)
    return Case(
        workload=name,
        device=device,
        backend="torch",
        precision=precision,
        threads=1 if device == "cpu" else None,
        batch=BATCHES.get(name, workload.default_batch and 1),
        params=workload.values(SIZES[name]),
        tuning=tuning_of(workload, {}),
        mode=mode,
    )


def variants(name: str) -> set[tuple[str, str, str | None]]:
    return {(v.device_kind, v.precision, v.mode) for v in catalog.load(name).variants}


class FakeCuda:
    """The calls that capturing makes, in their order; a replay runs the call again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.captured_on: list[Any] = []
        monkeypatch.setattr(torch.cuda, "Stream", lambda: self.stream("side"))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: self.stream("current"))
        monkeypatch.setattr(torch.cuda, "stream", lambda it: self.inside(f"on {it.name}"))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: self)
        monkeypatch.setattr(torch.cuda, "graph", self.capture)

    def stream(self, name: str) -> Any:
        calls = self.calls

        class Stream:
            def __init__(self) -> None:
                self.name = name

            def wait_stream(self, other: Any) -> None:
                calls.append(f"{name} waits for {other.name}")

        return Stream()

    def capture(self, graph: Any, stream: Any = None) -> Any:
        self.captured_on.append(stream)
        return self.inside("capture")

    @contextmanager
    def inside(self, what: str) -> Iterator[None]:
        self.calls.append(what)
        yield
        self.calls.append(f"end {what}")

    def replay(self) -> None:
        self.calls.append("replay")


def test_a_graph_is_captured_after_warm_ups_on_a_side_stream_and_then_only_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, inside = FakeCuda(monkeypatch), torch.zeros(2)

    def call() -> Any:
        fake.calls.append("call")
        return inside

    replay = torch_task.graphed(call, [inside])
    assert fake.calls == [
        "side waits for current",
        "on side",
        *["call"] * torch_task.WARM_UPS,
        "end on side",
        "current waits for side",
        "capture",
        "call",
        "end capture",
    ]
    fake.calls.clear()
    assert replay(torch.tensor([3.0, 4.0])).tolist() == [3.0, 4.0]
    assert fake.calls == ["replay"]
    with pytest.raises(ValueError, match="argument"):  # an input that the graph does not read
        replay()


def test_no_two_graphs_are_captured_on_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that ends frees the memory of cuBLAS for its stream, which others may still read."""
    fake = FakeCuda(monkeypatch)
    for _ in range(2):
        torch_task.graphed(lambda: None)
    first, second = fake.captured_on
    assert None not in (first, second) and first is not second  # None: the one stream of torch


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Graphs on the CPU: each replay runs the call again.  The number of values copied in."""
    seen: list[int] = []

    def graphed(call: Callable[[], Any], inside: Iterable[Any] = ()) -> Callable[..., Any]:
        targets = list(inside)
        for _ in range(torch_task.WARM_UPS):
            call()

        def replay(*given: Any) -> Any:
            seen.append(len(given))
            for target, source in zip(targets, given, strict=True):
                target.copy_(source)
            return call()

        return replay

    monkeypatch.setattr(torch_task, "ON_CUDA_ONLY", ())
    for name in GRAPHED:
        infers = name.startswith("infer")
        module = inference if infers else importlib.import_module(f"workloads.{name}")
        monkeypatch.setattr(module, "graphed", graphed)
    return seen


@pytest.mark.parametrize("name", GRAPHED)
def test_a_graph_gives_the_right_result_for_every_input(name: str, replays: list[int]) -> None:
    task = prepared(case_of(name, "graph"))
    found = task.check()
    assert found.passed, found
    replays.clear()
    task.step()
    runs = SIZES["train_mlp"]["steps"] - torch_task.WARM_UPS  # the warm-ups train as well
    expected = {"train_mlp": [0] * runs, "launch": [0]}.get(name, [1])
    assert replays == expected


def test_a_captured_training_has_the_losses_of_an_eager_one(replays: list[int]) -> None:
    losses = []
    for mode in (None, "graph"):
        task = prepared(case_of("train_mlp", mode))
        losses.append([float(loss) for loss in task.train(6)])
    assert losses[0] == losses[1]
    assert len(set(losses[0])) == 6
    assert len(replays) == 6 - torch_task.WARM_UPS


def test_a_graph_answers_from_host_to_host_and_waits(monkeypatch, replays: list[int]) -> None:
    """Both copies are inside the capture, and the answer counts only once the stream is done."""
    order: list[str] = []
    eager, wait = inference.TorchInference._moved, lambda: order.append("wait")

    def moved(task: Any, batch: Any) -> Any:
        order.append("in")
        return eager(task, batch)

    monkeypatch.setattr(inference.TorchInference, "_moved", moved)
    monkeypatch.setattr(inference.TorchInference, "waiter", lambda _: wait)
    task = prepared(case_of("infer_cnn", "graph"))
    order.clear()
    first, second = (task.infer(batch) for batch in task.inputs[:2])
    assert order == ["in", "wait"] * 2
    assert abs(first - second).max() > 0  # the second answer has not overwritten the first
    assert task.waits


@pytest.mark.parametrize("name", GRAPHED)
def test_workloads_limited_by_launches_offer_a_graph_on_gpus_alone(name: str) -> None:
    assert ("gpu", "fp32", "graph") in variants(name)
    assert not any(kind == "cpu" and mode in ON_CUDA_ONLY for kind, _, mode in variants(name))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (None, None),
        ("nhwc", None),
        ("compile", "default"),
        ("reduce-overhead", "reduce-overhead"),
        ("max-autotune", "max-autotune"),
        ("compile+reduce-overhead", "reduce-overhead"),  # as the user's own code spells it
    ],
)
def test_a_mode_is_torchs_own(mode: str | None, expected: str | None, monkeypatch) -> None:
    monkeypatch.setattr(torch_task, "ON_CUDA_ONLY", ())
    asked: list[str | None] = []

    def compile_(function: Any, *, mode: str | None = None, **_: Any) -> Any:
        asked.append(mode)
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    case = case_of("infer_mlp", mode)
    assert prepared(case).check().passed
    assert asked == [expected][: expected is not None]
    assert case.is_compiled == (expected is not None)
    training = prepared(case_of("train_resnet", mode))
    assert asked == [expected, expected][: 2 * (expected is not None)]
    training.step()


def test_compiled_code_never_runs_in_inference_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA graphs of torch.compile fail there."""
    monkeypatch.setattr(torch_task, "ON_CUDA_ONLY", ())
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    for mode in (None, *COMPILED):
        task = prepared(case_of("infer_mlp", mode))
        assert task._output(task.hosted[0]).is_inference() == (mode is None)


@pytest.mark.parametrize(("name", "precision"), LAID_OUT)
def test_channels_last_holds_for_weights_and_inputs_and_is_right(name: str, precision: str) -> None:
    with closing(prepared(case_of(name, "nhwc", precision))) as task:
        model = task.model if name == "infer_cnn" else task.network
        kernels = [weight for weight in model.parameters() if weight.dim() == 4]
        pictures = torch.rand(2, 3, 16, 16)
        for tensor in (*kernels, task.moved(pictures)):
            assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(task.moved(pictures), pictures)
        assert task.moved(torch.arange(3)).tolist() == [0, 1, 2]  # labels stay as they are
        assert task.check().passed
        task.step()


@pytest.mark.parametrize("name", ["infer_mlp", "infer_encoder"])
def test_answers_in_bf16_are_close_and_not_equal(name: str) -> None:
    assert {("cpu", "bf16", None), ("gpu", "bf16", None)} <= variants(name)
    found = prepared(case_of(name, None, "bf16")).check()
    assert found.passed
    assert found.value > 1e-4


@pytest.mark.parametrize("name", ["conv_layers", "infer_cnn", "infer_mlp", "infer_encoder"])
def test_bf16_is_tried_small_before_a_cpu_emulates_it(name: str) -> None:
    workload = catalog.load(name)
    (size,) = SIZES[name]
    case = case_of(name, None, "bf16")
    large = Case(**{**vars(case), "batch": 8, "params": {size: 256}})
    small = workload.small_probe(large)
    assert small.batch == 1
    least = {"conv_layers": 4, "infer_cnn": 16, "infer_mlp": 8, "infer_encoder": 8}
    assert small.params[size] == least[name]
    assert workload.small_probe(small) is None
    assert workload.small_probe(Case(**{**vars(large), "precision": "fp32"})) is None


@pytest.mark.parametrize("name", ["train_cnn", "train_resnet", "train_gpt"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_trainings_offer_a_fused_optimiser_in_every_precision_of_a_gpu(name, precision) -> None:
    assert ("gpu", precision, "fused") in variants(name)


def test_cudnn_searches_only_for_the_candidate_of_that_mode(monkeypatch) -> None:
    monkeypatch.setattr(torch_task, "ON_CUDA_ONLY", ())
    monkeypatch.setattr(torch_task, "set_tf32", lambda _: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)

    class Bare(TorchTask):
        def step(self) -> None: ...

        def check(self) -> Any: ...

    for mode in ("cudnn-benchmark", None, "cudnn-benchmark", "nhwc"):
        task = Bare(case_of("infer_cnn", mode))
        task.device = torch.device("cuda")
        task.activate()
        assert torch.backends.cudnn.benchmark == (mode == "cudnn-benchmark")
    task.is_users_code = True
    torch.backends.cudnn.benchmark = True
    task.activate()
    assert torch.backends.cudnn.benchmark, "a user's code has asked for it"


@pytest.mark.parametrize(
    ("cores", "kind", "expected"),
    [
        (2, "cpu", []),  # one each
        (64, "cpu", []),
        (2, "gpu", [1, 2]),
        (16, "gpu", [4, 1, 8]),
        (224, "gpu", [32, 1, 64]),
    ],
)
def test_loaders_of_a_training_follow_the_cores(cores: int, kind: str, expected: list[int]) -> None:
    assert catalog.load("train_cnn").tuning_values("loaders", Host(cores, 1), kind) == expected


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        (name, variant)
        for name in SIZES
        for variant in catalog.load(name).variants
        if variant.mode in ON_CUDA_ONLY
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.precision}-{value.mode}",
)
def test_a_card_runs_what_only_cuda_has(name: str, variant: Variant) -> None:
    with closing(prepared(case_of(name, variant.mode, variant.precision, "cuda:0"))) as task:
        assert task.check().passed
        for _ in range(3):
            task.step()
        task.finish()


@pytest.mark.parametrize("name", ["infer_cnn", "infer_mlp", "infer_encoder"])
def test_preparing_takes_no_more_memory_than_was_estimated(name: str) -> None:
    case = replace(case_of(name, None), batch=256)
    prepared(replace(case, batch=1))  # weights and pictures stay
    tracemalloc.start()
    try:
        prepared(case)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= catalog.load(name).work(case).memory_bytes


@pytest.mark.parametrize("name", ["infer_cnn", "infer_mlp", "infer_encoder"])
def test_inputs_wait_in_main_memory_for_a_gpu(name: str) -> None:
    work = catalog.load(name).work
    on_cpu, on_gpu = (work(replace(case_of(name, None, device=d), batch=64)) for d in DEVICES)
    assert on_cpu.host_bytes == 0 < on_gpu.host_bytes
    assert on_gpu.memory_bytes < on_cpu.memory_bytes <= on_gpu.memory_bytes + on_gpu.host_bytes
