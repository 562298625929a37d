"""`detect` as a whole, in processes of its own: nothing heavy imported, the driver found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from stub_driver import StubDriver

from workbench.machine import detect
from workbench.records.machine import Machine, Software

ROOT = Path(__file__).parents[3]
DETECT = """
import json, sys
import msgspec
from workbench.machine import detect
from workbench.machine.nvidia.gpus import no_gpu
from workbench.machine.warnings import hardware_warnings
machine, software = detect()
codes = [w.code for w in hardware_warnings(machine, software)]
heavy = [n for n in ("torch", "onnxruntime", "textual", "numpy", "pynvml") if n in sys.modules]
none = no_gpu(machine)
parts = dict(machine=machine, software=software, warnings=codes, heavy=heavy, no_gpu=none)
print(msgspec.json.encode(parts).decode())
"""


def run(environ: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", DETECT], cwd=ROOT, env=environ, capture_output=True, check=True
    )
    assert done.stderr == b""
    answer: dict[str, Any] = json.loads(done.stdout)
    msgspec.convert(answer["machine"], Machine)
    msgspec.convert(answer["software"], Software)
    return answer


def test_detect_imports_no_backend_and_no_nvml() -> None:
    assert run({**os.environ})["heavy"] == []


def test_nvml_and_cuda_are_joined_across_their_orders(stub: StubDriver) -> None:
    environ = stub.environ("nvml", "cuda", NVML_STUB_GPUS="3", CUDA_STUB_DEVICES="2,0,1")
    answer = run(environ)
    assert [gpu["device"] for gpu in answer["machine"]["gpus"]] == ["cuda:1", "cuda:2", "cuda:0"]
    assert answer["no_gpu"] is None
    assert answer["heavy"] == []


def test_a_hidden_gpu_is_shown_as_hidden_which_is_no_complaint_in_a_batch_job(stub) -> None:
    environ = stub.environ(
        "nvml", "cuda", NVML_STUB_GPUS="2", CUDA_STUB_DEVICES="1", CUDA_VISIBLE_DEVICES="1"
    )
    answer = run(environ)
    in_job = run({**environ, "SLURM_JOB_ID": "7"})
    shown, used = answer["machine"]["gpus"]
    assert (shown["visible"], shown["device"]) == (False, None)
    assert (used["visible"], used["device"]) == (True, "cuda:0")
    assert "gpu_hidden" in answer["warnings"]
    assert answer["software"]["environment"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert "gpu_hidden" not in in_job["warnings"]
    assert in_job["machine"]["gpus"][0]["unavailable"]["device"].endswith("in a batch job")


def test_under_mps_an_exclusive_gpu_admits_further_processes(stub, tmp_path) -> None:
    environ = stub.environ("nvml", "cuda", CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))
    assert run(environ)["machine"]["mps"] is False
    os.mkfifo(tmp_path / "control")
    here = msgspec.convert(run(environ)["machine"], Machine)
    gpu = replace(here.gpus[0], compute_mode="exclusive_process")
    shared = replace(here, gpus=[gpu])
    assert shared.mps and shared.exclusive == frozenset()
    assert replace(shared, mps=False).exclusive == {"cuda:0"}


def test_cuda_without_nvml_as_in_a_container_without_utility(stub: StubDriver) -> None:
    answer = run(stub.environ("cuda"))
    [gpu] = answer["machine"]["gpus"]
    assert (gpu["index"], gpu["device"], gpu["name"]) == (None, "cuda:0", "NVIDIA H200")
    assert "cuda_without_nvml" in answer["warnings"]
    assert answer["no_gpu"] is None


def test_nvml_without_cuda(stub: StubDriver) -> None:
    answer = run(stub.environ("nvml"))
    assert "nvml_without_cuda" in answer["warnings"]
    assert answer["no_gpu"]["code"] == "gpu_unusable"


def test_a_crash_of_nvml_leaves_cudas_answer(stub: StubDriver) -> None:
    answer = run(stub.environ("nvml", "cuda", NVML_STUB="nvmlInitWithFlags=abort"))
    assert answer["machine"]["nvml"]["reason"]["code"] == "nvml_crashed"
    assert [gpu["device"] for gpu in answer["machine"]["gpus"]] == ["cuda:0"]


def test_a_mig_instance_is_joined_with_the_gpu_it_is_part_of(stub: StubDriver) -> None:
    faults = "cuDeviceGetUuid_v2=mig;cuDeviceTotalMem_v2=mig"
    [gpu] = run(stub.environ("nvml", "cuda", CUDA_STUB=faults))["machine"]["gpus"]
    assert (gpu["index"], gpu["device"]) == (0, "cuda:0")
    assert gpu["uuid"].startswith("MIG-aa")
    assert (gpu["memory_total_bytes"], gpu["memory_used_bytes"]) == (18874368000, None)
    assert gpu["power_w"] is None and "whole GPU" in gpu["unavailable"]["power_w"]


def test_a_gpu_that_shares_the_systems_memory(stub: StubDriver) -> None:
    faults = "nvmlDeviceGetMemoryInfo_v2=3;nvmlDeviceGetMemoryInfo=3;nvmlDeviceGetPciInfo_v3=3"
    unlike = "cuDeviceGetUuid=1;cuDeviceGetUuid_v2=mig"
    environ = stub.environ(
        "nvml", "cuda", NVML_STUB=faults, CUDA_STUB=unlike, CUDA_STUB_INTEGRATED="1"
    )
    answer = run(environ)["machine"]
    [gpu] = answer["gpus"]
    assert gpu["device"] == "cuda:0"
    assert gpu["memory_total_bytes"] == answer["memory"]["total_bytes"]
    assert "shares" in gpu["unavailable"]["memory_total_bytes"]


def test_detect_on_an_empty_tree_still_answers(tmp_path: Path) -> None:
    machine, software = detect(root=tmp_path)
    assert machine.cpu.effective_cores >= 1
    assert machine.memory.total_bytes > 0
    assert software.python
