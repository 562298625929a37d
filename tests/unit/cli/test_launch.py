"""The command line writes results when the screens have closed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import scenes

from workbench.cli.launch import _finish
from workbench.planning.usage import target
from workbench.report.report import Report


@pytest.mark.parametrize("begun", [True, False])
def test_output_is_written_if_the_run_that_was_asked_for_began(tmp_path: Path, begun: bool) -> None:
    file = tmp_path / "r.json"
    asked = Report.of(scenes.cpu_only()) if begun else None
    output = target("--output", file, opened=True)
    assert _finish(Report(), asked, 1, output, samples=True) == 1
    if begun:
        assert json.loads(file.read_text())["run"]["id"] == scenes.cpu_only()[0].id
    else:
        assert not file.exists() or not file.read_text()
