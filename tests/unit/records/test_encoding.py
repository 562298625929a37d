"""Any text can be written: a file name need not be UTF-8."""

import json
import os

import msgspec
from hypothesis import given, strategies as st

from workbench.export.json import dump
from workbench.records import events as ev
from workbench.records.document import Tool
from workbench.records.reason import Warning

LATIN = os.fsdecode(b"\xe9.onnx")


def test_the_journal_shows_a_byte_that_is_no_text() -> None:
    started = ev.RunStarted(
        at_s=0.0,
        schema_version=1,
        id="x",
        started_at="",
        budget_s=1.0,
        tool=Tool("workbench", "1", f"workbench advise --model {LATIN}"),
    )
    read = ev.decode(ev.encode(started))
    assert read.tool.command == r"workbench advise --model \xe9.onnx"


def test_the_document_does_too() -> None:
    reason = Warning("not_saved", f"{LATIN} was not written", "choose another")
    assert json.loads(dump({LATIN: [reason]}))[r"\xe9.onnx"][0]["message"] == (
        r"\xe9.onnx was not written"
    )


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_encoded(text: str) -> None:
    assert isinstance(json.loads(ev.encode([text])), list)


def test_samples_that_are_encoded_already_stay_numbers() -> None:
    found = json.loads(dump({LATIN: msgspec.Raw(b"[0.5,1.5]")}))
    assert found == {r"\xe9.onnx": [0.5, 1.5]}
