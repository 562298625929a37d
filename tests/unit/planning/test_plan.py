"""A checked request becomes rows and candidates, and what cannot be met is refused."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from builders import machine
from plans import FIXTURES, SHIPPED, plan

from workbench import catalog
from workbench.contract import Case, Variant
from workbench.planning.announcing import planned
from workbench.planning.cases import fewer_threads, fill_cases, share_workers
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.planning.scenario import Limits
from workbench.planning.usage import UsageError
from workbench.records.machine import GpuProcess


def test_by_default_all_scenarios_are_raced_in_their_order() -> None:
    rows = plan(Request())
    table = [name for name, row in SHIPPED.items() if not row.on_request]
    assert [row.scenario.id for row in rows] == table
    assert all(row.cases for row in rows)


@pytest.mark.parametrize(
    ("gpus", "quick", "fresh", "shares"),
    [
        ((), True, True, True),
        ((), False, True, True),
        ((), True, False, False),  # ceilings use the workers before any row
        (("cuda:0",), True, True, True),  # a start there takes much of a quick run
        (("cuda:0",), False, True, False),
    ],
)
def test_a_row_that_counts_start_ups_shares_workers(gpus, quick, fresh, shares) -> None:
    rows = plan(Request(quick=quick), *gpus)
    share_workers(rows, quick=quick, fresh=fresh)
    sharing = [row.scenario.id for row in rows if row.shares_workers]
    assert sharing == ["prototyping"] * shares


def test_only_gpus_that_ranks_can_use_count_for_the_number_of_ranks() -> None:
    (row,) = plan(Request(workloads=("scaling",)), "cuda:0", "xpu:0")
    worlds = {case.tuning["world"] for case in row.cases if case.device_kind == "gpu"}
    assert worlds == {1}


def test_those_on_request_race_by_name_or_with_all() -> None:
    rows = plan(Request(all_scenarios=True))
    assert [row.scenario.id for row in rows] == list(SHIPPED)
    (row,) = plan(Request(scenarios=("tiny_models",)))
    assert row.scenario.on_request


def test_without_names_only_the_users_own_scenarios_race() -> None:
    def names(*own: str, **options: Any) -> list[str]:
        rows = resolve(Request(scenario_file="mine.toml", **options), SHIPPED, own)
        return [row.scenario.id for row in rows]

    assert names("branching", "tiny_models") == ["branching"]
    assert names("branching", "tiny_models", all_scenarios=True) == ["branching", "tiny_models"]
    assert names("branching", scenarios=("realtime", "branching")) == ["realtime", "branching"]
    with pytest.raises(
        UsageError, match="all scenarios are on request only: add --all or name some of"
    ):
        names("tiny_models", "streaming")


def test_a_row_is_reproduced_by_its_name_and_from_its_file() -> None:
    request = Request(all_scenarios=True, scenario_file="my own.toml", quick=True)
    rows = resolve(request, SHIPPED, ["branching"])
    fill_cases(rows, request, machine())
    assert planned(rows[0], request, 0.0).reproduce == (
        "workbench advise branching --quick --budget 60 --scenarios 'my own.toml'"
    )


def limited(threads: tuple[int | str, ...], most: int, request: Request) -> set[int | None]:
    row = msgspec.structs.replace(
        SHIPPED["branching"],
        workload="train_mlp",
        params={},
        batch=None,
        threads=threads,
        limits=Limits(threads=most),
    )
    rows = resolve(request, {"branching": row})
    fill_cases(rows, request, machine())
    return {case.threads for case in rows[0].cases}


def test_more_threads_than_the_limit_are_not_even_started() -> None:
    assert limited((1, 4, "all"), 2, Request()) == {1, 2}
    assert limited(("all",), 64, Request()) == {8}
    assert limited((1,), 2, Request(threads=(1, 2, 4))) == {1, 2}
    with pytest.raises(UsageError, match="branching allows at most 2"):
        limited((1,), 2, Request(threads=(4, 8)))


def test_cost_needs_prices() -> None:
    row = msgspec.structs.replace(SHIPPED["branching"], objective="cost")
    with pytest.raises(UsageError, match="branching compares cost: add --price"):
        resolve(Request(), {"branching": row})
    assert resolve(Request(prices=("cpu=1", "gpu=2")), {"branching": row})


def test_energy_needs_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    row = msgspec.structs.replace(SHIPPED["branching"], objective="energy")
    counter = "workbench.machine.host.readings.package_energy_j"
    monkeypatch.setattr(counter, lambda: (None, "there is no counter"))
    with pytest.raises(UsageError, match="branching compares energy: there is no counter"):
        resolve(Request(), {"branching": row})
    monkeypatch.setattr(counter, lambda: (1.0, ""))
    assert resolve(Request(), {"branching": row})


@pytest.mark.parametrize("objective", ["memory", "energy"])
def test_no_gpu_races_for_what_is_compared_on_the_cpu_only(objective, monkeypatch) -> None:
    counter = "workbench.machine.host.readings.package_energy_j"
    monkeypatch.setattr(counter, lambda: (1.0, ""))
    row = msgspec.structs.replace(SHIPPED["branching"], objective=objective)
    rows = resolve(Request(), {"branching": row})
    fill_cases(rows, Request(), machine("cuda:0"))
    assert {case.device for case in rows[0].cases} == {"cpu"}
    with pytest.raises(UsageError, match=f"branching compares {objective} on the CPU only"):
        fill_cases(rows, Request(devices=("gpu",)), machine("cuda:0"))


def test_a_scenario_without_a_batch_has_that_of_its_workload() -> None:
    row = msgspec.structs.replace(SHIPPED["branching"], batch=None)
    (found,) = resolve(Request(), {"branching": row})
    assert found.scenario.batch == found.workload.default_batch


def test_one_gpu_of_each_kind_is_raced() -> None:
    (row,) = plan(Request(scenarios=("floating_point",)), "cuda:0", "cuda:1")
    assert {case.device for case in row.cases} == {"cpu", "cuda:0"}
    precisions = [case.precision for case in row.cases if case.device == "cuda:0"]
    assert sorted(precisions) == ["bf16", "fp16", "fp32", "fp64", "tf32"]


def test_filters_narrow_the_field() -> None:
    (row,) = plan(Request(scenarios=("floating_point",), precisions=("bf16",), devices=("cpu",)))
    assert [case.label for case in row.cases] == ["cpu/torch/bf16/t8"]
    with pytest.raises(UsageError, match="no candidate left"):
        plan(Request(scenarios=("floating_point",), precisions=("int8",)))


def test_thread_counts_never_exceed_the_effective_cores() -> None:
    (row,) = plan(Request(scenarios=("realtime",)))
    assert {case.threads for case in row.cases} == {2}
    (row,) = plan(Request(scenarios=("prototyping",)))
    assert {case.threads for case in row.cases} == {1, 8}


def test_a_scenario_with_more_threads_than_cores_says_what_it_runs_on() -> None:
    row = SHIPPED["prototyping"]
    rows = [msgspec.structs.replace(row, threads=n) for n in ((64, 2), (8, "all"))]
    (warning,) = fewer_threads(rows, Request(), machine())
    assert warning.message == "prototyping asks for 64 threads but only 8 cores can be used"
    assert "--threads 64" in warning.remedy
    assert not list(fewer_threads(rows, Request(threads=(64,)), machine()))
    alone = machine()
    alone = msgspec.structs.replace(
        alone, cpu=msgspec.structs.replace(alone.cpu, effective_cores=1)
    )
    (warning,) = fewer_threads([SHIPPED["realtime"]], Request(), alone)
    assert warning.message == "realtime asks for 2 threads but only 1 core can be used"


def test_modes_are_filtered_and_the_usual_way_is_called_plain() -> None:
    (row,) = plan(Request(workloads=("conv_layers",)))
    assert {case.mode for case in row.cases} == {None, "nhwc"}
    (row,) = plan(Request(workloads=("conv_layers",), modes=("plain",)))
    assert {case.mode for case in row.cases} == {None}
    (row,) = plan(Request(workloads=("conv_layers",), modes=("nhwc",)))
    assert {case.mode for case in row.cases} == {"nhwc"}
    with pytest.raises(UsageError, match="unknown mode 'nwhc'; did you mean nhwc"):
        plan(Request(workloads=("conv_layers",), modes=("nwhc",)))


def modes_of(cases: Sequence[Case], kind: str) -> set[str | None]:
    return {case.mode for case in cases if case.device_kind == kind}


def test_what_only_gpus_gain_from_races_there_alone() -> None:
    (row,) = plan(Request(scenarios=("realtime",)), "cuda:0")
    assert modes_of(row.cases, "gpu") == {None, "nhwc", "graph"}
    assert modes_of(row.refining, "gpu") == {"reduce-overhead"}
    assert modes_of([*row.cases, *row.refining], "cpu") == {None}
    (alone,) = plan(Request(scenarios=("realtime",)))
    assert [case for case in row.cases if case.device == "cpu"] == alone.cases
    assert alone.refining == []


@pytest.mark.parametrize("request_", [Request(), Request(all_scenarios=True)])
def test_a_row_starts_with_few_candidates_and_holds_none_back_on_a_cpu(request_: Request) -> None:
    for row in plan(request_, "cuda:0"):
        assert sum(case.device == "cuda:0" for case in row.cases) <= 8, row.scenario.id
        assert sum(case.device == "cpu" for case in row.cases) <= 6, row.scenario.id
        assert modes_of(row.refining, "cpu") == set()
        assert not any(case.is_compiled for case in row.cases)


def test_loaders_start_with_a_quarter_of_the_cores_unless_they_are_named() -> None:
    def counts(cases: Sequence[Case], device: str) -> set[Any]:
        return {case.tuning["loaders"] for case in cases if case.device == device}

    for request in (Request(scenarios=("training",)), Request(workloads=("train_cnn",))):
        (row,) = plan(request, "cuda:0")  # of 8 cores
        assert counts(row.cases, "cuda:0") == {2}
        eager = [case for case in row.refining if not case.is_compiled]
        assert counts(eager, "cuda:0") == {1, 4}
        assert all(case.tuning == {} for case in row.cases if case.device == "cpu")
    (named,) = plan(Request(workloads=("train_cnn",), settings=("loaders=1,3",)), "cuda:0")
    assert counts(named.cases, "cuda:0") == counts(named.cases, "cpu") == {1, 3}
    assert named.refining == []


def test_compiled_candidates_wait_for_a_leader_only_where_a_pick_is_asked_for() -> None:
    (row,) = plan(Request(scenarios=("mixed_precision",)), "cuda:0")
    compiled = {"reduce-overhead", "compile", "max-autotune"}
    assert modes_of(row.refining, "gpu") == compiled
    for request in (
        Request(workloads=("train_gpt",)),
        Request(scenarios=("mixed_precision",), modes=tuple(compiled)),
    ):
        (row,) = plan(request, "cuda:0")
        assert modes_of(row.cases, "gpu") >= compiled
        assert row.refining == []


def test_one_thread_for_each_core_joins_where_cores_run_several() -> None:
    def joining(request: Request, **changed: Any) -> set[int | None]:
        found = machine()
        cpu = msgspec.structs.replace(found.cpu, **{"usable_physical_cores": 4, **changed})
        (row,) = resolve(request, SHIPPED)
        fill_cases([row], request, msgspec.structs.replace(found, cpu=cpu))
        assert {case.threads for case in row.cases} <= {1, 8, 2}
        return {case.threads for case in row.refining}

    training = Request(scenarios=("training",))
    assert joining(training) == {4}
    assert joining(training, usable_physical_cores=8) == set()
    assert joining(training, usable_physical_cores=None) == set()
    assert joining(training, effective_cores=2) == set(), "a quota leaves each a core of its own"
    two_kinds = {"physical_cores": 8, "usable_physical_cores": 8, "efficiency_cores": 5}
    assert joining(training, **two_kinds) == {3}, "the slower cores would hold up the others"
    assert joining(training, **two_kinds | {"usable_physical_cores": 6}) == {6}, "which, is unknown"
    assert joining(training, physical_cores=4, efficiency_cores=1) == {4, 3}
    assert joining(replace(training, threads=(8,))) == set()
    assert joining(Request(workloads=("train_mlp",))) == set(), "no pick is asked for"


def test_settings_replace_parameters() -> None:
    (row,) = plan(Request(scenarios=("floating_point",), settings=("n=128",)))
    assert {case.params["n"] for case in row.cases} == {128}


@pytest.mark.parametrize(
    "use", [{"processes": [GpuProcess(1, None)]}, {"processes": [], "utilization_percent": 98.0}]
)
def test_of_several_equal_gpus_an_idle_one_races(use: dict[str, Any]) -> None:
    rows = resolve(Request(scenarios=("floating_point",)), SHIPPED)
    found = machine("cuda:0", "cuda:1")
    busy = msgspec.structs.replace(found.gpus[0], **use)
    fill_cases(rows, Request(), msgspec.structs.replace(found, gpus=[busy, found.gpus[1]]))
    used = {case.device for row in rows for case in row.cases}
    assert used == {"cpu", "cuda:1"}


def test_a_workload_of_gpus_alone_says_that_it_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    transfer = type(catalog.load("transfer"))
    monkeypatch.setattr(transfer, "variants", (Variant("gpu", "torch", "fp32"),))
    with pytest.raises(UsageError, match="transfer needs a GPU"):
        plan(Request(workloads=("transfer",)))


def test_copies_are_raced_without_a_gpu_too() -> None:
    (row,) = plan(Request(workloads=("transfer",)))
    assert {case.device for case in row.cases} == {"cpu"}


def test_what_is_named_twice_is_raced_once() -> None:
    rows = plan(Request(scenarios=("training", "branching", "training")))
    assert [row.scenario.id for row in rows] == ["training", "branching"]
    rows = plan(Request(workloads=("matmul", "matmul")))
    assert [row.scenario.id for row in rows] == ["matmul"]
    (row,) = plan(Request(scenarios=("branching",), devices=("cuda:0", "cuda:0", "cpu")), "cuda:0")
    assert len({case.id for case in row.cases}) == len(row.cases)


@pytest.mark.parametrize(
    ("devices", "raced"),
    [
        ((), {"cpu", "cuda:0", "cuda:2"}),
        (("cpu",), {"cpu"}),
        (("gpu",), {"cuda:0", "cuda:2"}),
        (("cuda:1",), {"cuda:1"}),
        (("cpu", "cuda:1"), {"cpu", "cuda:1"}),
        (("gpu", "cuda:1"), {"cuda:0", "cuda:1", "cuda:2"}),
    ],
)
def test_which_devices_are_raced(devices: tuple[str, ...], raced: set[str]) -> None:
    request = Request(scenarios=("floating_point",), devices=devices)
    rows = resolve(request, SHIPPED)
    here = machine("cuda:0", "cuda:1", "cuda:2")
    other = msgspec.structs.replace(here.gpus[2], name="Another GPU")
    fill_cases(rows, request, msgspec.structs.replace(here, gpus=[*here.gpus[:2], other]))
    assert {case.device for case in rows[0].cases} == raced


def test_a_gpu_that_cuda_does_not_show_is_not_raced() -> None:
    request = Request(scenarios=("floating_point",))
    rows = resolve(request, SHIPPED)
    here = machine("cuda:0")
    hidden = msgspec.structs.replace(here.gpus[0], device=None, visible=False)
    fill_cases(rows, request, msgspec.structs.replace(here, gpus=[hidden]))
    assert {case.device for case in rows[0].cases} == {"cpu"}


def test_threads_are_those_asked_for_even_beyond_the_cores() -> None:
    (row,) = plan(Request(scenarios=("prototyping",), threads=(32,)))
    assert {case.threads for case in row.cases} == {32}


def test_no_gpu_candidate_has_threads() -> None:
    rows = plan(Request(), "cuda:0")
    for case in (case for row in rows for case in row.cases):
        assert (case.threads is None) == (case.device != "cpu")


@pytest.mark.parametrize("name", ["prototyping", "realtime"])
def test_on_one_core_every_thread_count_is_the_same_candidate(name: str) -> None:
    request = Request(scenarios=(name,))
    rows = resolve(request, SHIPPED)
    here = machine()
    single = msgspec.structs.replace(here.cpu, effective_cores=1)
    fill_cases(rows, request, msgspec.structs.replace(here, cpu=single))
    assert {case.threads for case in rows[0].cases} == {1}
    assert len({case.id for case in rows[0].cases}) == len(rows[0].cases)


def test_a_plain_run_offers_every_variant_and_has_no_textbook(monkeypatch) -> None:
    monkeypatch.setenv(catalog.ENV, str(FIXTURES))
    (row,) = plan(Request(workloads=("spin",), settings=("ms=5", "gain=3")), "cuda:0")
    assert [case.label for case in row.cases] == [
        "cpu/numpy/fp32/t8",
        "cpu/numpy/bf16/t8",
        "cuda:0/numpy/fp32",
    ]
    assert row.scenario.textbook is None
    assert row.cases[0].id == "spin[ms=5.0,gain=3.0,count=1,trouble=none]/cpu/numpy/fp32/t8"


def test_several_sizes_make_a_row_each_the_outline_first() -> None:
    rows = plan(Request(workloads=("matmul",), settings=("n=64..1024",)))
    sizes = [row.scenario.params["n"] for row in rows]
    assert sizes[:3] == [64, 1024, 256]
    assert sorted(sizes) == [64, 128, 256, 512, 1024]
    assert rows[1].scenario.id == "matmul[n=1024]"
    assert rows[1].point == {"n": 1024}
    assert {case.params["n"] for case in rows[1].cases} == {1024}


def test_batches_and_sizes_make_a_grid() -> None:
    rows = plan(
        Request(workloads=("infer_mlp",), batch=(1, 8), settings=("width=64,128",), threads=(1, 2))
    )
    assert {(row.scenario.batch, row.scenario.params["width"]) for row in rows} == {
        (1, 64),
        (1, 128),
        (8, 64),
        (8, 128),
    }
    assert rows[0].scenario.id == "infer_mlp[batch=1,width=64]"
    assert {case.threads for case in rows[0].cases} == {1, 2}
    assert len({case.id for row in rows for case in row.cases}) == sum(len(r.cases) for r in rows)


def test_a_single_value_makes_no_curve() -> None:
    (row,) = plan(Request(workloads=("infer_mlp",), batch=(4,), settings=("width=64",)))
    assert (row.scenario.id, row.point) == ("infer_mlp", {})


def test_tuning_races_in_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(catalog.ENV, str(FIXTURES))
    (row,) = plan(Request(workloads=("tuned",)))
    assert [case.label for case in row.cases] == [
        "cpu/numpy/fp32/hands=1/t8",
        "cpu/numpy/fp32/hands=8/t8",
    ]
    (row,) = plan(Request(workloads=("tuned",), settings=("hands=2,3",)))
    assert [case.tuning for case in row.cases] == [{"hands": 2}, {"hands": 3}]
    assert row.scenario.id == "tuned"
    assert row.cases[0].id == "tuned[size=1]/cpu/numpy/fp32/hands=2/t8"


def test_quick_makes_a_plain_run_smaller_unless_a_size_is_given(monkeypatch) -> None:
    monkeypatch.setenv(catalog.ENV, str(FIXTURES))
    (row,) = plan(Request(workloads=("spin",), quick=True))
    assert row.scenario.params["ms"] == 0.5
    (row,) = plan(Request(workloads=("spin",), quick=True, settings=("ms=3",)))
    assert row.scenario.params["ms"] == 3


def test_all_is_every_workload_and_leaves_out_what_this_machine_cannot() -> None:
    rows = plan(Request(every=True))
    assert [row.scenario.id for row in rows] == list(catalog.files())
    assert Request(every=True).budget > Request(every=True, quick=True).budget == 180


def test_an_optional_backend_races_where_it_is_installed_or_asked_for() -> None:
    def backends(*installed: str, **asked: Any) -> set[str]:
        rows = resolve(Request(workloads=("infer_mlp",), **asked), SHIPPED)
        fill_cases(rows, Request(**asked), machine(), installed)
        return {case.backend for case in rows[0].cases}

    assert backends() == {"onnxruntime", "torch"}
    assert backends("openvino") == {"onnxruntime", "openvino", "torch"}
    assert backends(backends=("openvino",)) == {"openvino"}


def test_without_its_libraries_a_row_names_what_installs_one() -> None:
    rows = resolve(Request(scenarios=("tabular",)), SHIPPED)
    with pytest.raises(UsageError, match="tabular needs lightgbm or sklearn or xgboost: `pip"):
        fill_cases(rows, Request(scenarios=("tabular",)), machine())
    every = Request(all_scenarios=True)
    rows = resolve(every, SHIPPED)
    fill_cases(rows, every, machine())
    refused = {row.scenario.id: row.refused for row in rows if not row.cases}
    assert refused["tabular"] is not None and refused["tabular"].code == "not_installed"
    assert {*refused} == {"tabular"}
