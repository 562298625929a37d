"""A report as one HTML file: no script, no network, light and dark, readable on a phone."""

from xml.etree import ElementTree as ET

from ..report.report import Report
from .sections import sections
from .view.glossary import words_in
from .view.section import Section
from .view.spans import fact
from .view.svg import STYLE, Element, add, drawing

POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # loads nothing and runs no script


def text(report: Report) -> str:
    page = Element("html", {"lang": "en"})
    head = add(page, "head")
    add(head, "meta", charset="utf-8")
    add(head, "meta", http_equiv="Content-Security-Policy", content=POLICY)
    add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    add(head, "title", f"workbench {report.started.id if report.started else ''}")
    ET.SubElement(head, "style").text = STYLE.read_text()
    body = add(page, "body")
    add(body, "h1", "CPU or GPU: results of one run")
    for section in sections(report):
        _section(add(body, "section"), section)
    said = " ".join(each.text or "" for each in body.iter() if each.tag != "pre")
    words = [fact(word, meaning) for word, meaning in words_in(said)]
    _section(add(body, "section"), Section("Words", facts=words))
    return "<!doctype html>\n" + ET.tostring(page, encoding="unicode", method="html")


def _section(parent: Element, section: Section) -> None:
    add(parent, "h2", section.title)
    for note in section.notes:
        add(parent, "p", note)
    table = add(parent, "table")
    head, body = add(add(table, "thead"), "tr"), add(table, "tbody")
    for column in section.columns:
        add(head, "th", column.title, class_=column.align)
    for row in section.rows:
        line = add(body, "tr")
        for column, cell in zip(section.columns, row, strict=True):
            add(line, "td", cell, class_=column.align, data_label=column.title)
    facts = add(parent, "dl")
    for label, said in section.remarks:
        add(facts, "dt", label)
        add(facts, "dd", said)
    add(parent, "pre", section.code)
    add(parent, "div", class_="plots").extend(map(drawing, section.plots))
