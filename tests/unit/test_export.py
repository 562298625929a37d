"""What people and programs read."""

from __future__ import annotations

import json

import pytest
from builders import case, events, report, steady
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.explain import seconds
from workbench.advisor.scenarios import Scenario
from workbench.advisor.verdict import decide
from workbench.document import Reason
from workbench.export.json import dump
from workbench.export.log import line
from workbench.export.text import run_text, si, table
from workbench.report import Report

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(json_values)
def test_laying_out_json_changes_no_value(value) -> None:
    assert json.loads(dump(value)) == value


def test_numbers_share_a_line() -> None:
    assert '"a": [ 1, 2.5, 3 ]' in dump({"a": [1, 2.5, 3]})


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5 B"), (999.4, "999 B"), (999.6, "1 kB"), (4.12e11, "412 GB"), (1e19, "1e+04 PB")],
)
def test_decimal_prefixes(value: float, text: str) -> None:
    assert si(value, "B") == text


@pytest.mark.parametrize(
    ("value", "text"), [(5e-7, "0.5 us"), (0.00123, "1.23 ms"), (1.0, "1 s"), (75.0, "75 s")]
)
def test_times_carry_their_unit(value: float, text: str) -> None:
    assert seconds(value) == text


def test_columns_line_up() -> None:
    text = table(("a", "bb"), [("xxx", "1"), ("y", "22")], {1})
    assert text.splitlines() == ["a    bb", "xxx   1", "y    22"]


def test_a_run_ends_with_table_reasons_and_contenders() -> None:
    cpu, gpu = case("cpu-a"), case("cuda:0-a")
    row = Scenario("row", "Row", "Which?", "gpu", "work", "throughput", ("fp32",))
    built = report({cpu: steady(1.0), gpu: []}, gpus=["cuda:0"], failed={gpu: Reason("x", "no")})
    built.rows["row"].verdict = decide(built, row)
    text = run_text(built)
    assert "unknown" in text
    assert "$ workbench advise row" in text
    assert "failed: no" in text


def test_every_event_has_its_line_or_none_and_never_fails() -> None:
    told = Report()
    lines = []
    for event in events({case("cpu-a"): [[1.0] * 5] * 8, case("cpu-b"): []}):
        told.apply(event)
        lines.append(line(event, told))
    spoken = [text for text in lines if text]
    assert any("Test CPU, 8 cores | no GPU" in text for text in spoken)
    assert any("1 s" in text and "n=40" in text for text in spoken)
    assert all("\n" not in text for text in spoken)
