"""OpenVINO runs the variants of a model where it is installed."""

import dataclasses
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from checking import fails_with
from lab_builders import VNNI, cpu, facts, space
from msgspec.structs import replace

from workbench.advisor.model.candidates import Proposal, first, neighbours, static_recipe
from workbench.advisor.model.overview import how
from workbench.advisor.model.snippet import snippet
from workbench.catalog import load, load_backend
from workbench.contract import Case, Setup, WorkloadError
from workbench.worker.recipe import ORIGINAL, Recipe
from workbench.worker.session_options import BFLOAT, openvino_settings
from workloads._shared.session import open_session

BOTH = ("onnxruntime", "openvino")
CASE = Case("model", "cpu", "openvino", "fp32", threads=2)


def test_it_starts_with_the_model_as_given_and_takes_over_the_leaders_variant() -> None:
    both = space("cnn", backends=BOTH)
    found, _ = first(both)
    given = Proposal(ORIGINAL, threads=both.threads[0], backend="openvino")
    assert [e for e in found if e.backend == "openvino"] == [given]
    leader = Proposal(static_recipe(both.cpu), threads=2)
    assert Proposal(leader.recipe, threads=2, backend="openvino") in [*neighbours(leader, both)]
    assert {e.backend for e in neighbours(leader, space("cnn"))} == {"onnxruntime"}
    dynamic = Proposal(Recipe("int8", "dynamic", scope="products"), threads=2)
    (static,) = (e.recipe for e in neighbours(dynamic, both) if e.backend == "openvino")
    assert (static.method, static.scope, static.per_channel) == ("static", "products", True)


def test_alone_it_has_every_variant_and_no_option_of_onnx_runtime() -> None:
    found, _ = first(space("cnn", backends=("openvino",), thorough=True))
    assert {e.backend for e in found} == {"openvino"}
    assert len(found) > 5
    assert {e.mode for e in found} == {None}


def test_bf16_is_tried_where_the_processor_has_it_and_never_silently() -> None:
    leader = Proposal(ORIGINAL, threads=2, backend="openvino")
    processors = (cpu(), cpu(replace(VNNI, avx512_bf16=True)))
    modes = [
        {e.mode for e in neighbours(leader, space("cnn", backends=BOTH, cpu=found))}
        for found in processors
    ]
    assert modes == [{None}, {None, BFLOAT}]
    cases = (CASE, Case("model", "cpu", "openvino", "fp32", threads=2, mode=BFLOAT))
    hints = [openvino_settings(case)["INFERENCE_PRECISION_HINT"] for case in cases]
    assert hints == ["f32", "bf16"]
    assert [how(case) for case in cases] == ["openvino t2", "openvino bf16 t2"]


class Compiled:
    def __init__(self) -> None:
        kind = SimpleNamespace(get_type_name=lambda: "f32")
        self.inputs = [SimpleNamespace(any_name="x", element_type=kind)]
        self.outputs = [SimpleNamespace(any_name="y", element_type=kind)]
        self.asked: list[Any] = []
        self.precision = "bf16"

    def get_property(self, name: str) -> Any:
        assert name == "INFERENCE_PRECISION_HINT"
        return SimpleNamespace(get_type_name=lambda: self.precision)

    def create_infer_request(self) -> Any:
        return SimpleNamespace(infer=self.infer)

    def infer(self, feeds: dict[str, Any], *, share_inputs: bool) -> dict[str, Any]:
        self.asked.append(share_inputs)
        return {"y": [2 * value for value in feeds["x"]]}


@pytest.fixture
def library(monkeypatch) -> dict[str, Any]:
    """A module `openvino` that records what it is asked for; `refuses` is raised."""
    seen: dict[str, Any] = {"compiled": Compiled(), "refuses": None}

    class Core:
        def read_model(self, model: bytes) -> bytes:
            return model

        def compile_model(self, *arguments: Any) -> Compiled:
            if seen["refuses"]:
                raise RuntimeError(seen["refuses"])
            seen["arguments"] = arguments
            return seen["compiled"]

    module = ModuleType("openvino")
    module.__version__ = "2026.4.1-22982-abc"
    module.Core = Core
    module.compile_model = lambda *arguments: Core().compile_model(*arguments)
    monkeypatch.setitem(sys.modules, "openvino", module)
    return seen


def test_a_session_runs_on_the_cpu_with_the_threads_and_precision_of_its_case(library) -> None:
    session = open_session(b"model", CASE)
    model, device, settings = library["arguments"]
    assert (model, device) == (b"model", "CPU")
    assert settings == openvino_settings(CASE)
    assert (settings["INFERENCE_NUM_THREADS"], settings["NUM_STREAMS"]) == (2, 1)
    assert session.run(None, {"x": [1, 2]}) == [[2, 4]] == session.run(["y"], {"x": [1, 2]})
    ports = [*session.get_inputs(), *session.get_outputs()]
    assert [(port.name, port.type) for port in ports] == [
        ("x", "tensor(float)"),
        ("y", "tensor(float)"),
    ]


@pytest.mark.parametrize(
    ("case", "device", "settings"),
    [
        (
            Case("infer_mlp", "xpu:1", "openvino", "fp16"),
            "GPU.1",
            {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f16"},
        ),
        (
            Case("infer_mlp", "cpu", "openvino", "bf16", threads=2, mode="auto"),
            "AUTO",
            {"DEVICE_PROPERTIES": {"CPU": {"INFERENCE_NUM_THREADS": 2}}},
        ),
    ],
)
def test_other_devices_get_only_what_they_know(library, case, device, settings) -> None:
    open_session(b"model", case)
    assert library["arguments"] == (b"model", device, settings)


def test_intels_gpus_are_xpus_as_torch_calls_them(library, monkeypatch) -> None:
    class Core:
        available_devices = ("CPU", "GPU.0", "GPU.1", "NPU")

        def get_property(self, name: str, what: str) -> str:
            return f"{name} {what}"

    monkeypatch.setattr(sys.modules["openvino"], "Core", Core)
    found = load_backend("openvino").gpus()
    assert [gpu["device"] for gpu in found] == ["xpu:0", "xpu:1"]
    assert found[1]["name"] == "GPU.1 FULL_DEVICE_NAME"


def test_a_network_in_fp16_on_an_intel_gpu_is_not_halved_beforehand(library) -> None:
    case = Case("infer_mlp", "xpu:0", "openvino", "fp16", batch=2, params={"width": 64})
    task = load("infer_mlp").prepare(case, Setup(seed=0))
    assert task.waits, "its time on the host is not the time that queueing takes"
    assert library["arguments"][1] == "GPU.0"


def test_a_model_that_it_refuses_is_named_in_one_line(library) -> None:
    library["refuses"] = "Exception from core.cpp:1:\n\nunsupported operation Foo\n"
    with pytest.raises(WorkloadError) as refused:
        open_session(b"model", CASE)
    assert str(refused.value) == "OpenVINO 2026.4.1 refuses the model: unsupported operation Foo"
    assert refused.value.code == "unsupported"


@pytest.mark.parametrize("changed", [{"precision": "bf16"}, {"mode": BFLOAT}])
def test_a_cpu_without_bf16_is_the_reason_and_not_measured_in_fp32(library, changed) -> None:
    case = dataclasses.replace(CASE, **changed)
    open_session(b"model", case)
    library["compiled"].precision = "f32"
    open_session(b"model", CASE)
    with fails_with("unsupported_precision", "computes in f32 on this CPU, not in bf16"):
        open_session(b"model", case)


def test_the_lines_to_take_home_open_it_with_the_same_settings(library) -> None:
    library["compiled"].__class__.__call__ = lambda self, feeds: {"y": feeds["x"]}
    found: dict[str, Any] = {}
    exec(snippet(facts(), CASE, "net.onnx", "CPUExecutionProvider"), found)
    assert library["arguments"] == ("net.onnx", "CPU", openvino_settings(CASE))
    assert [output.shape for output in found["outputs"]] == [(1, 4)]
