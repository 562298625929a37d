"""Commands about the machine, with parts that stand in for the machine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from builders import machine
from click.testing import CliRunner

from workbench.cli.commands import doctor
from workbench.machine.packages.trials import Trial
from workbench.records.machine import Machine, Package, Software


@pytest.mark.parametrize(("mode", "at_once"), [("default", True), ("exclusive_process", False)])
def test_the_doctor_tries_one_package_after_another_on_an_exclusive_gpu(
    monkeypatch: pytest.MonkeyPatch, mode: str, at_once: bool
) -> None:
    asked: dict[str, Any] = {}

    def detect(_python: str | None) -> tuple[Machine, Software]:
        here = machine("cuda:0")
        gpu = msgspec.structs.replace(here.gpus[0], compute_mode=mode)
        packages = {"torch": Package("2.13.0", "CUDA 13.0")}
        return msgspec.structs.replace(here, gpus=[gpu]), Software("3.11", "python", packages, {})

    def tried(*_: Any, **options: Any) -> dict[str, Trial]:
        asked.update(options)
        return {}

    monkeypatch.setattr("workbench.machine.detect", detect)
    monkeypatch.setattr("workbench.machine.packages.trials.try_packages", tried)
    CliRunner().invoke(doctor, [], catch_exceptions=False)
    assert asked == {"at_once": at_once}
