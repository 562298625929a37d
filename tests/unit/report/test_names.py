"""Names of machines and candidates, as every front end shows them."""

import pytest
from builders import OTHER, machine, report, steady
from msgspec.structs import replace

from workbench.contract import Case
from workbench.export.view.machine import gpu, gpu_title
from workbench.report.measurements import measurement_warnings
from workbench.report.names import gpu_text, in_words, machine_name


@pytest.mark.parametrize(
    ("visible", "text", "title"),
    [
        ((True, True), "GPU unusable", "GPU 0  Test GPU  (unusable)"),
        ((True, False), "GPU unusable", "GPU 0  Test GPU  (unusable)"),
        ((False, False), "GPU hidden", "GPU 0  Test GPU  (hidden)"),
    ],
)
def test_a_gpu_that_the_user_did_not_hide_is_not_called_hidden(visible, text, title) -> None:
    here = machine("cuda:0", "cuda:1")
    assert gpu_text(here) == "2x Test GPU" and gpu_text(machine()) == "no GPU"
    gpus = [
        replace(gpu, device=None, visible=seen)
        for gpu, seen in zip(here.gpus, visible, strict=True)
    ]
    assert gpu_text(replace(here, gpus=gpus)) == text
    assert gpu_title(gpus[0]) == title


def test_a_machine_of_one_core_has_one_core() -> None:
    here = machine()
    cpu = replace(here.cpu, effective_cores=1, logical_cores=1)
    here = replace(here, cpu=cpu)
    assert machine_name(here) == "Test, 1 core | no GPU"
    assert machine_name(here, brief=True) == "1 core | no GPU"
    (busy,) = measurement_warnings(report({OTHER: steady(1.0)}).candidates[OTHER.id], here)
    assert busy.message == "8 threads share 1 core"


def test_a_gpu_with_one_active_link_has_no_links() -> None:
    (found,) = machine("cuda:0").gpus
    facts = [fact for n in (0, 1, 18) for fact in gpu(replace(found, nvlinks=n))]
    shown = [fact.text.plain for fact in facts if fact.label == "NVLink"]
    assert shown == ["0 links active", "1 link active", "18 links active"]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case("w", "cpu", "torch", "fp32", threads=1), "PyTorch FP32, 1 thread"),
        (
            Case("w", "cpu", "onnxruntime", "int8", quantization="static", threads=2),
            "ONNX Runtime static INT8, 2 threads",
        ),
        (
            Case("w", "cuda:0", "torch", "bf16", mode="nhwc", tuning={"loaders": 4}),
            "PyTorch BF16, channels_last, loaders=4",
        ),
        (Case("w", "cpu", "other", "fp64"), "other FP64"),
    ],
)
def test_a_candidate_in_words(case: Case, words: str) -> None:
    assert in_words(case) == words
