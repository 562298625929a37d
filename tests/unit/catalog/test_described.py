"""A user's file is asked in a child process, and whatever it does is one line with its name."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import machines
import psutil
import pytest
from checking import fails_with
from support import until
from zoo import ENDLESS, UNPLANNABLE, ZOO

from workbench import catalog
from workbench.catalog import described
from workbench.contract import Case, Host, WorkloadError
from workbench.engine.engine import _left_out
from workbench.planning.cases import fill_cases
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.planning.usage import UsageError
from workbench.process.line_process import LineProcess

OTHERS: set[psutil.Process] = set()  # left by earlier tests, which did not wait for them


@pytest.fixture(autouse=True)
def zoo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(catalog.ENV, str(ZOO))
    OTHERS.update(children())
    yield
    described.close_all()


def children() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if p not in OTHERS]


def case(name: str, **changes: object) -> Case:
    fields = {"workload": name, "device": "cpu", "backend": "numpy", "precision": "fp32"}
    return Case(**{**fields, "threads": 1, "params": {"n": 1}, **changes})


@pytest.mark.parametrize("name", UNPLANNABLE)
def test_a_workload_that_cannot_describe_its_cases_is_refused(name: str, monkeypatch) -> None:
    if name in ENDLESS:
        monkeypatch.setattr(described, "DEADLINE_S", 1.0)
    try:
        rows = resolve(Request(workloads=(name,)), {})
        machine, _ = machines.cpu_server()
        with pytest.raises(UsageError) as caught:
            fill_cases(rows, Request(workloads=(name,), devices=("cpu",)), machine)
    except WorkloadError as error:  # another busy machine: its import took too long
        assert name in ENDLESS and "no answer within" in str(error)
    else:
        assert str(caught.value).startswith(f"{name}.py: {UNPLANNABLE[name]}")
        assert len(str(caught.value)) < 800


def test_run_all_leaves_it_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: ZOO / f"{name}.py" for name in ("spins", "work_none", "exits")}
    monkeypatch.setattr(catalog, "files", lambda: few)
    request = Request(every=True, devices=("cpu",))
    rows = [row for row in resolve(request, {}) if row.workload.name in few]
    machine, _ = machines.cpu_server()
    fill_cases(rows, request, machine)
    assert [row.workload.name for row in rows if row.cases] == ["spins"]
    warned = [warning.message for warning in _left_out(rows, every=True)]
    assert [text.partition(".py")[0] for text in warned] == [
        "left out: exits",
        "left out: work_none",
    ]


def test_a_usable_one_answers_and_stands_still_meanwhile() -> None:
    workload = catalog.load("spins")  # a thread of it never rests
    asked = children()
    assert len(asked) == 1
    assert workload.work(case("spins")).items == 1
    assert workload.small_probe(case("spins")) is None
    assert until(lambda: asked[0].status() == psutil.STATUS_STOPPED, 10)
    assert catalog.load("spins").work(case("spins")).items == 1
    assert children() == asked  # one child for one file
    described.close_all()
    assert children() == []


def test_what_it_left_running_ends_with_it() -> None:
    catalog.load("forks")
    assert len(children()) == 2
    family = children()
    described.close_all()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_a_copy_that_it_forked_does_not_answer_too() -> None:
    workload = catalog.load("forks_and_returns")
    for n in range(1, 20):
        assert workload.work(case("forks_and_returns", params={"n": n})).item == "things"


def test_what_it_says_is_printable_and_short() -> None:
    escapes, huge = catalog.load("escapes"), catalog.load("huge_title")
    assert escapes.title == r"\x1b[31mred\x07"
    assert (escapes.title + escapes.teaches).isprintable()
    assert len(huge.title) < 400


def test_nothing_it_prints_reaches_this_process(capfd: pytest.CaptureFixture[str]) -> None:
    assert catalog.load("prints").title
    assert capfd.readouterr() == ("", "")


def test_the_same_job_at_another_size_is_a_small_probe() -> None:
    workload = catalog.load("probe_elsewhere")
    with pytest.raises(WorkloadError, match="small_probe\\(\\): only sizes may differ"):
        workload.small_probe(case("probe_elsewhere", precision="int8"))


def test_a_file_that_was_corrected_is_read_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(catalog.ENV, str(tmp_path))
    (tmp_path / "mine.py").write_text("1 / 0")
    with fails_with("broken_workload", r"mine\.py cannot be used: ZeroDivisionError"):
        catalog.load("mine")
    text = (ZOO / "_base.py").read_text()
    (tmp_path / "mine.py").write_text(text)
    assert catalog.load("mine").title == "Of the zoo"


def test_a_name_that_no_case_can_have_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(catalog.ENV, str(tmp_path))
    for name in (b"two words.py", b"\x1b[31m.py", b"\xff.py"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("")
    usable, broken = catalog.load_all()
    assert {"two words", r"\x1b[31m", r"\udcff"} == set(broken)
    assert all("letters, digits" in str(error) for error in broken.values())
    assert "matmul" in usable


@pytest.mark.parametrize("name", ["zoo_raises", "zoo_odd"])
def test_a_broken_backend_has_the_defaults(name: str) -> None:
    with fails_with("broken_backend") as caught:
        catalog.load_backend(name)
    assert str(caught.value).startswith(f"{name}.py")
    assert not catalog.backend(name).threads_fixed_at_import
    assert children() == []


def test_a_backend_and_tuning_values_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    fixtures = ZOO.parent
    monkeypatch.setenv(catalog.ENV, f"{fixtures / 'workloads'}:{fixtures / 'toy_backend'}")
    toy = catalog.load_backend("toy")
    assert (toy.name, toy.threads_fixed_at_import) == ("toy", True)
    assert tuple(toy.thread_variables) == ("TOY_NUM_THREADS",)
    assert catalog.load("tuned").tuning_values("hands", Host(8, 0), "cpu") == [1, 8]


def test_every_attribute_that_the_engine_reads_is_described(tmp_path, monkeypatch) -> None:
    given = {
        "packages": ("mine-py",), "own_environment": True, "oldest": "1.2", "newest": "2.0",
        "platforms": ("CUDA", "ROCm"),
    }  # fmt: skip
    lines = ["from workbench.contract import Backend", "class Mine(Backend):"]
    attributes = {"name": "mine", "install": "`pip install mine-py`", **given}
    lines += [f"    {name} = {value!r}" for name, value in attributes.items()]
    (tmp_path / "_backends").mkdir()
    (tmp_path / "_backends" / "mine.py").write_text("\n".join([*lines, "BACKEND = Mine()\n"]))
    text = (ZOO / "_base.py").read_text().replace("WORKLOAD", "Well.isolates = True\nWORKLOAD")
    (tmp_path / "apart.py").write_text(text)
    monkeypatch.setenv(catalog.ENV, str(tmp_path))
    mine = catalog.backend("mine")
    assert {name: getattr(mine, name) for name in given} == given
    assert catalog.load("apart").isolates


def test_without_a_tuning_value_the_case_has_none() -> None:
    request = Request(workloads=("tuning_empty",), devices=("cpu",))
    (row,) = rows = resolve(request, {})
    fill_cases(rows, request, machines.cpu_server()[0])
    assert row.cases and not any(case.tuning for case in row.cases)


def test_an_interrupted_question_ends_its_child(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = catalog.load("prints")
    assert workload.work(case("prints")).items == 1
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(LineProcess, "line", Mock(side_effect=KeyboardInterrupt))
        workload.work(case("prints", params={"n": 2}))
    assert children() == []
    assert workload.work(case("prints")).items == 1  # what it has answered stays known
    with pytest.raises(WorkloadError):
        workload.work(case("prints", params={"n": 2}))


def test_a_folder_that_cannot_be_looked_at_is_named_and_leaves_the_backends(monkeypatch) -> None:
    monkeypatch.delenv(catalog.ENV)
    built_in = catalog.backends()
    monkeypatch.setenv(catalog.ENV, "/" + 300 * "x")  # File name too long
    assert catalog.backends() == built_in
    with pytest.raises(WorkloadError, match="is not a folder that can be read"):
        catalog.files()
