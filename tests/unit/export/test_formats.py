"""The table of export formats: what each writes, and how one is chosen."""

import json

import pytest
from builders import changed, eventful
from click.testing import CliRunner
from hypothesis import given, strategies as st
from msgspec.structs import replace

from workbench.cli.main import cli
from workbench.cli.options import chosen_format, keeps_samples
from workbench.export.formats import FORMATS, whole
from workbench.export.json import document_parts, dump, rounded
from workbench.planning.usage import UsageError
from workbench.records.encoding import encode
from workbench.records.events import RacePlanned, VerdictReached
from workbench.report.report import Report

RUN = eventful()
REPORT = Report.of(RUN)
VERDICT = REPORT.verdicts[0]


@pytest.mark.parametrize("command", ["advise", "run"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_an_option_of_a_run(command: str, name: str) -> None:
    shown = CliRunner().invoke(cli, [command, "--help"]).output
    assert f"--{name} " in shown


@pytest.mark.parametrize(
    ("given", "chosen"),
    [((), None), (("plain",), "plain"), (("jsonl",), "jsonl"), (("json", "plain"), "json")],
)
def test_text_gives_way_to_another_format(given: tuple[str, ...], chosen: str | None) -> None:
    options = {f"as_{name}": name in given for name in FORMATS} | {"output": None}
    assert chosen_format(options) == chosen
    assert options == {"output": None}


def test_two_formats_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--json and --jsonl exclude each other"):
        chosen_format({"as_json": True, "as_jsonl": True})


@pytest.mark.parametrize("count", [None, 1])
def test_a_document_in_parts_is_the_document_with_rounded_samples(count: int | None) -> None:
    report = Report.of(RUN[:count])
    document = report.document()
    for measured in document.measurements:
        measured.samples_s = json.loads(bytes(rounded(measured.samples_s)))
        measured.lead_in_s = json.loads(bytes(rounded(measured.lead_in_s)))
    text = b"".join(document_parts(report)).decode()
    assert json.loads(text) == json.loads(dump(document))
    assert list(json.loads(text)) == list(json.loads(dump(document)))


def test_no_name_of_a_live_run_controls_the_terminal() -> None:
    """A replay reads texts that are escaped already; a file may be called as its sender likes."""
    command = "workbench advise --model 'a\x1b[2J\u202e.onnx'\n\tend"
    hostile = changed(RUN, RacePlanned, reproduce=command)
    hostile = changed(hostile, VerdictReached, verdict=replace(VERDICT, reproduce=command))
    (text,) = whole("plain", Report.of(hostile))
    assert "'a\\x1b[2J\\u202e.onnx'\n\tend" in text
    assert all(c in "\n\t" or c.isprintable() for c in text)


def test_each_measurement_and_each_verdict_has_a_line() -> None:
    lines = b"".join(document_parts(REPORT)).decode().splitlines()
    for each in (*REPORT.measurements, *REPORT.verdicts):
        start = encode(each)[:40].decode()
        assert len([line for line in lines if line.startswith(f"    {start}")]) == 1


@given(st.lists(st.floats(1e-12, 1e8)))
def test_six_digits_keep_a_sample_to_a_hundred_thousandth(samples: list[float]) -> None:
    shown = json.loads(bytes(rounded(samples)))
    assert shown == pytest.approx(samples, rel=5.000001e-6)
    assert rounded(shown) == rounded(samples)


def test_without_samples_every_statistic_stays() -> None:
    whole = json.loads(b"".join(document_parts(REPORT)))
    bare = json.loads(b"".join(document_parts(REPORT, samples=False)))
    for measured in whole["measurements"]:
        measured["samples_s"] = measured["lead_in_s"] = []
    assert bare == whole


@pytest.mark.parametrize(
    ("export_as", "output", "is_refused"),
    [
        ("json", None, False),
        ("json", "x.json", False),
        (None, "x.json", False),
        ("plain", "x.json", False),
        ("jsonl", "x.jsonl", True),
        ("plain", None, True),
        (None, None, True),
    ],
)
def test_samples_are_left_out_of_a_document_only(export_as, output, is_refused) -> None:
    assert keeps_samples({"no_samples": False}, export_as, output)
    if is_refused:
        with pytest.raises(UsageError, match=r"--no-samples .*: add --json"):
            keeps_samples({"no_samples": True}, export_as, output)
    else:
        assert not keeps_samples({"no_samples": True}, export_as, output)
