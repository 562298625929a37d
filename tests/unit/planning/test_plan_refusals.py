"""A wrong request is refused in one line that says what to do."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from plans import FIXTURES, SHIPPED, plan

from workbench import catalog
from workbench.planning.request import Request
from workbench.planning.rows import parse_settings, resolve
from workbench.planning.usage import UsageError


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_setting_is_parsed_or_refused_in_one_line(name: str, value: str) -> None:
    workload = catalog.load("matmul")
    try:
        found = parse_settings(workload, [f"{name}={value}"])
    except UsageError as error:
        assert str(error)
    else:
        assert all(1 <= n <= 65536 for n in found["n"])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(scenarios=("trainig",)), "unknown scenario 'trainig'; did you mean training?"),
        (Request(workloads=("matmull",)), "unknown workload 'matmull'; did you mean matmul?"),
        (Request(backends=("torhc",)), "unknown backend 'torhc'; did you mean torch?"),
        (Request(precisions=("fp23",)), "unknown precision 'fp23'; did you mean fp32?"),
        (Request(devices=("cuda0",)), "unknown device 'cuda0'; did you mean cuda:0?"),
        (Request(workloads=("zzz",)), "unknown workload 'zzz'. Choices: "),
        (
            Request(workloads=("spin",), settings=("m=1",)),
            "parameter of spin: 'm'; did you mean ms?",
        ),
        (Request(workloads=("spin",), settings=("ms",)), "--set takes name=value, not 'ms'"),
        (Request(workloads=("spin",), settings=("ms=x",)), "ms takes a number, not 'x'"),
        (Request(workloads=("spin",), settings=("ms=0",)), "ms must be between 0.001 and 60000"),
        (Request(workloads=("spin",), settings=("ms=nan",)), "ms must be between 0.001 and 60000"),
        (Request(workloads=("spin",), settings=("trouble=big",)), "trouble is one of none, die"),
        (Request(workloads=("matmul",), settings=("n=2.5",)), "n takes a whole number, not '2.5'"),
        (
            Request(workloads=("matmul",), settings=(f"n={10**400}",)),
            "n must be between 1 and 65536",
        ),
        (Request(workloads=("matmul",), settings=("n=0",)), "n must be between 1 and 65536"),
        (Request(workloads=("matmul",), batch=(4,)), "matmul has no batch; leave out --batch"),
        (
            Request(workloads=("digits",), batch=(0,)),
            "--batch must be between 1 and 1000000, not 0",
        ),
        (Request(workloads=("digits",), batch=(1_000_001,)), "--batch must be between 1 and"),
        (Request(workloads=("matmul",), settings=("n=9..3",)), "n takes a rising range"),
        (Request(workloads=("matmul",), settings=("n=1,x",)), "n takes whole numbers such as"),
        (
            Request(workloads=("matmul",), settings=("n=64..99999",)),
            "n must be between 1 and 65536",
        ),
        (Request(scenarios=("branching",), batch=(1, 8)), "one value per parameter"),
        (Request(every=True, modes=("nhcw",)), "unknown mode 'nhcw'; did you mean nhwc?"),
        (Request(every=True, thorough=True), "--all and --thorough exclude each other"),
        (Request(workloads=("digits",), force=True), "--force belongs to --largest-batch"),
        (
            Request(workloads=("digits",), largest_batch=True, batch=(1, 2)),
            "--largest-batch starts from one --batch",
        ),
        (
            Request(workloads=("gemm",), settings=("m=1..65536", "n=1..65536", "k=1..65536")),
            "that makes 4,913 rows; 512 at most",
        ),
        (Request(every=True, batch=(1,)), "--all runs every workload with its defaults"),
        (Request(budget_s=0.5), "--budget must be between 1 and 86400 s"),
        (Request(budget_s=float("nan")), "--budget must be between 1 and 86400 s"),
        (Request(budget_s=float("inf")), "--budget must be between 1 and 86400 s"),
    ],
    ids=lambda value: "" if isinstance(value, Request) else value[:40],
)
def test_what_cannot_be_met_is_refused_in_one_line_with_the_choices(
    request_: Request, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(catalog.ENV, str(FIXTURES))
    with pytest.raises(UsageError) as caught:
        resolve(request_, SHIPPED)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(devices=("cuda:1",)), "no device cuda:1 here. Choices: cpu, cuda:0"),
        (Request(threads=(0,)), "--threads must be between 1 and 4096, not 0"),
        (Request(threads=(4097,)), "--threads must be between 1 and 4096, not 4097"),
        (
            Request(backends=("numpy",), precisions=("fp16",)),
            "floating_point has no candidate left with these filters. It offers: cpu/jax/",
        ),
    ],
)
def test_what_this_machine_cannot_meet_is_refused_too(request_: Request, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(replace(request_, scenarios=("floating_point",)), "cuda:0")
    assert message in str(caught.value)


def test_gpu_without_one_is_refused() -> None:
    with pytest.raises(UsageError, match="no GPU here"):
        plan(Request(scenarios=("floating_point",), devices=("gpu",)))


def test_a_setting_given_twice_is_refused_with_the_way_to_say_it() -> None:
    with pytest.raises(UsageError, match="n is given twice; write several values as n=64,128"):
        parse_settings(catalog.load("matmul"), ["n=3", "n=4"])
