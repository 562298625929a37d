"""What a worker does before it loads the user's code."""

import importlib
import sys
from typing import Any

import pytest

from workloads.own import export, workload
from workloads.own.workload import WORKLOAD


class LoadedError(Exception):
    """The user's code would be imported now."""


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was loaded, in order."""
    found: list[str] = []

    def subject(code: Any) -> Any:
        found.append("subject")
        raise LoadedError

    monkeypatch.setattr(export, "preload", lambda folder: found.append("exporter"))
    monkeypatch.setattr(workload, "subject_of", subject)
    return found


@pytest.mark.parametrize(
    ("question", "details", "expected"),
    [
        ("export", {"batches": [1]}, ["exporter", "subject"]),
        ("save", {"onnx_file": "model.onnx"}, ["exporter", "subject"]),
        ("save", {"onnx_file": ""}, ["subject"]),
    ],
)
def test_what_the_exporter_imports_precedes_the_users_code(
    code, order: list[str], question: str, details: dict[str, Any], expected: list[str]
) -> None:
    with pytest.raises(LoadedError):
        WORKLOAD.consult(question, code=code("modules:linear", "torch").as_text(), **details)
    assert order == expected


def test_a_users_file_does_not_hide_what_the_exporter_imports(tmp_path, monkeypatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(importlib, "import_module", imported.append)
    export.preload(str(tmp_path))
    assert imported == [], "importing takes a second, so only where it is hidden"
    (tmp_path / "onnx.py").touch()
    (tmp_path / "onnxscript").mkdir()
    (tmp_path / "onnxscript" / "__init__.py").touch()
    export.preload(str(tmp_path))
    assert imported == ["onnx", "onnxscript"]


def test_a_missing_package_is_named_only_where_it_is_needed(tmp_path, monkeypatch) -> None:
    (tmp_path / "onnxscript.py").write_text("raise ValueError('the wrong one')")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    export.preload(str(tmp_path))
