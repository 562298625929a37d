"""The environment that a worker gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.pool import worker_process
from workbench.pool.worker_process import WorkerKey, WorkerSettings

SETTINGS = WorkerSettings("the-run", "python", 3, 1 << 30, hide_gpus=True)


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")


def _environment(backend: str, threads: int | None = None) -> dict[str, str]:
    key = WorkerKey("cpu", backend, threads)
    return worker_process._environment(key, "cpu", SETTINGS, Path("/scratch"))


def test_a_function_has_the_threads_of_its_case_and_sees_no_gpu() -> None:
    found = _environment("python", 2)
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"):
        assert found[name] == "2"
    assert (found["CUDA_VISIBLE_DEVICES"], found["TMPDIR"]) == ("", "/scratch")
    assert "NVIDIA_TF32_OVERRIDE" not in found


def test_a_command_has_the_users_environment_and_the_mark_of_the_run() -> None:
    import os

    assert _environment("command") == {**os.environ, "WORKBENCH_RUN_ID": "the-run"}
