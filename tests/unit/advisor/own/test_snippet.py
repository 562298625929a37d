"""The lines to paste run, and compute what the code as written computes."""

import ctypes
import os
import subprocess
from collections import UserDict, defaultdict
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from own_subject import Subject

from workbench.advisor.own.snippet import MOVED, ON_DEVICE, snippet
from workbench.contract import Case
from workbench.planning.questions import OwnQuestion
from workbench.records.code import CodeFacts, CodeInput
from workbench.worker.code import Code
from workloads.own import export
from workloads.own.reference import Reference

PORTS = [
    CodeInput("0", "float32", [2, 3, 8, 8], "inputs[0]"),
    CodeInput("scale", "float32", [2, 1], "named['scale']"),
]
QUESTION = OwnQuestion("torch", "net:build")
TRAINING = OwnQuestion("torch", "net:build", train=True)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dropout = torch.nn.Conv2d(3, 8, 3), torch.nn.Dropout()

    def forward(self, images: Any, scale: Any) -> Any:
        return self.dropout(self.conv(images)).mean((2, 3)) * scale


def case(precision: str = "fp32", mode: str | None = None, **more: Any) -> Case:
    more = {"device": "cpu", "backend": "torch", "threads": 1, "batch": 2, **more}
    return Case("own", precision=precision, mode=mode, **more)


def facts(**more: Any) -> CodeFacts:
    more = {"inputs": PORTS, "named": True, "convolves": True, **more}
    return CodeFacts("torch", "net:build", "", "", **more)


@pytest.fixture
def scope() -> Any:
    """The names that the lines use; the number of threads is restored afterwards."""
    torch.manual_seed(0)
    before = torch.get_num_threads()
    named = {"scale": torch.ones(2, 1)}
    yield {"model": Net(), "inputs": [torch.randn(2, 3, 8, 8)], "named": named}
    torch.set_num_threads(before)


def expected(scope: dict[str, Any]) -> Any:
    with torch.no_grad():
        return scope["model"].eval()(*scope["inputs"], **scope["named"])


def test_memory_is_kept_before_the_call(scope: dict[str, Any], monkeypatch: Any) -> None:
    right, chosen = expected(scope), []
    libc = SimpleNamespace(mallopt=lambda *option: chosen.append(option))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
    exec(snippet(facts(), case(mode="keep"), QUESTION), scope)
    torch.testing.assert_close(scope["output"], right)
    assert chosen == [(-4, 0), (-1, -1)]  # M_MMAP_MAX and M_TRIM_THRESHOLD of malloc.h


@pytest.mark.parametrize(
    ("precision", "mode", "tolerance"),
    [
        ("fp32", None, 1e-6),
        ("fp32", "nhwc", 1e-5),
        ("bf16", None, 0.05),
        ("fp16", "nhwc", 0.05),
        ("fp32", "nhwc+compile", 1e-5),
        ("fp32", "compile+reduce-overhead", 1e-5),
    ],
)
def test_a_call_on_the_cpu(scope, monkeypatch, precision, mode, tolerance) -> None:
    made = []
    compiled = torch.compile  # without a C++ compiler's minute
    monkeypatch.setattr(
        torch,
        "compile",
        lambda model, **more: made.append(more) or compiled(model, backend="eager"),
    )
    right = expected(scope)
    exec(snippet(facts(), case(precision, mode), QUESTION), scope)
    torch.testing.assert_close(scope["output"].float(), right, atol=tolerance, rtol=tolerance)
    assert torch.get_num_threads() == 1
    assert not scope["output"].requires_grad
    is_nhwc = scope["inputs"][0].is_contiguous(memory_format=torch.channels_last)
    assert is_nhwc == ("nhwc" in (mode or ""))
    known = {
        "nhwc+compile": [{"dynamic": False}],
        "compile+reduce-overhead": [{"dynamic": False, "mode": "reduce-overhead"}],
    }
    assert made == known.get(mode or "", [])


def test_a_session(scope: dict[str, Any], tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    right = expected(scope)
    net = Subject(scope["model"], *scope["inputs"], **scope["named"])
    answers = Reference(["output"], [right.numpy()], [0.0], "eager")
    export.export(Code("torch", "net:build", ".", "."), net, 2, answers, resizes=False)
    exec(snippet(facts(), case(backend="onnxruntime", mode="nospin"), QUESTION), scope)
    torch.testing.assert_close(torch.from_numpy(scope["output"][0]), right)
    assert scope["options"].intra_op_num_threads == 1
    assert scope["options"].get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_the_lines_of_a_training_without_a_loss_say_what_their_model_returns() -> None:
    legend = snippet(facts(), case(batch=4), TRAINING).splitlines()[0]
    assert legend.startswith("# model: a module whose forward returns your loss; inputs")


@pytest.mark.parametrize(("precision", "mode"), [("fp32", "nhwc"), ("bf16", "fused")])
def test_a_training_step(scope: dict[str, Any], precision: str, mode: str) -> None:
    model = scope["model"]
    before = model.conv.weight.detach().clone()
    scope |= {
        "loss": lambda output: output.square().sum(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    picked = case(precision, mode, batch=4, tuning={"workers": 2, "pin": 0})
    exec(snippet(facts(loss="output"), picked, TRAINING), scope)
    assert scope["model"].training
    assert not torch.equal(model.conv.weight, before)
    (group,) = scope["optimizer"].param_groups
    assert (group["lr"], bool(group["fused"])) == (0.1, mode == "fused")
    loader = torch.utils.data.DataLoader([0], **scope["loading"])
    assert (loader.batch_size, loader.num_workers) == (4, 2)


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adamax])
def test_only_a_fused_adam_unscales_fp16_itself(scope: Any, make: Any) -> None:
    """For others GradScaler reads all gradients once more, and waits for the GPU."""
    parameters = list(scope["model"].parameters())
    scope |= {"loss": lambda output: output.square().sum(), "optimizer": make(parameters)}
    text = snippet(facts(loss="output"), case("fp16", "fused", batch=4), TRAINING)
    exec(text.partition("optimizer.zero_grad()")[0], scope)
    takes = "_step_supports_amp_scaling"
    assert getattr(scope["optimizer"], takes) == (make is torch.optim.AdamW)
    assert takes not in snippet(facts(loss="output"), case("fp16", batch=4), TRAINING)


class WithLoss(torch.nn.Module):
    """Returns its loss, alone or within another object."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.layer, self.wrap = torch.nn.Linear(3, 1), wrap

    def forward(self, rows: Any) -> Any:
        return self.wrap(self.layer(rows).square().sum())


@pytest.mark.parametrize(
    ("takes", "wrap"),
    [
        ("output, batch", lambda loss: loss),
        (None, lambda loss: loss),
        (None, lambda loss: {"loss": loss}),
        (None, lambda loss: SimpleNamespace(loss=loss)),
    ],
)
def test_each_kind_of_loss(takes: Any, wrap: Any) -> None:
    model, rows = WithLoss(wrap), torch.ones(2, 3)
    scope = {"model": model, "inputs": [rows], "batch": [rows, torch.tensor(3.0)]}
    scope |= {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    scope |= {"loss": lambda output, batch: output * batch[1]} if takes else {}
    right = float(model.layer(rows).detach().square().sum()) * (3 if takes else 1)
    port = CodeInput("0", "float32", [2, 3], "inputs[0]")
    known = CodeFacts("torch", "net:build", "", "", inputs=[port], loss=takes)
    exec(snippet(known, case(), TRAINING), scope)
    assert float(scope["error"].detach()) == pytest.approx(right)


class Labelled(NamedTuple):
    """A batch whose loss reads `batch.labels`."""

    inputs: UserDict[str, Any]
    labels: torch.Tensor


class Graph(SimpleNamespace):
    def __call__(self) -> None:
        """It can be called, as the graphs of PyTorch Geometric can."""


def test_a_batch_goes_to_the_gpu_where_the_loss_takes_it() -> None:
    picked = case(device="cuda:0", threads=None)
    text = snippet(facts(loss="output, batch"), picked, TRAINING)
    scope: dict[str, Any] = {"torch": torch}
    exec(MOVED.format(how="'meta'", fits=ON_DEVICE), scope)
    held = defaultdict(list, a=[torch.ones(1), "b"])
    batch = scope["moved"](Labelled(UserDict(held=held), torch.ones(1)))
    moved = batch.inputs["held"]
    assert batch.labels.is_meta and moved["a"][0].is_meta and moved["a"][1] == "b"
    assert moved["none"] == [] and not held["a"][0].is_meta
    graph = Graph(nodes=torch.ones(1), labels=[batch.labels], name="g", layer=len, kind=Graph)
    there = scope["moved"](graph)
    assert there.nodes.is_meta and there.name == "g" and there.layer is len
    assert there.kind is Graph
    assert not graph.nodes.is_meta, "the caller's own stays"
    assert "batch = moved(batch)" in text
    assert "loss = loss.to('cuda:0') if hasattr(loss, \"to\") else loss" in text
    assert "batch = moved" not in snippet(facts(loss="output"), picked, TRAINING)


@pytest.mark.parametrize(
    ("precision", "mode", "words"),
    [
        ("tf32", None, "matmul.allow_tf32 = True"),
        ("fp32", None, "cudnn.allow_tf32 = False"),
        ("bf16", None, 'torch.autocast("cuda", dtype=torch.bfloat16)'),
        ("fp32", "graph", "\nwith torch.cuda.graph(graph):\n    with torch.inference_mode():\n"),
        ("bf16", "graph", "dtype=torch.bfloat16, cache_enabled=False)"),
    ],
)
def test_on_a_gpu(precision: str, mode: str | None, words: str) -> None:
    picked = case(precision, mode, device="cuda:0", threads=None)
    text = snippet(facts(), picked, QUESTION)
    compile(text, "snippet", "exec")
    assert words in text
    assert "model = model.to('cuda:0')" in text
    assert "set_num_threads" not in text


def test_a_graph_of_torch_export_keeps_its_mode() -> None:
    assert "model.eval()" in snippet(facts(), case(), QUESTION)
    assert "model.eval()" not in snippet(facts(graph=True), case(), QUESTION)


def test_true_fp32_on_a_gpu_outlasts_what_a_module_has_set_by_the_new_names() -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("torch has the new names since 2.9")
    picked = case("fp32", device="cuda:0", threads=None)
    settings = [
        line for line in snippet(facts(), picked, QUESTION).splitlines() if "backends" in line
    ]
    before = matmul.allow_tf32, cudnn.allow_tf32
    try:
        for wider in (torch.backends, cudnn):
            wider.fp32_precision = "tf32"
            exec("\n".join(settings), {"torch": torch})
            assert "tf32" not in (matmul.fp32_precision, cudnn.conv.fp32_precision)
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def test_a_simulated_gpu_is_the_cpu() -> None:
    for question in (QUESTION, TRAINING, OwnQuestion("function", "m:work")):
        found = snippet(facts(passes_device=True), case("bf16", device="fake:0"), question)
        assert "fake" not in found, found


def test_nested_inputs_move_too(scope: dict[str, Any]) -> None:
    ports = [
        CodeInput("0", "float32", [2, 3, 8, 8], "inputs[0]"),
        CodeInput("scale.0", "float32", [2, 1], "named['scale'][0]"),
    ]
    known = facts(inputs=ports)
    lines = snippet(known, case(device="cuda:0", threads=None), QUESTION).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("from collections"))
    moves = [line for line in lines[start:] if "model" not in line]
    found = {**scope, "torch": torch, "named": {"scale": (torch.ones(1), [torch.ones(2)])}}
    exec("\n".join(moves[:-1]).replace("cuda:0", "meta"), found)
    first, (second,) = found["named"]["scale"]
    assert {first.device.type, second.device.type, found["inputs"][0].device.type} == {"meta"}


def test_weights_of_16_bits_in_fp32(scope: dict[str, Any]) -> None:
    right = expected(scope)
    scope["model"].bfloat16()
    scope["inputs"] = [each.bfloat16() for each in scope["inputs"]]
    text = snippet(facts(precision="bf16"), case("fp32"), QUESTION)
    exec(text, scope)
    assert "autocast" not in text
    torch.testing.assert_close(scope["output"], right, atol=0.05, rtol=0.05)


def test_weights_in_bf16_need_no_autocast() -> None:
    assert "autocast" not in snippet(facts(precision="bf16"), case("bf16"), QUESTION)


def test_a_function(monkeypatch: Any) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    known = CodeFacts("function", "m:work", "", "", passes_device=True)
    scope: dict[str, Any] = {"inputs": [2], "named": {"by": 3}}
    scope["work"] = lambda number, by, device: (number, by, device)
    exec(snippet(known, case(), OwnQuestion("function", "m:work")), scope)
    assert scope["result"] == (2, 3, "cpu")
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_a_command() -> None:
    question = OwnQuestion("command", "printf '%s|' {device}-{n} $HOME '{a b}'  {n}")
    known = CodeFacts("command", "command", "", "")
    values = {"device": "my cpu", "n": "$(id)"}
    text = snippet(known, case(tuning=values, threads=None), question)
    answer = subprocess.run(text, shell=True, capture_output=True, text=True, check=True).stdout
    assert answer == "my cpu-$(id)|$HOME|{a b}|$(id)|", "as it is measured, without a shell"
