"""The time and the worker of what is compiled or searched for."""

from dataclasses import replace

import pytest
from builders import case
from fakes import CPU_A
from preparing import Row, asked_s

from workbench.contract import Case
from workbench.engine.workers import worker_key
from workbench.pool.worker_process import WorkerKey
from workbench.records.document import SetupTimes


def test_a_search_for_convolution_plans_has_a_worker_to_itself() -> None:
    """In one process torch uses the first plan that it finds, whichever candidate found it."""
    plain = Case("infer_cnn", "cuda:0", "torch", "fp16", params={"image": 32})
    search = replace(plain, mode="cudnn-benchmark")
    assert worker_key(plain).alone == ""
    assert worker_key(search).alone == search.id


COMPILED = replace(CPU_A, workload="train_mlp", mode="compile")


@pytest.mark.parametrize(
    ("mode", "expected_s"),
    [(None, 16.0), ("compile", 30.0)],  # half of what is left; the time of a compilation
)
def test_a_compilation_has_its_time(mode: str | None, expected_s: float) -> None:
    of = replace(COMPILED, mode=mode)
    row = Row(of, end_s=32.0)
    assert row.prepare(of) == [True]
    assert asked_s(row, of) == expected_s


def test_a_compilation_has_the_time_that_one_of_its_workload_took() -> None:
    other = replace(COMPILED, params={"of": "other"})
    row = Row(COMPILED, other, end_s=50.0)
    row.report.candidates[other.id].setup = SetupTimes(compile_s=41.0)
    assert row.prepare(COMPILED) == [True]
    assert asked_s(row, COMPILED) == 41.0


@pytest.mark.parametrize(("left_s", "started"), [(29.0, False), (34.0, False), (36.0, True)])
def test_a_compilation_is_refused_where_its_time_is_not_left(left_s: float, started: bool) -> None:
    row = Row(COMPILED, end_s=left_s)
    row.pool.import_s[WorkerKey("cpu", "torch", 2)] = 5.0  # its worker has to start first
    assert row.prepare(COMPILED) == [started]
    reason = row.report.candidates[COMPILED.id].reason
    assert (reason is None) == started
    if reason is not None:
        assert (reason.code, "compiling takes" in reason.message) == ("no_time", True)


def test_what_is_not_compiled_is_never_refused_for_the_time_of_compiling() -> None:
    row = Row(CPU_A)
    row.pool.import_s[WorkerKey("cpu", "torch", 2)] = 5.0  # longer than what is left
    assert row.preparation.refusals.of(CPU_A, 4.0) is None


def test_what_compiles_for_a_gpu_has_a_worker_of_its_own() -> None:
    gpu = case("cuda:0-a")
    compiled = replace(gpu, mode="compile")
    assert worker_key(compiled).alone == compiled.id
    assert worker_key(gpu).alone == "" == worker_key(COMPILED).alone
