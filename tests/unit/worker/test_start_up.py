"""Set-up costs: imports are a phase of their own, and what a case alone in a process would pay."""

import builtins
import time
from pathlib import Path

import pytest

from workbench.worker.start_up import ColdStart, LoadingSetup, StartUp, imports_timed


class Clock:
    """A clock that the slow module moves on."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_slow_import_counts_as_loading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "loads_slowly.py").write_text("import time; time.perf_counter.now_s += 0.1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(time, "perf_counter", Clock())
    setup = LoadingSetup()
    with setup.phase("build"):
        import loads_slowly  # noqa: F401
    assert setup.seconds["loading"] >= 0.1 > setup.seconds["build"]
    before_s = setup.seconds["loading"]
    with setup.phase("transfer"):
        pass
    assert setup.seconds["loading"] == before_s


def test_a_module_that_imports_another_counts_once(monkeypatch, tmp_path) -> None:
    (tmp_path / "inner_module.py").touch()
    (tmp_path / "outer_module.py").write_text("import inner_module")
    monkeypatch.syspath_prepend(tmp_path)
    with imports_timed() as spent_s:
        import outer_module  # noqa: F401
    assert len(spent_s) == 1


def test_a_phase_that_fails_leaves_the_import_statement_as_it_was() -> None:
    usual = builtins.__import__
    with pytest.raises(KeyError), LoadingSetup().phase("build"):
        raise KeyError
    assert builtins.__import__ is usual


def test_the_first_case_of_a_process_has_paid_for_everything() -> None:
    measured = StartUp({"build": 3.0, "compile": 2.0}, 1.0)
    alone = ColdStart().alone(measured, StartUp({"build": 1.0}, 0.1))
    assert alone == StartUp({"build": 1.0, "compile": 2.0, "loading": 2.0}, 1.0)
    assert alone.seconds == measured.seconds


def test_later_cases_get_what_the_first_one_paid_for_loading() -> None:
    process = ColdStart()
    process.alone(StartUp({"build": 3.0, "compile": 2.0}, 1.0), StartUp({"build": 1.0}, 0.1))
    later = process.alone(StartUp({"build": 0.5, "compile": 4.0}, 0.2), StartUp({}, 0.0))
    assert later.phases == {"build": 0.5, "compile": 4.0, "loading": 2.0}, "each compiles alone"
    assert later.first_step_s == pytest.approx(0.9), "the longer one: both load kernels"


def test_a_second_preparation_that_took_longer_means_nothing_was_loaded() -> None:
    process = ColdStart()
    process.alone(StartUp({"build": 1.0}, 0.1), StartUp({"build": 2.0}, 0.3))
    later = StartUp({"build": 0.5}, 0.2)
    assert process.alone(later, later) == StartUp({"build": 0.5, "loading": 0.0}, 0.2)
