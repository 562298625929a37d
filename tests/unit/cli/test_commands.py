"""The commands about libraries, machine, ceilings and schemas, and what all commands share."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import builders
import pytest
from builders import machine
from click.testing import CliRunner
from msgspec.structs import replace
from schemas import checked_document

from workbench import catalog
from workbench.cli import headless
from workbench.cli.commands import PARTS, ceilings, doctor
from workbench.cli.main import cli, main, refuse
from workbench.engine import ceiling_store
from workbench.export.schema import PARTS as KNOWN, schema_of
from workbench.planning.usage import UsageError
from workbench.records.inspection import Trial
from workbench.records.machine import Machine, Package, Software
from workbench.records.reason import Warning
from workbench.report.report import Report
from workbench.text.toml_file import MOST_BYTES


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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a /proc")
def test_an_error_where_proc_is_not_mounted_has_that_cause(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(SystemExit) as ended:
        refuse(IndexError("list index out of range"))  # by psutil
    assert ended.value.code == 1
    said = "workbench: there is no /proc here: run `mount -t proc proc /proc`\n"
    assert capsys.readouterr().err == said


def test_a_file_that_is_too_large_to_read_is_wrong_use(tmp_path: Path, capsys) -> None:
    """It has the exit code of other unusable files, not that of a full disk."""
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(SystemExit) as ended:
        main(["list", "--scenarios", str(large)])
    assert ended.value.code == 2
    assert "it is larger than 256 KiB" in capsys.readouterr().err


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
    monkeypatch.setattr("workbench.machine.packages.software.try_packages", tried)
    CliRunner().invoke(doctor, [], catch_exceptions=False)
    assert asked == {"at_once": at_once}


def test_all_gpus_needs_one_before_any_package_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine(), Software("3.11", "python", {}, {})
    monkeypatch.setattr("workbench.machine.detect", lambda _: here)
    monkeypatch.setattr("workbench.machine.packages.software.try_packages", pytest.fail)
    with pytest.raises(UsageError, match="no GPU"):
        cli.main(["doctor", "--all-gpus"], standalone_mode=False)


@pytest.mark.parametrize(
    ("options", "measures"),
    [((), False), (("--again",), True), (("--device", "cpu"), True), (("--threads", "1"), True)],
)
def test_what_the_kept_ones_do_not_answer_is_measured(options, measures, monkeypatch) -> None:
    kept, found = builders.ceilings("cpu"), builders.machine()
    asked = []

    def run(request):
        asked.append(request)
        return SimpleNamespace(ceilings=kept, machine=found, warnings=[]), 0

    monkeypatch.setattr("workbench.machine.detect", lambda _: (found, None))
    monkeypatch.setattr(ceiling_store, "fingerprint", lambda *_: "mark")
    monkeypatch.setattr(ceiling_store, "load", lambda _: kept)
    monkeypatch.setattr(headless, "run_quietly", run)
    done = CliRunner().invoke(cli, ["ceilings", *options])
    assert done.exit_code == 0, done.exception
    assert bool(asked) == measures


def test_warnings_and_what_was_not_measured_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found, busy = builders.machine(), Warning("busy_machine", "others compute", "wait", "matmul")
    report = Report.of(builders.events({builders.case("cpu"): []}))
    report.warnings += [busy, Warning("no_journal", "this run is not kept", "set it")]
    report.ceilings = builders.ceilings("cpu")
    detected = found, Software("3.11", "python", {}, {})
    monkeypatch.setattr("workbench.machine.detect", lambda _: detected)
    monkeypatch.setattr(headless, "run_quietly", lambda _: (report, 1))
    done = CliRunner().invoke(cli, ["ceilings", "--again"])
    assert done.exit_code == 1
    assert "workbench: nothing was measured for row" in done.stderr
    assert "warning: [matmul] others compute; wait" in done.stderr
    assert "not kept" not in done.stderr, "the log of the run has said so"
    done = CliRunner().invoke(cli, ["ceilings", "--again", "--json"])
    assert checked_document(done.stdout, "ceilings")["warnings"][0]["code"] == "busy_machine"


def test_a_simulated_device_has_no_ceilings() -> None:
    done = CliRunner().invoke(cli, ["ceilings", "--device", "fake:0@8"], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert "a simulated device has no ceilings" in str(done.exception)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_run_without_a_row_does_not_fail_in_silence(options, monkeypatch) -> None:
    monkeypatch.setattr("workbench.machine.detect", lambda _: (builders.machine(), None))
    monkeypatch.setattr(headless, "run_quietly", lambda _: (Report(), 1))
    done = CliRunner().invoke(cli, ["ceilings", "--again", *options])
    assert (done.exit_code, done.stderr) == (1, "workbench: nothing was measured\n")


@pytest.mark.parametrize("arguments", [(), *((part,) for part in KNOWN)])
def test_it_prints_json(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, ["schema", *arguments])
    assert done.exit_code == 0
    schema = schema_of("".join(arguments) or "document")
    assert json.loads(done.stdout) == json.loads(json.dumps(schema))  # its tuples are lists there


def test_every_schema_can_be_named() -> None:
    assert tuple(KNOWN) == PARTS


def test_an_unknown_part_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli, ["schema", "everything"]).exit_code == 2
