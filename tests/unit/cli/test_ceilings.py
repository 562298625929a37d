"""`workbench ceilings` shows what is kept, or measures."""

import json
from types import SimpleNamespace

import builders
import pytest
from click.testing import CliRunner

from workbench import machine
from workbench.cli import headless
from workbench.cli.main import cli
from workbench.engine import ceiling_store
from workbench.planning.usage import UsageError
from workbench.records.reason import Warning
from workbench.report.report import Report


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

    monkeypatch.setattr(machine, "detect", lambda _: (found, None))
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
    monkeypatch.setattr(machine, "detect", lambda _: (found, None))
    monkeypatch.setattr(headless, "run_quietly", lambda _: (report, 1))
    done = CliRunner().invoke(cli, ["ceilings", "--again"])
    assert done.exit_code == 1
    assert "workbench: nothing was measured for row" in done.stderr
    assert "warning: [matmul] others compute; wait" in done.stderr
    assert "not kept" not in done.stderr, "the log of the run has said so"
    done = CliRunner().invoke(cli, ["ceilings", "--again", "--json"])
    assert json.loads(done.stdout)["warnings"][0]["code"] == "busy_machine"


def test_a_simulated_device_has_no_ceilings() -> None:
    done = CliRunner().invoke(cli, ["ceilings", "--device", "fake:0@8"], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert "a simulated device has no ceilings" in str(done.exception)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_run_without_a_row_does_not_fail_in_silence(options, monkeypatch) -> None:
    monkeypatch.setattr(machine, "detect", lambda _: (builders.machine(), None))
    monkeypatch.setattr(headless, "run_quietly", lambda _: (Report(), 1))
    done = CliRunner().invoke(cli, ["ceilings", "--again", *options])
    assert (done.exit_code, done.stderr) == (1, "workbench: nothing was measured\n")
