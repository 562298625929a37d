"""The files of `workbench export`: figures, provenance, and strings of others that stay inert."""

import csv
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import own_runs
import pytest
import scenes
import simulated_lab
from builders import case, changed
from hypothesis import example, given, settings, strategies as st
from markdown_it import MarkdownIt
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from workbench.export.formats import FILES, file_text
from workbench.export.json import dump
from workbench.export.markdown import markdown
from workbench.export.sections import roofline_plots, row_plot, sections
from workbench.export.view.derived import RunView
from workbench.export.view.section import Section
from workbench.export.view.spans import listed
from workbench.export.view.svg import svg_file
from workbench.export.view.words import provenance, provenance_on
from workbench.records import events as ev
from workbench.records.document import Document
from workbench.report.from_document import report_of
from workbench.report.report import Report

RUNS = {
    "gpu_server": scenes.h200(),
    "crossover": scenes.crossing(),
    "simulated": scenes.simulated(),
    "sweep": scenes.sweep(),
    "largest_batch": scenes.largest_batch(),
    "model": simulated_lab.done(),
    "own_net": own_runs.GALLERY["net"](),
}
REPORTS = {name: Report.of(events) for name, events in RUNS.items()}
PAGE = "html head meta title style body h1 section h2 p table thead tr th tbody td dl dt dd pre div"
ELEMENTS = {*PAGE.split(), *"svg text line g path rect circle".split()}  # noqa: SIM905
NAMES = "lang charset http-equiv content name class data-label viewbox role"
ATTRIBUTES = {*NAMES.split(), *"x y x1 x2 y1 y2 d width height cx cy r".split()}  # noqa: SIM905
HOSTILE = (
    "</title></style><script>alert(1)</script><img src=http://a.b onerror=x>"
    "'\"&|`*_[a](b)\n\x1b[2J\u202e@u"
)


class Page(HTMLParser):
    """The elements, attributes, texts and tables of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.tables: list[list[list[str]]] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = True
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell:
            self.tables[-1][-1][-1] += data

    def records(self) -> Iterator[dict[str, str]]:
        for titles, *rows in filter(None, self.tables):
            yield from (dict(zip(titles, row, strict=True)) for row in rows)


def seconds(text: str) -> float:
    number, unit = re.match(r"([\d.]+) (s|ms|us|ns)\b", text).groups()
    return float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]


@pytest.mark.parametrize("name", ["gpu_server", "crossover", "simulated"])
def test_the_tables_of_the_page_have_the_figures_of_the_json(name: str) -> None:
    document = json.loads(dump(REPORTS[name].document()))
    records = list(Page(file_text("html", REPORTS[name])).records())
    verdicts = [record for record in records if "Confidence" in record]
    assert len(verdicts) == len(document["verdicts"]) > 0
    for record, verdict in zip(verdicts, document["verdicts"], strict=True):
        assert record["Scenario"] == verdict["title"]
        assert record["Answer"] == verdict["reasons"][0]
        assert record["Confidence"] == verdict["confidence"]
        ratio = verdict["device_ratio"]
        assert float(record["Lead"].split()[-1].rstrip("x")) == pytest.approx(
            max(ratio, 1 / ratio), rel=0.02
        )
    rows = [verdict["scenario"] for verdict in document["verdicts"]]  # no points of a crossover
    measured = [m for m in document["measurements"] if m["n"] and m["scenario"] in rows]
    found = [record for record in records if record.get("Median")]
    got = sorted((int(r["n"]), seconds(r["Median"])) for r in found)
    want = sorted((m["n"], m["median_s"]) for m in measured)
    assert [n for n, _ in got] == [n for n, _ in want]
    assert [m for _, m in got] == pytest.approx([m for _, m in want], rel=0.006)


def test_candidates_stand_in_the_order_of_the_screen() -> None:
    tables = Page(file_text("html", REPORTS["gpu_server"])).tables[1:7]
    for table, row in zip(tables, REPORTS["gpu_server"].rows.values(), strict=True):
        run = RunView(REPORTS["gpu_server"])
        want = [run.measured(each).median_s for each in run.ordered(row)]
        column, ranked = table[0].index("Median"), [each for each in want if each]
        medians = [seconds(line[column]) for line in table[1:] if line[column]]
        assert len(medians) > 2
        assert medians == pytest.approx(ranked, rel=0.006)


def test_a_table_names_what_is_for_comparison_only() -> None:
    page = Page(file_text("html", REPORTS["gpu_server"]))
    cells = [cell for table in page.tables for row in table for cell in row]
    assert "for comparison, never picked" in cells


def test_the_files_have_the_race_of_a_verdict_and_the_fastest_of_a_plain_run() -> None:
    plain = Report.of(scenes.profiled())
    for report, label in ((REPORTS["gpu_server"], "race"), (plain, "fastest")):
        for row in (row for row in report.rows.values() if not row.plan.point):
            (section,) = (s for s in sections(report) if s.title == row.title)
            assert label in [name for name, _ in section.remarks]


def test_markdown_has_no_heading_without_text() -> None:
    text = file_text("markdown", REPORTS["gpu_server"])
    assert roofline_plots(REPORTS["gpu_server"])
    assert "## Roofline" not in text and not text.rstrip().splitlines()[-1].startswith("#")


def test_markdown_puts_a_fact_without_a_label_below_the_one_above() -> None:
    found = Section("Row", facts=[*listed("why", ["one", "two"]), *listed("next", ["three"])])
    assert markdown([found]) == "## Row\n\n- why: one\n  - two\n- next: three"


def test_the_csv_has_every_sample() -> None:
    report = REPORTS["gpu_server"]
    lines = list(csv.DictReader(io.StringIO(file_text("csv", report))))
    found = [(line["scenario"], line["case"], float(line["sample_s"])) for line in lines]
    want = [(m.scenario, m.id, s) for m in report.measurements for s in m.samples_s]
    assert found == want
    assert {int(line["round"]) for line in lines} >= {0, 1}


def test_a_killed_run_says_cancelled_as_the_json_does() -> None:
    cut = next(n for n, e in enumerate(RUNS["gpu_server"]) if isinstance(e, ev.BlockMeasured)) + 3
    report = Report.of(RUNS["gpu_server"][:cut])
    lines = csv.DictReader(io.StringIO(file_text("csv", report)))
    assert {line["status"] for line in lines} == {"cancelled"}


def test_an_answer_without_a_lead_stands_once_in_its_line() -> None:
    lines = file_text("markdown", Report.of(scenes.cancelled())).splitlines()
    counts = {line.count("Nothing was measured") for line in lines if "| unknown |" in line}
    assert counts == {0, 1}


def test_a_median_without_an_interval_claims_none() -> None:
    few = SimpleNamespace(median_s=0.15, ci95_s=None, n=2)
    run: Any = SimpleNamespace(measured=lambda _: few, case_name=lambda _: "one")
    candidate: Any = SimpleNamespace(case=case("cpu"), ordered_s=[0.1, 0.2])
    (strip,) = row_plot("row", [candidate], run).strips
    assert strip.title.startswith("one: median 150 ms, 2 samples")


@pytest.mark.parametrize("name", RUNS)
def test_the_gauges_are_valid_and_have_the_figures_of_the_report(name: str) -> None:
    report, text = REPORTS[name], file_text("openmetrics", REPORTS[name]) + "\n"
    assert text.endswith("# EOF\n")
    found = {f.name: f for f in openmetrics(text)}
    assert [f.samples for f in prometheus(text)] == [f.samples for f in found.values()]
    medians = [m.median_s for m in report.measurements if m.n]
    assert (
        [s.value for s in found["workbench_median_seconds"].samples] == medians
        if medians
        else not found
    )
    if report.verdicts:
        picks = [s.labels["case"] for s in found["workbench_pick"].samples]
        assert picks == [verdict.pick or "none" for verdict in report.verdicts]


def test_each_word_of_provenance() -> None:
    words = [provenance(b) for b in ("measured", "recorded", "estimated", "simulated", None)]
    want = ["measured here", "recorded elsewhere", "estimated", "simulated", "none"]
    assert words == want
    assert provenance_on("cpu/torch/fp32/t2", "fake:0") == "measured here, simulated"


@pytest.mark.parametrize("name", RUNS)
def test_every_number_says_where_it_comes_from(name: str) -> None:
    report = REPORTS[name]
    for section in sections(report):
        titles = [column.title for column in section.columns]
        cells = [cell for row in section.rows for cell in row]
        assert (
            "Provenance" in [*titles, *cells]
            or any("Provenance" in note for note in section.notes)
            or section.title in ("Run", "To run it as it was measured")
            or not section.facts
        )
        measured = [
            row for row in section.rows if "Median" in titles and row[titles.index("Median")]
        ]
        assert all("measured" in row[-1] or "simulated" in row[-1] for row in measured)
        assert all(plot.provenance for plot in section.plots)
    for line in csv.DictReader(io.StringIO(file_text("csv", report))):
        simulated = line["device"].startswith("fake")
        assert line["provenance"] == ("simulated" if simulated else "measured here")


def test_other_devices_are_estimated_or_recorded_elsewhere() -> None:
    report = REPORTS["crossover"]
    (first, *_) = sections(report)
    labels = [label for label, _ in first.remarks]
    devices = [provenance(w.basis) for v in report.verdicts for w in v.what_if]
    assert labels[:2] == ["machine", "run"] and labels[-len(devices) :] == devices
    assert "estimated" in labels
    assert "**estimated**" not in file_text("markdown", report)
    assert "- estimated: " in file_text("markdown", report)


def test_a_simulated_gpu_is_called_so_in_every_file() -> None:
    for name in FILES:
        assert "simulated" in file_text(name, REPORTS["simulated"])


def poisoned(value: object, text: str) -> object:
    """The document with `text` behind every string that a person reads."""
    if isinstance(value, dict):
        free = ("message", "remedy", "title", "question", "hint", "reasons", "command", "next_best")
        return {
            k: [text]
            if k == "reasons"
            else v + text
            if k in free and isinstance(v, str)
            else poisoned(v, text)
            for k, v in value.items()
        }
    return [poisoned(each, text) for each in value] if isinstance(value, list) else value


PLAIN = msgspec.to_builtins(Report.of(scenes.cpu_only()).document())
for measured in PLAIN["measurements"]:  # parsing a page is what takes time
    measured["blocks"], measured["samples_s"] = measured["blocks"][:2], measured["samples_s"]
    measured["blocks"] = [{**block, "n": 3} for block in measured["blocks"]]
    measured["samples_s"] = measured["samples_s"][: 3 * len(measured["blocks"])]
    measured["lead_in_s"] = []


@example(HOSTILE)
@example("AZ")
@settings(max_examples=15)
@given(
    st.text(
        alphabet=st.sampled_from(
            "<>/&\"'`|*_[](){}!#@:.\\-=+\n\r\t\x00\x1b\u202e\u2028\ud800azAZ01 "
        )
    )
)
def test_strings_of_others_are_inert_in_every_file(text: str) -> None:
    report = report_of(msgspec.convert(poisoned(PLAIN, text), Document))
    files = {name: file_text(name, report) for name in FILES}
    for content in files.values():
        content.encode()
        assert all(c == "\n" or c.isprintable() for c in content)
    page = Page(files["html"])
    assert page.elements <= ELEMENTS
    assert page.attributes <= ATTRIBUTES
    github = MarkdownIt("commonmark", {"linkify": True}).enable(["table", "linkify"])
    github.linkify.set({"fuzzy_link": False})  # it links www. and schemes, no other bare names
    assert not re.search(r"\bwww\.(?!<!--)", files["markdown"], re.IGNORECASE)
    html = github.render(files["markdown"])
    assert Page(html.replace("<!-- -->", "")).elements <= {
        "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "pre", "code",
    }  # fmt: skip
    assert len({len(row) for row in csv.reader(io.StringIO(files["csv"]))}) == 1
    assert list(openmetrics(files["openmetrics"] + "\n"))


def test_hostile_text_is_shown_as_text() -> None:
    report = report_of(msgspec.convert(poisoned(PLAIN, HOSTILE), Document))
    assert "<script>alert(1)</script>" in Page(file_text("html", report)).text
    for section in sections(report):
        for plot in section.plots:
            tags = {e.tag.rpartition("}")[2] for e in ET.fromstring(svg_file(plot)).iter()}
            assert tags <= ELEMENTS


@pytest.mark.parametrize("name", RUNS)
def test_the_page_loads_nothing_and_is_small(name: str) -> None:
    text = file_text("html", REPORTS[name])
    assert len(text) < 500_000
    assert not re.search(r"""(src|href|url|@import)\s*[=(]""", text)
    assert {"svg"} <= Page(text).elements or name == "largest_batch"


def test_a_formula_does_not_reach_a_spreadsheet() -> None:
    events = changed(scenes.cpu_only(), ev.RunStarted, id="=1+1")
    assert "\n'=1+1," in file_text("csv", Report.of(events))


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_a_report_says_what_was_asked_and_what_weakens_the_answer(form: str) -> None:
    said = file_text(form, REPORTS["gpu_server"])
    assert "where is a step faster?" in said
    model = file_text(form, REPORTS["model"]).replace("\\", "")
    assert model.count("Ship int8-static") == 2, "in the table and in the row"
    assert "accuracy was checked on random inputs only" in model
    assert "301 M multiply-adds a run" in model and "int8-static-s8s8: on x86" in model
    assert "its inference is measured in evaluation mode" in file_text(form, REPORTS["own_net"])


def test_the_page_explains_the_words_that_it_has() -> None:
    words = Page(file_text("html", REPORTS["gpu_server"])).text.partition("Words")[2]
    assert "sure" in words and "tiethe interval" in words and "t22 CPU threads" in words
    assert "unrated" not in words and "Resident" not in words
