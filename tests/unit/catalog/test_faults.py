"""Each value that the contract does not allow is found in a description."""

from dataclasses import replace

import pytest

from workbench.catalog import faults
from workbench.catalog.faults import BackendDescription, WorkloadDescription
from workbench.contract import Case, Parameter, Variant, Work

SIZE = Parameter("n", 4, "size", 1, 64)
SPELLED = Parameter("kernel", "copy", "kernel", choices=("copy", "triad"))
VARIANT = Variant("cpu", "numpy", "fp32")
CASE = Case("mine", "cpu", "numpy", "bf16", params={"n": 64})
WORK = Work(1e9, None, 8, "samples", 1e6)


def described(**changes: object) -> WorkloadDescription:
    fields = {
        "title": "Mine", "teaches": "A lesson.", "parameters": (SIZE, SPELLED),
        "variants": (VARIANT,), "default_batch": 8, "quick": {"n": 2, "batch": 4},
        "latency": False, "convolves": False, "isolates": False,
    }  # fmt: skip
    return WorkloadDescription(**{**fields, **changes})


def test_what_is_sound_has_no_fault() -> None:
    assert list(faults.in_workload(described())) == []
    assert list(faults.in_work(WORK)) == []
    assert list(faults.in_values(SIZE, [1, 2])) == []
    assert list(faults.in_values(SIZE, [])) == []
    assert list(faults.in_probe(replace(CASE, params={"n": 2}), CASE, (SIZE,))) == []
    assert list(faults.in_probe(None, CASE, ())) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"parameters": (SIZE, SIZE)}, "a name of its own"),
        ({"parameters": (replace(SIZE, name="two words"),)}, "a name of its own"),
        ({"parameters": (replace(SIZE, name="batch"),)}, "set default_batch instead"),
        ({"parameters": (replace(SIZE, default=65),)}, "between 1 and 64"),
        ({"parameters": (replace(SPELLED, default="none"),)}, "one of copy, triad"),
        ({"parameters": (replace(SIZE, help="\x1b[31m"),)}, "short printable texts"),
        ({"parameters": (replace(SPELLED, choices=("copy", "x" * 400)),)}, "short printable"),
        (
            {"variants": (replace(VARIANT, device_kind="tpu"),)},
            "device_kind must be one of cpu, gpu",
        ),
        ({"variants": (replace(VARIANT, precision="fp3"),)}, "precision must be one of"),
        ({"variants": (replace(VARIANT, mode="a/b"),)}, "without /"),
        ({"variants": (replace(VARIANT, backend=""),)}, "without /"),
        ({"variants": (replace(VARIANT, threads=0),)}, "threads must be between"),
        ({"quick": {"m": 1}}, "there is no parameter 'm'"),
        ({"quick": {"n": 2.5}}, "not of the type of its default"),
        ({"quick": {"n": 100}}, "between 1 and 64"),
        ({"quick": {"batch": 0}}, "batch must be a whole number"),
        ({"default_batch": None}, "default_batch must be set"),
    ],
)
def test_a_fault_of_a_workload_is_found(changes: dict[str, object], says: str) -> None:
    assert says in next(faults.in_workload(described(**changes)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"flops": -1.0}, "amounts"),
        ({"bytes_moved": 1e300}, "amounts"),
        ({"memory_bytes": float("nan")}, "amounts"),
        ({"items": 0}, "items"),
        ({"item": ""}, "items"),
        ({"transfers": "often"}, "transfers"),
        ({"ranks": 0}, "ranks"),
    ],
)
def test_a_fault_of_the_work_is_found(changes: dict[str, object], says: str) -> None:
    assert says in next(faults.in_work(replace(WORK, **changes)))


@pytest.mark.parametrize("values", [[1] * 65, ["1"], [True, 65]])
def test_a_fault_of_tuning_values_is_found(values: list[int]) -> None:
    assert next(faults.in_values(SIZE, values))


@pytest.mark.parametrize(
    "changes",
    [{"device": "cuda:0"}, {"precision": "fp32"}, {"params": {"m": 1}}, {"params": {"n": 65}},
     {"batch": 0}],
)  # fmt: skip
def test_a_fault_of_a_small_probe_is_found(changes: dict[str, object]) -> None:
    small = replace(CASE, **{"params": {"n": 1}, **changes})
    assert next(faults.in_probe(small, CASE, (SIZE,)))


@pytest.mark.parametrize(
    "changes",
    [
        {"install": "\x1b[31m"},
        {"newest": "x" * 400},
        {"platforms": ("\x1b[31m",)},
        {"thread_variables": ("A=B",)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_fault_of_a_backend_is_found(changes: dict[str, object]) -> None:
    fields = {
        "install": "", "packages": (), "thread_variables": ("OMP_NUM_THREADS",), "oldest": "",
        "newest": "", "platforms": ("CUDA",), "threads_fixed_at_import": True,
        "own_environment": False,
    }  # fmt: skip
    assert not list(faults.in_backend(BackendDescription(**fields)))
    assert next(faults.in_backend(BackendDescription(**{**fields, **changes})))
