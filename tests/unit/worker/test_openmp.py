"""Two kinds of OpenMP in one process are found, two copies of one kind are none."""

from io import StringIO

import pytest

from workbench.worker import openmp, worker

MAPS = "7f r-xp 1 /a/libgomp-123.so.1\n7f r-xp 1 /b/libgomp.so.1\n"


@pytest.mark.parametrize(
    ("more", "clash"), [("", {}), ("7f r 1 /b/libiomp5.so\n", {"OpenMP": "libgomp and libiomp"})]
)
def test_two_kinds_of_openmp_in_one_process_are_found(monkeypatch, more, clash) -> None:
    monkeypatch.setattr(openmp, "open", lambda *_: StringIO(MAPS + more), raising=False)
    assert openmp.clashing_runtimes() == clash


def test_without_proc_no_clash_is_found(monkeypatch) -> None:
    def missing(name: str) -> StringIO:
        raise FileNotFoundError(name)

    monkeypatch.setattr(openmp, "open", missing, raising=False)
    assert openmp.clashing_runtimes() == {}


def test_a_worker_says_so_in_its_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "clashing_runtimes", lambda: {"OpenMP": "libgomp and libomp"})
    found = worker.Worker("python", "cpu").hello()["versions"]
    assert found["OpenMP"] == "libgomp and libomp"
