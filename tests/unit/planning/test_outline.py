"""The rows of a table are announced before a workload is loaded, as its plan announces them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench import catalog
from workbench.planning import scenarios
from workbench.planning.announcing import outline, planned
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.planning.usage import UsageError

SHIPPED = scenarios.load()
LIGHT = """
import sys
import workbench.cli.main
assert "msgspec" not in sys.modules
from workbench.planning import announcing, request, scenarios
assert announcing.outline(request.Request(), *scenarios.load_with(None))
heavy = {"torch", "numpy", "textual", "psutil", "multiprocessing"} & sys.modules.keys()
assert not heavy, heavy
assert not [name for name in sys.modules if name.startswith("workloads.")]
"""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"quick": True},
        {"scenarios": ("training",), "crossover": True},
        {"all_scenarios": True, "prices": ("cpu=1", "gpu=2")},
    ],
    ids=["default", "quick", "named", "priced"],
)
def test_the_outline_of_a_table_is_what_its_plan_announces(options: dict[str, Any]) -> None:
    request = Request(**options)
    rows = resolve(request, SHIPPED)
    assert outline(request, SHIPPED) == [planned(row, request, 0.0) for row in rows]


def test_an_outline_needs_shipped_workloads_and_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({"workloads": ("matmul",)}, {"every": True}, {"batch": (8,)}):
        assert outline(Request(**options), SHIPPED) is None
    assert outline(Request(), SHIPPED, ["branching"]) is None
    with pytest.raises(UsageError, match="did you mean training"):
        outline(Request(scenarios=("trainin",)), SHIPPED)
    files = catalog.files() | {"matmul": Path("/elsewhere/matmul.py")}
    monkeypatch.setattr(catalog, "files", lambda: files)
    assert outline(Request(), SHIPPED) is None


def test_help_needs_no_documents_and_an_outline_no_workloads() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
