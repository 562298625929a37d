"""A small CNN as `advise --model` finds it, and what can be made of it."""

from workbench.contract import Case
from workbench.records.model import Built, ModelFacts, Port, PreparationStep
from workbench.records.reason import Reason

FILE = "mobilenet_v2.onnx"
LIMIT = 0.02
WEAK = (
    "the error was seen on random inputs, which is weak evidence: give real ones with "
    "--inputs data.npz"
)
FACTS = ModelFacts(
    file=FILE,
    sha256="c0" * 32,
    size_bytes=13_964_571,
    ir_version=8,
    opset=13,
    producer="pytorch 2.3.1",
    precision="fp32",
    parameters=3_487_816,
    operators={"Conv": 52, "Clip": 35, "Add": 10, "GlobalAveragePool": 1, "Gemm": 1},
    control_flow=[],
    quantised=False,
    inputs=[Port("image", "float32", ["batch", 3, 224, 224], [1, 3, 224, 224], "random normal")],
    outputs=[
        Port("logits", "float32", ["batch", 1000]),
        Port("features", "float32", ["batch", 1280]),
    ],
    batch=1,
    samples=8,
    calibration_samples=8,
    inputs_from="random",
    step_s=0.0061,
    steps=[
        PreparationStep("as given", 13_964_571, 105),
        PreparationStep("opset 13", 13_964_571, 105),
        PreparationStep("simplified", 13_958_340, 99),
        PreparationStep(
            "fused", None, None, Reason("unsupported", "no such pattern in this graph")
        ),
    ],
    multiply_adds=300_774_272,
    weights_bytes=13_811_200,
    max_error=LIMIT,
)


def _case(quantization: str | None, threads: int = 2) -> Case:
    precision = "fp32" if quantization is None else "int8"
    params = {"file": FILE}
    return Case("model", "cpu", "onnxruntime", precision, quantization, threads, 1, params)


FP32, CHANNEL, TENSOR = _case(None), _case("static-u8s8-channel"), _case("static-u8s8")
DYNAMIC, MIXED = _case("dynamic"), _case("static-u8s8-mixed")
BUILT = [
    Built("int8-static-u8s8-channel", 2.46, 3_912_403, {"Conv": 52}, 0.998),
    Built("int8-static-u8s8", 0.96, 3_774_118, {"Conv": 52}, 0.998),
    Built(
        "int8-static-u8s8-products-channel",
        1.31,
        reason=Reason(
            "bad_model", "ONNX Runtime cannot run it: no kernel for QGemm with this scale", None
        ),
    ),
    Built("int8-dynamic", 0.45, 3_688_512, {"ConvInteger": 52}, 1.0),
]
