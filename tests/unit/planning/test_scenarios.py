"""The shipped rows name only what there is, and each asks a question of its own."""

import re
from pathlib import Path

import msgspec
import pytest
from builders import machine

from workbench import catalog
from workbench.assets import path as asset
from workbench.contract import PRECISIONS
from workbench.planning import scenarios
from workbench.planning.cases import fill_cases
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.planning.scenario import Quick, Scenario

SHIPPED = scenarios.load()
TABLE = [row for row in SHIPPED.values() if not row.on_request]
each_row = pytest.mark.parametrize("row", SHIPPED.values(), ids=SHIPPED)

MINIMAL = """
[[scenario]]
id = "one"
title = "One"
question = "Which?"
textbook = "cpu"
workload = "matmul"
objective = "throughput"
precisions = ["fp32"]
"""


def test_the_textbooks_table_is_complete_and_in_its_order() -> None:
    assert [(row.id, row.textbook) for row in TABLE] == [
        ("training", "gpu"),
        ("realtime", "cpu"),
        ("floating_point", "gpu"),
        ("prototyping", "cpu"),
        ("convolution", "gpu"),
        ("branching", "cpu"),
    ]


@each_row
def test_a_row_has_candidates_on_both_devices_at_admissible_precisions(row: Scenario) -> None:
    offered = catalog.load(row.workload).variants
    assert {*row.precisions, *row.reference_only} <= set(PRECISIONS)
    assert not set(row.precisions) & set(row.reference_only)
    for kind in ("cpu", "gpu"):
        assert any(v.device_kind == kind and v.precision in row.precisions for v in offered)


@each_row
def test_a_question_names_no_size_that_quick_or_a_crossover_changes(row: Scenario) -> None:
    names = {*row.params, "batch"} & {*row.quick.params, row.size.name if row.size else ""}
    for name in names:
        assert not re.search(rf"(\d|hundred|thousand) {name}\b", row.question)


@each_row
def test_an_objective_of_tails_goes_with_a_workload_of_single_steps(row: Scenario) -> None:
    assert row.objective != "latency_p99" or catalog.load(row.workload).latency


@each_row
def test_the_textbooks_answer_has_a_source_and_the_row_a_size(row: Scenario) -> None:
    assert row.textbook in ("cpu", "gpu")
    assert row.source
    assert row.size is not None and row.size.low < row.size.high
    natural = row.batch if row.size.name == "batch" else row.params[row.size.name]
    assert row.size.low <= natural <= row.size.high


def test_the_shipped_file_keeps_the_rules_for_a_users_own() -> None:
    assert scenarios.load(asset("scenarios.toml")) == SHIPPED


@each_row
def test_a_row_reads_well_in_a_table(row: Scenario) -> None:
    assert len(row.title) <= 42
    assert row.question.endswith("?")


def test_no_two_rows_share_workload_and_parameters_at_either_size() -> None:
    for rows in (SHIPPED.values(), [row.quickened() for row in SHIPPED.values()]):
        asked = [(row.workload, row.batch, tuple(sorted(row.params.items()))) for row in rows]
        assert len(set(asked)) == len(asked)


@each_row
def test_the_quick_variant_is_the_same_question_and_never_larger(row: Scenario) -> None:
    quick = row.quickened()
    same = ("id", "title", "question", "textbook", "workload", "objective")
    assert all(getattr(quick, name) == getattr(row, name) for name in same)
    assert (quick.precisions, quick.reference_only) == (row.precisions, row.reference_only)
    for name, value in quick.params.items():
        if isinstance(value, (int, float)) and name in row.params:
            assert value <= row.params[name]
    assert (quick.batch or 0) <= (row.batch or 0)
    assert quick.quickened() == quick


@each_row
def test_a_row_can_be_planned_with_and_without_a_gpu(row: Scenario) -> None:
    for gpus in ((), ("cuda:0",)):
        request = Request(scenarios=(row.id,))
        (plan,) = resolve(request, SHIPPED)
        fill_cases([plan], request, machine(*gpus), installed=("xgboost",))
        assert {case.device for case in plan.cases} == {"cpu", *gpus}
        work = [plan.workload.work(case) for case in plan.cases]
        assert all(w.items > 0 and w.memory_bytes > 0 and (w.flops or 1) > 0 for w in work)
        assert len({w.item for w in work}) == 1


def test_a_row_without_quick_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINIMAL)
    (row,) = scenarios.load(tmp_path / "mine.toml").values()
    assert row.quickened() == row
    assert (row.threads, row.weight, row.max_error) == (("all",), 1.0, None)


def test_quick_replaces_what_it_names_and_keeps_the_rest() -> None:
    row = Scenario(
        **{
            **msgspec.structs.asdict(SHIPPED["training"]),
            "params": {"image": 32, "depth": 3},
            "batch": 64,
            "quick": Quick(params={"image": 16}, batch=8),
        }
    )
    assert (row.quickened().params, row.quickened().batch) == ({"image": 16, "depth": 3}, 8)
