"""Which workers start before the first race, and when."""

from dataclasses import replace

import msgspec
import pytest
from builders import case, machine
from fakes import CPU_A
from preparing import Row

from workbench.engine.races import Races
from workbench.engine.workers import start_workers, worker_key
from workbench.records.machine import Package


@pytest.mark.parametrize(
    ("starting_s", "table", "started"),
    [
        (5.0, [CPU_A], True),
        (30.0, [CPU_A], True),  # the table needs it anyway
        (5.0, [], True),
        (30.0, [], False),  # workers that only ceilings need get no more than their share
        (70.0, [CPU_A], False),
    ],
)
def test_ceilings_wait_for_workers_that_the_table_needs_too(starting_s, table, started) -> None:
    row = Row(CPU_A)
    row.pool.starting_s = starting_s
    rows = [replace(row.plan, cases=table)]
    assert start_workers([row.plan], rows, row.context, 0.12) is started


def test_a_worker_that_is_late_keeps_no_other_from_starting() -> None:
    row = Row(replace(CPU_A, backend="numpy"), CPU_A)
    row.pool.starting_s = 30.0
    table = [replace(row.plan, cases=[CPU_A])]  # which does not need NumPy
    assert not start_workers([row.plan], table, row.context, 0.12)
    assert list(row.pool.import_s) == [worker_key(CPU_A)]


def test_a_resumed_run_whose_missing_workloads_are_gone_starts_no_worker() -> None:
    row = Row(CPU_A)
    Races(row.context).start_workers([])
    assert row.pool.import_s == {}


def test_a_gpu_that_admits_one_process_gets_one_worker_before_the_races() -> None:
    gpu = case("cuda:0-a")
    row = Row(gpu, other := replace(gpu, backend="onnxruntime"))
    here = machine("cuda:0")
    exclusive = [msgspec.structs.replace(here.gpus[0], compute_mode="exclusive_process")]
    for gpus, started in ((exclusive, [gpu]), (here.gpus, [gpu, other])):
        row.detected(msgspec.structs.replace(here, gpus=gpus))
        row.pool.deadlines.clear()
        assert start_workers([row.plan], [row.plan], row.context, 1.0)
        assert list(row.pool.deadlines) == [worker_key(each) for each in started]


@pytest.mark.parametrize(
    ("cores", "counted", "together"),
    [
        (1, False, [["cpu"], ["cpu"], ["cuda:0"]]),
        (2, False, [["cpu", "cpu"], ["cuda:0"]]),
        (2, True, [["cpu"], ["cuda:0"], ["cpu"]]),  # a row takes their start-up times for its own
        (4, True, [["cpu", "cuda:0"], ["cpu"]]),
    ],
)
def test_workers_start_at_once_where_there_are_cores_for_them(cores, counted, together) -> None:
    row = Row(CPU_A, replace(CPU_A, backend="numpy"), case("cuda:0-a"))
    if counted:
        row.plan.shares_workers = True
    here = machine("cuda:0")
    cpu = msgspec.structs.replace(here.cpu, effective_cores=cores)
    row.detected(msgspec.structs.replace(here, cpu=cpu))
    assert start_workers([row.plan], [row.plan], row.context, 1.0)
    assert row.pool.together == together


def test_ceilings_start_no_worker_for_a_refused_case() -> None:
    gpu = case("cuda:0-a")
    row = Row(gpu)
    row.detected(machine("cuda:0"), {"torch": Package("2.9", "CPU build")})
    assert start_workers([row.plan], [], row.context, 0.12)
    assert row.pool.deadlines == {}
