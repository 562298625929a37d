"""The environment that a worker gets."""

import dataclasses
import os
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from builders import machine

from workbench.engine.opening import settings_of
from workbench.planning.request import Request
from workbench.pool import worker_process
from workbench.pool.worker_process import WorkerKey, WorkerSettings
from workbench.records.comparison import Side

SETTINGS = WorkerSettings("the-run", "python", 3, 1 << 30, hide_gpus=True)


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")


def _environment(backend: str, threads: int | None = None) -> dict[str, str]:
    key = WorkerKey("cpu", backend, threads)
    return worker_process._environment(key, "cpu", SETTINGS, Side("", ""), Path("/scratch"))


def test_a_function_has_the_threads_of_its_case_and_sees_no_gpu() -> None:
    found = _environment("python", 2)
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "LOKY_MAX_CPU_COUNT", "PJRT_NPROC"):
        assert found[name] == "2"
    assert (found["CUDA_VISIBLE_DEVICES"], found["TMPDIR"]) == ("", "/scratch")
    assert "NVIDIA_TF32_OVERRIDE" not in found
    for name in ("XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH"):
        assert name in found, "two sides of `ab` share a GPU"


def test_a_command_has_the_users_environment_and_the_mark_of_the_run() -> None:
    assert _environment("command") == {**os.environ, "WORKBENCH_RUN_ID": "the-run"}


def test_a_command_finds_the_programs_of_the_users_environment_first() -> None:
    settings = dataclasses.replace(SETTINGS, python="/home/me/.venv/bin/python")
    other = Side("B", "", python="/b/bin/python")
    for side, folder in ((Side("", ""), "/home/me/.venv/bin"), (other, "/b/bin")):
        key = WorkerKey("cpu", "command")
        found = worker_process._environment(key, "cpu", settings, side, Path("/scratch"))
        assert found["PATH"].split(":")[0] == folder


def test_compiled_code_lasts_for_the_run_where_the_state_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    kept = str(worker_process.compiled_folder())
    assert _environment("torch")["TORCHINDUCTOR_CACHE_DIR"] == kept
    (tmp_path / "state").touch()
    assert _environment("torch")["TORCHINDUCTOR_CACHE_DIR"] == "/scratch/compiled"


def test_a_compilation_that_was_killed_costs_only_what_it_was_writing() -> None:
    headers = worker_process.compiled_folder() / "precompiled_headers"
    headers.mkdir(parents=True)
    whole, half = headers / "a.h.gch", headers / "b.h.gch"
    half.touch()
    assert worker_process.knows_compiler()
    worker_process.drop_compiled(worker_process.compiled_folder(), time.time() + 60)  # begun later
    assert half.exists()
    worker_process.drop_compiled(worker_process.compiled_folder(), time.time() - 60)
    assert not half.exists() and not worker_process.knows_compiler()
    whole.touch()
    os.utime(whole, (1_000, 1_000))
    worker_process.drop_compiled(worker_process.compiled_folder(), 2_000.0)
    assert worker_process.knows_compiler()


def test_torch_finds_the_headers_of_earlier_runs(tmp_path, monkeypatch) -> None:
    worker_process.keep_headers(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    assert Path(default_cache_dir()).samefile(worker_process.compiled_folder())


def test_gpus_that_admit_one_process_are_known_from_the_machine() -> None:
    here = machine("cuda:0", "cuda:1")
    modes = ("exclusive_process", "default")
    gpus = [
        msgspec.structs.replace(g, compute_mode=m) for g, m in zip(here.gpus, modes, strict=True)
    ]
    found = settings_of(Request(), msgspec.structs.replace(here, gpus=gpus), "run")
    assert found.exclusive == {"cuda:0"}


@pytest.mark.parametrize(("size", "kept"), [(1 << 21, True), (4096, False)])
def test_a_header_that_was_only_opened_is_removed(size: int, kept: bool) -> None:
    header = worker_process.compiled_folder() / "precompiled_headers" / "a.h.gch"
    header.parent.mkdir(parents=True)
    header.write_bytes(bytes(size))
    began = time.time() - 100
    os.utime(header, (began + 10, began + 10))
    worker_process.drop_compiled(worker_process.compiled_folder(), began)
    assert header.exists() == kept
