"""The commands about libraries and the machine, and what all commands start with."""

import json
import sys
from typing import Any

import pytest
from builders import machine
from click.testing import CliRunner
from msgspec.structs import replace

from workbench import catalog
from workbench.cli.commands import ceilings, doctor
from workbench.cli.main import cli, main
from workbench.machine.packages.trials import Trial
from workbench.planning.usage import UsageError
from workbench.records.machine import Machine, Package, Software


def test_a_broken_backend_is_named_and_the_others_are_listed(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "_backends").mkdir()
    (tmp_path / "_backends" / "mine.py").write_text("1 / 0")
    monkeypatch.setenv(catalog.ENV, str(tmp_path))
    cli.main(["list", "--backends", "--json"], standalone_mode=False)
    listed = json.loads(capsys.readouterr().out)
    assert "numpy" in [each["name"] for each in listed["backends"]]
    assert list(listed["broken"]) == ["mine"]
    cli.main(["list", "--backends"], standalone_mode=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("mine: cannot be used: mine.py cannot be used: ZeroDivisionError")


def test_ceilings_take_several_devices_in_one_option() -> None:
    context = ceilings.make_context("ceilings", ["--device", "cpu,gpu", "--device", "cuda:1"])
    assert context.params["devices"] == ("cpu", "gpu", "cuda:1")


def test_a_closed_stdin_is_an_empty_one(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    main(["--version"])
    with sys.stdin as stdin:
        assert not stdin.isatty() and stdin.read() == ""
    assert capsys.readouterr().out.startswith("workbench ")


@pytest.mark.parametrize(("mode", "at_once"), [("default", True), ("exclusive_process", False)])
def test_the_doctor_tries_one_package_after_another_on_an_exclusive_gpu(
    monkeypatch: pytest.MonkeyPatch, mode: str, at_once: bool
) -> None:
    asked: dict[str, Any] = {}

    def detect(_python: str | None) -> tuple[Machine, Software]:
        here = machine("cuda:0")
        gpu = replace(here.gpus[0], compute_mode=mode)
        packages = {"torch": Package("2.13.0", "CUDA 13.0")}
        return replace(here, gpus=[gpu]), Software("3.11", "python", packages, {})

    def tried(*_: Any, **options: Any) -> dict[str, Trial]:
        asked.update(options)
        return {}

    monkeypatch.setattr("workbench.machine.detect", detect)
    monkeypatch.setattr("workbench.machine.packages.trials.try_packages", tried)
    CliRunner().invoke(doctor, [], catch_exceptions=False)
    assert asked == {"at_once": at_once}


def test_all_gpus_needs_one_before_any_package_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine(), Software("3.11", "python", {}, {})
    monkeypatch.setattr("workbench.machine.detect", lambda _: here)
    monkeypatch.setattr("workbench.machine.packages.trials.try_packages", pytest.fail)
    with pytest.raises(UsageError, match="no GPU"):
        cli.main(["doctor", "--all-gpus"], standalone_mode=False)
