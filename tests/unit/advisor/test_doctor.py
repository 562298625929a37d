"""Checks of a machine and its stack, from good to broken."""

import re

import msgspec
import pytest
from builders import machine as build_machine
from examined_machines import CPU, CUDA, HEALTHY, ON_GPU, WORKING, bad, examine, software, with_gpu

from workbench.export.doctor import doctor_text
from workbench.records.inspection import FAIL, DoctorReport, Trial
from workbench.records.machine import CudaDriver, Memory, Nvml, Os, Package
from workbench.records.reason import Reason


def test_a_machine_without_a_gpu_can_be_in_order() -> None:
    found = examine(build_machine(), software(), WORKING)
    assert bad(found) == {} and not found.failed
    assert doctor_text(found).endswith("Everything is in order.")


def test_an_interpreter_on_which_no_worker_runs_fails_though_its_packages_work() -> None:
    found = examine(build_machine(), software(python="3.9.18"), WORKING)
    assert found.failed and list(bad(found)) == ["python"]


def test_a_build_for_gpus_is_no_fault_where_there_is_none() -> None:
    idle = Trial("2.13.0", {"CUDA": "13.0"}, {"cpu": None, "cuda": "no device"})
    found = examine(build_machine(), software("CUDA 13.0"), {**WORKING, "torch": idle})
    torch = next(level for level in found.stack if level.name == "torch")
    assert (torch.status, torch.note) == ("ok", "runs on cpu; not on cuda")
    broken = examine(with_gpu(), software("CUDA 13.0"), {**WORKING, "torch": idle})
    assert next(level for level in broken.stack if level.name == "torch").status == "warn"


def test_a_machine_with_a_gpu_can_be_in_order() -> None:
    found = examine(with_gpu(), software("CUDA 13.0", "CUDA 13.0"), ON_GPU)
    assert bad(found) == {}
    assert [(level.name, level.found, level.status) for level in found.stack] == [
        ("python", "3.11.7", "ok"),
        ("torch", "2.13.0, CUDA 13.0", "ok"),
        ("CUDA", "13.0", "ok"),
        ("cuDNN", "9.10.2", "ok"),
        ("onnxruntime", "1.31.1, CUDA 13.0", "ok"),
        ("driver", "580.1, CUDA 13.0", "ok"),
        ("GPU", "NVIDIA H200", "ok"),
    ]


@pytest.mark.parametrize(
    ("trials", "name", "message"),
    [
        ({"torch": Trial(failure="died of SIGILL")}, "torch", "SIGILL"),
        ({"torch": Trial("2.13", {}, {"cpu": "it computes wrong results"})}, "torch", "wrong"),
        ({"onnxruntime": Trial("1.31", {}, {CPU: "no"})}, "onnxruntime", "no"),
    ],
)
def test_a_package_that_does_not_work_fails_with_a_command_to_paste(trials, name, message) -> None:
    found = examine(build_machine(), software(), {**WORKING, **trials})
    check = bad(found)[name]
    assert found.failed and message in check.message
    assert check.remedy == f"~/v/bin/python -m pip install --force-reinstall {name}"


def test_a_package_that_is_not_there_fails_and_stands_in_the_stack() -> None:
    found = examine(build_machine(), software(), {"onnxruntime": WORKING["onnxruntime"]})
    assert bad(found)["torch"].message == "not installed"
    assert next(level for level in found.stack if level.name == "torch").status == "fail"


def test_what_is_not_there_is_installed_as_this_driver_can_run_it() -> None:
    absent = software(packages={})
    plain = bad(examine(build_machine(), absent, {}))
    assert plain["torch"].remedy == "~/v/bin/python -m pip install torch"
    assert plain["onnxruntime"].remedy == "~/v/bin/python -m pip install onnxruntime"
    old = msgspec.structs.replace(with_gpu(), cuda=CudaDriver(True, 1, None, "12.4"))
    found = bad(examine(old, absent, {}))
    assert found["torch"].remedy.endswith(
        "torch --index-url https://download.pytorch.org/whl/cu126"
    )
    assert "install 'onnxruntime-gpu" in found["onnxruntime"].remedy
    ancient = msgspec.structs.replace(old, cuda=CudaDriver(True, 1, None, "11.4"))
    for_cpu = "~/v/bin/python -m pip install onnxruntime"
    assert bad(examine(ancient, absent, {}))["onnxruntime"].remedy == for_cpu
    broken = dict.fromkeys(WORKING, Trial(failure="died of SIGILL"))
    again = bad(examine(old, software("CUDA 12.6", "CUDA 12.6"), broken))
    assert again["torch"].remedy == found["torch"].remedy


def with_library(name: str, trial: Trial, package: str = "") -> DoctorReport:
    packages = {**software().packages, package or name: Package(trial.version, None)}
    for known in ("torch", "onnxruntime"):
        packages[known] = Package(packages[known].version, "CUDA 13.0")
    return examine(with_gpu(), software(packages=packages), {**ON_GPU, name: trial})


def test_an_optional_library_stands_in_the_stack_and_may_be_a_build_for_the_cpu() -> None:
    found = with_library("openvino", Trial("2026.4.1", {}, {"cpu": None}))
    assert bad(found) == {}
    level = next(level for level in found.stack if level.name == "openvino")
    assert (level.found, level.status, level.note) == ("2026.4.1", "ok", "runs on cpu")


@pytest.mark.parametrize(
    ("name", "trial", "message"),
    [
        ("sklearn", Trial(failure="No module named 'scipy'"), "does not work: No module"),
        ("jax", Trial("0.10.2", {}, {"cpu": None, "gpu:0": "no PTX"}), "not work on gpu:0: no PTX"),
        ("openvino", Trial("2024.6.0", {}, {"cpu": None}), "2024.6.0 is older than 2025.0"),
        ("openvino", Trial("2027.0.0", {}, {"cpu": None}), "2027.0.0 is newer than 2026.4"),
        (
            "xgboost",
            Trial("3.2.0", {"OpenMP": "libgomp and libiomp"}, {"cpu": None}),
            "libgomp and libiomp into one process",
        ),
    ],
)
def test_a_fault_of_an_optional_library_warns_and_fails_nothing(name, trial, message) -> None:
    found = with_library(name, trial, "scikit-learn" if name == "sklearn" else "")
    assert message in bad(found)[name].message
    assert not found.failed
    if name == "sklearn":
        assert (bad(found)[name].remedy or "").endswith("--force-reinstall scikit-learn")


def test_a_cpu_build_on_a_machine_with_a_gpu_fails() -> None:
    found = examine(with_gpu(), software(), WORKING)
    assert found.failed
    assert "CPU build" in bad(found)["torch on the GPU"].message
    assert "onnxruntime-gpu" in (bad(found)["onnxruntime on the GPU"].remedy or "")


def test_a_gpu_that_torch_cannot_start_is_reported_in_torchs_own_words() -> None:
    trial = Trial("2.13.0", {"CUDA": "13.0"}, {"cpu": None, "cuda": "CUDA unknown error"})
    found = examine(with_gpu(), software("CUDA 13.0"), {**ON_GPU, "torch": trial})
    assert bad(found)["torch on the GPU"].message == "cuda: CUDA unknown error"
    level = next(level for level in found.stack if level.name == "torch")
    assert (level.status, level.note) == ("warn", "runs on cpu; not on cuda")


@pytest.mark.parametrize(
    ("why", "status", "remedy"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 MiB", "warn", "other processes fill the GPU"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "warn", "end its proc"),
        ("CUDA error: uncorrectable ECC error encountered", "fail", "reset or replace the card"),
    ],
)
def test_a_gpu_that_others_hold_is_no_fault_of_torch(why, status, remedy) -> None:
    trial = Trial("2.13.0", {"CUDA": "13.0"}, {"cpu": None, "cuda:0": None, "cuda:1": why})
    provider = Trial("1.31.1", {}, {CPU: None, CUDA: why})
    trials = {"torch": trial, "onnxruntime": provider}
    found = examine(with_gpu(), software("CUDA 13.0", "CUDA 13.0"), trials)
    for name in trials:
        check = bad(found)[f"{name} on the GPU"]
        assert check.status == status and remedy in (check.remedy or "")
    assert found.failed == (status == "fail")


def test_a_card_that_the_build_of_torch_leaves_out_needs_another_build() -> None:
    why = "CUDA error: no kernel image is available for execution on the device"
    trial = Trial("2.8.0", {"CUDA": "12.8"}, {"cpu": None, "cuda:0": why})
    old = msgspec.structs.replace(HEALTHY, compute_capability="6.1")
    found = examine(with_gpu(old), software("CUDA 12.8"), {**ON_GPU, "torch": trial})
    assert "whl/cu126" in (bad(found)["torch on the GPU"].remedy or "")


def test_a_provider_that_is_compiled_in_but_falls_back_fails() -> None:
    trial = Trial("1.31.1", {}, {CPU: None, CUDA: f"it falls back to {CPU} without an error"})
    found = examine(with_gpu(), software("CUDA 13.0"), {**ON_GPU, "onnxruntime": trial})
    assert "falls back" in bad(found)["onnxruntime on the GPU"].message


@pytest.mark.parametrize(
    ("ort", "torch", "driver", "remedy"),
    [
        ("CUDA 13.0", "CUDA 13.0", "13.0", "==1.31.1'"),  # its libraries are missing
        ("CUDA 13.0", "CUDA 12.6", "13.0", ">=1.21,<1.27'"),
        ("CUDA 12.8", "CUDA 13.0", "13.0", ">=1.28'"),
        ("CUDA 13.0", "CUDA 13.0", "12.4", ">=1.21,<1.27'"),
    ],
)
def test_the_onnxruntime_that_suits_driver_and_torch_is_named(ort, torch, driver, remedy) -> None:
    here = with_gpu()
    here = msgspec.structs.replace(here, cuda=CudaDriver(True, 1, None, driver))
    found = software(torch)
    found.packages["onnxruntime-gpu"] = Package("1.31.1", ort)
    why = "libcublasLt.so.13: cannot open shared object file"
    broken = {**ON_GPU, "onnxruntime": Trial("1.31.1", {"CUDA": "13.0"}, {CPU: None, CUDA: why})}
    check = bad(examine(here, found, broken))["onnxruntime on the GPU"]
    assert check.status == "fail" and why in check.message
    assert (check.remedy or "").endswith(f"'onnxruntime-gpu[cuda,cudnn]{remedy}")


def test_the_stack_names_the_build_of_onnxruntime_that_is_imported() -> None:
    found = software("CUDA 13.0")
    found.packages["onnxruntime"] = Package(None, "not installed")
    found.packages["onnxruntime-gpu"] = Package("1.31.1", "CUDA 13.0")
    levels = examine(with_gpu(), found, ON_GPU).stack
    named = next(level.found for level in levels if level.name == "onnxruntime")
    assert named.endswith(", CUDA 13.0")


def test_two_cudas_that_work_side_by_side_are_worth_a_look() -> None:
    found = software("CUDA 13.0")
    found.packages["onnxruntime-gpu"] = Package("1.26.0", "CUDA 12.8")
    check = bad(examine(with_gpu(), found, ON_GPU))["onnxruntime on the GPU"]
    assert check.status == "warn"
    assert "built for CUDA 12, torch for CUDA 13" in check.message
    assert ">=1.28" in (check.remedy or "")


def test_a_broken_driver_fails_and_an_absent_one_does_not() -> None:
    mismatch = Reason("version_mismatch", "versions differ", "reboot")
    broken = msgspec.structs.replace(build_machine(), nvml=Nvml(False, mismatch))
    found = examine(broken, software(), WORKING)
    assert found.failed and bad(found)["driver"].remedy == "reboot"
    naked = Reason("gpu_without_driver", "an NVIDIA GPU without a driver", "install it")
    found = examine(
        msgspec.structs.replace(build_machine(), nvml=Nvml(False, naked)), software(), WORKING
    )
    assert bad(found)["driver"].remedy == "install it" and found.failed


def test_a_container_may_see_cards_without_their_driver() -> None:
    naked = Reason("gpu_without_driver", "an NVIDIA GPU without a driver", "use --gpus all")
    inside = Os("Linux", "6", None, "docker")
    machine = msgspec.structs.replace(build_machine(), nvml=Nvml(False, naked), os=inside)
    found = examine(machine, software(), WORKING)
    assert bad(found)["driver"].status == "warn" and not found.failed


def test_memory_is_that_of_the_container() -> None:
    limited = Memory(512 << 30, 7 << 30, 8 << 30, 0, 0)
    found = examine(msgspec.structs.replace(build_machine(), memory=limited), software(), WORKING)
    assert "memory" not in bad(found)
    assert next(c.message for c in found.checks if c.name == "memory") == "7 GiB of 8 GiB free"


def test_little_memory_and_variables_are_worth_a_look() -> None:
    full = msgspec.structs.replace(build_machine(), memory=Memory(100, 5, None, 0, 0))
    found = examine(full, software(environment={"OMP_NUM_THREADS": "1"}), WORKING)
    assert set(bad(found)) == {"memory", "environment"}
    assert not found.failed


def test_a_silent_interpreter_is_one_failure_not_four() -> None:
    silent = software(unavailable={"python": "~/p ended"}, python="")
    found = examine(build_machine(), silent, {})
    assert [c.name for c in found.checks if c.status == FAIL] == ["python"]
    assert [level.name for level in found.stack if level.status == FAIL] == ["python"]


def test_the_text_shows_stack_checks_and_remedies() -> None:
    text = doctor_text(examine(with_gpu(), software(), WORKING))
    assert re.search(r"^python +ok +3\.11\.7", text, re.MULTILINE)
    broken = r"^  torch +WARN +2\.13\.0, CPU build +runs on cpu; not on the GPU$"
    assert re.search(broken, text, re.MULTILINE)
    assert re.search(r"^FAIL  torch on the GPU", text, re.MULTILINE)
    assert "-> ~/v/bin/python -m pip install" in text
    assert text.endswith("1 failed, 1 warning.")
    assert max(map(len, text.splitlines())) <= 100 or "://" in text


def test_in_a_narrow_terminal_the_stack_is_shortened() -> None:
    found = examine(with_gpu(), software(), WORKING)
    long = {"found": 30 * "1.", "note": 30 * "2 "}
    stack = [msgspec.structs.replace(level, **long) for level in found.stack]
    text, _, _ = doctor_text(msgspec.structs.replace(found, stack=stack), 60).partition("Checks")
    assert max(map(len, text.splitlines())) <= 60
    assert re.search(r"^  torch +WARN +1\.1\.1\.[1.]*~ +2 2 2 [2 ]*~$", text, re.MULTILINE)
