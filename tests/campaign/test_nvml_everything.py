"""Every reading of NVML failing in every way: the answer stays complete, each absence explained.

Minutes long, so marked `campaign`: `make campaign`.
"""

import re
from pathlib import Path

import pytest
import stub_driver

from workbench.machine.nvidia.gpu_fields import with_reasons
from workbench.machine.nvidia.probe_client import nvml_answer, start_probe

pytestmark = pytest.mark.campaign
SOURCE = Path(stub_driver.__file__).parent / "nvml.c"
FUNCTIONS = sorted(set(re.findall(r"\bnvmlDeviceGet\w+", SOURCE.read_text())))
FAULTS = ["2", "3", "4", "6", "7", "13", "15", "17", "25", "26", "77", "999", "novalue", "badutf8",
          "zero", "segv", "abort"]  # fmt: skip


@pytest.mark.parametrize("library", ["nvml", "old_nvml"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_reading_that_fails_in_any_way_leaves_a_complete_answer(stub, library, function) -> None:
    for fault in FAULTS:
        with stub.loaded(library, NVML_STUB_GPUS="2", NVML_STUB=f"{function}@1={fault}"):
            nvml, gpus = nvml_answer(start_probe("nvml"), 30.0)
        assert nvml.available, fault
        if function == "nvmlDeviceGetCount_v2":
            continue
        assert [gpu.index for gpu in gpus] == [0, 1], fault
        for gpu in gpus:
            assert with_reasons(gpu, "none is given") == gpu, fault
        assert gpus[0].name == "NVIDIA H200", fault
