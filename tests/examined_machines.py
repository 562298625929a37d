"""Machines and software for the tests of `workbench doctor`."""

from functools import partial
from typing import Any

import msgspec
from builders import machine as build_machine
from machines import h200

from workbench.advisor import doctor
from workbench.records.document import Tool
from workbench.records.inspection import OK, Check, DoctorReport, Trial
from workbench.records.machine import CudaDriver, Gpu, Machine, Nvml, Package, Pcie, Software

examine = partial(doctor.examine, {"schema_version": 1, "tool": Tool("workbench", "1.0", "doctor")})
CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
WORKING = {
    "torch": Trial("2.13.0", {"CUDA": None}, {"cpu": None}),
    "onnxruntime": Trial("1.31.1", {}, {CPU: None}),
}
ON_GPU = {
    "torch": Trial("2.13.0", {"CUDA": "13.0", "cuDNN": "9.10.2"}, {"cpu": None, "cuda:0": None}),
    "onnxruntime": Trial("1.31.1", {}, {CPU: None, CUDA: None}),
}
HEALTHY = msgspec.structs.replace(
    h200(),
    power_default_w=700.0,
    clock_event_reasons=["gpu_idle", "sw_power_cap"],
    ecc_uncorrected=0,
    row_remap="none",
    pcie=Pcie(1, 16, 5, 16, 5),
    memory_total_bytes=100,
    memory_used_bytes=1,
    processes=[],
)


def software(detail: str = "CPU build", ort: str = "CPU build", **changes: Any) -> Software:
    packages = {"torch": Package("2.13.0", detail), "onnxruntime": Package("1.31.1", ort)}
    found = Software("3.11.7", "~/v/bin/python", packages, {})
    return msgspec.structs.replace(found, **changes)


def with_gpu(gpu: Gpu = HEALTHY, **changes: Any) -> Machine:
    return msgspec.structs.replace(
        build_machine(),
        gpus=[gpu],
        nvml=Nvml(True, None, "580.1", "13.580.1"),
        cuda=CudaDriver(True, 1, None, "13.0"),
        **changes,
    )


def bad(found: DoctorReport) -> dict[str, Check]:
    """The checks that did not pass, by name."""
    return {check.name: check for check in found.checks if check.status != OK}
