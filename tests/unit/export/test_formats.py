"""The table of export formats: what each writes, and how one is chosen."""

from __future__ import annotations

import json

import pytest
from builders import eventful
from click.testing import CliRunner

from workbench.cli.main import cli
from workbench.cli.options import chosen_format
from workbench.export.formats import FORMATS
from workbench.export.json import document_parts, dump
from workbench.planning.usage import UsageError
from workbench.records import events as ev
from workbench.report.report import Report

RUN = eventful()
REPORT = Report.of(RUN)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_writes_a_whole_run_or_each_event(name: str) -> None:
    exporter = FORMATS[name]
    assert (exporter.whole is None) != (exporter.each is None)
    if exporter.whole is not None:
        assert exporter.whole(REPORT)
    if exporter.each is not None:
        lines = b"".join(map(exporter.each, RUN)).splitlines()
        assert list(map(ev.decode, lines)) == RUN


def test_the_document_is_json() -> None:
    whole = FORMATS["json"].whole
    assert whole is not None
    assert json.loads(b"".join(whole(REPORT)))["run"]["id"] == REPORT.started.id


@pytest.mark.parametrize("command", ["advise", "run"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_an_option_of_a_run(command: str, name: str) -> None:
    shown = CliRunner().invoke(cli, [command, "--help"]).output
    assert f"--{name} " in shown


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ((), None),
        (("plain",), "plain"),
        (("jsonl",), "jsonl"),
        (("json", "plain"), "json"),
    ],
)
def test_text_gives_way_to_another_format(given: tuple[str, ...], chosen: str | None) -> None:
    options = {f"as_{name}": name in given for name in FORMATS} | {"output": None}
    assert chosen_format(options) == chosen
    assert options == {"output": None}


def test_two_formats_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--json and --jsonl exclude each other"):
        chosen_format({"as_json": True, "as_jsonl": True})


def test_a_document_in_parts_is_the_same_text() -> None:
    for events in (eventful(), eventful()[:1]):
        report = Report.of(events)
        assert "".join(document_parts(report)) == dump(report.document())
