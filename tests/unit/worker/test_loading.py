"""Imports inside a phase of a preparation are a phase of their own."""

import builtins
import time
from pathlib import Path

import pytest

from workbench.worker.start_up import LoadingSetup, imports_timed


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
