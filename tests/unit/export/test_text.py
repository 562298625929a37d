"""What people and programs read."""

from __future__ import annotations

import json

import msgspec
import pytest
from builders import case, eventful, events, machine, report, steady
from hypothesis import example, given
from hypothesis import strategies as st
from workbench.export.tables import table, wrapped

from workbench.advisor.verdict import decide
from workbench.export.json import dump
from workbench.export.log import line, machine_line
from workbench.export.text import run_text
from workbench.planning.scenario import Scenario
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.report import Report

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(json_values)
def test_laying_out_json_changes_no_value(value) -> None:
    assert json.loads(dump(value)) == value


@given(json_values)
def test_laid_out_or_not_it_is_the_same_json(value) -> None:
    assert json.loads(dump(value)) == json.loads(msgspec.json.encode(value))


@given(st.text(alphabet='[]{}\n\t\\",:.-+eE 0123456789é'))
@example("[1,  2]")
@example("[\n1,\n2\n]")
def test_a_string_that_looks_like_numbers_is_left_alone(text: str) -> None:
    value = {"a": text, text: [1, 2], "b": [text]}
    assert json.loads(dump(value)) == value


def test_only_arrays_of_numbers_share_a_line() -> None:
    assert dump({"a": ["x"], "b": [[1, 2], [3.5]]}).splitlines() == [
        "{",
        '  "a": [',
        '    "x"',
        "  ],",
        '  "b": [',
        "    [ 1, 2 ],",
        "    [ 3.5 ]",
        "  ]",
        "}",
    ]


def test_the_document_of_a_run_is_the_same_laid_out() -> None:
    document = Report.of(eventful()).document()
    assert json.loads(dump(document)) == json.loads(msgspec.json.encode(document))
    samples = json.dumps(document.measurements[0].samples_s)[1:-1]
    assert f'"samples_s": [ {samples} ]' in dump(document)


def test_numbers_share_a_line() -> None:
    assert '"a": [ 1, 2.5, 3 ]' in dump({"a": [1, 2.5, 3]})


def test_columns_line_up() -> None:
    text = table(("a", "bb"), [("xxx", "1"), ("y", "22")], {1})
    assert text.splitlines() == ["a    bb", "xxx   1", "y    22"]


def test_a_run_ends_with_table_reasons_and_candidates() -> None:
    cpu, gpu = case("cpu-a"), case("cuda:0-a")
    row = Scenario("row", "Row", "Which?", "gpu", "work", "throughput", ("fp32",))
    built = report({cpu: steady(1.0), gpu: []}, gpus=["cuda:0"], failed={gpu: Reason("x", "no")})
    built.rows["row"].verdict = decide(built, row)
    text = run_text(built)
    assert "unknown" in text
    assert "$ workbench advise row" in text
    assert "failed: no" in text


def spoken_of(kind: type) -> list[str | None]:
    """What the log says of each event of one kind in the eventful run."""
    told, found = Report(), []
    for event in eventful():
        told.apply(event)
        if isinstance(event, kind):
            found.append(line(event, told))
    assert found
    return found


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ev.RunStarted, ["    0.1 s  run 20261121-000000-test, budget 60 s"]),
        (ev.HardwareDetected, ["    0.2 s  Test CPU, 8 cores | Test GPU"]),
        (ev.WarningRaised, ["    0.5 s  warning [row]: busy; wait"]),
        (ev.RacePlanned, [None, None]),
        (
            ev.RaceStarted,
            [
                "    0.4 s  Row: 4 candidates, 10 s",
                "    0.4 s  Other: 2 candidates, 10 s; row 2 of 2, 51 s left",
            ],
        ),
        (ev.WorkerStarted, ["    0.5 s  worker cpu/torch is up after 1.00 s"]),
        (ev.WorkerEnded, ["    9.1 s  worker cpu/torch ended: killed"]),
        (ev.CasePreparing, [None]),
        (ev.CasePrepared, [None] * 4),
        (ev.BlockDiscarded, [None]),
        (ev.BlockMeasured, [None] * 27),
        (
            ev.CaseDropped,
            ["    4.0 s    work[of=b] cpu torch fp32 t8 out: 2x slower than work[of=a]"],
        ),
        (
            ev.CaseFinished,
            [
                "    0.6 s    work[of=late] cpu torch fp32 t8 skipped: no time was left for it"
                " - give it a larger --budget",
                "    9.0 s    work[of=a] cpu torch fp32 t8 1.20 s (834 MFLOP/s, n=40)",
                None,  # it has dropped out: that was said
                "    9.0 s    work[of=c] cpu torch fp32 t8 failed: the worker died"
                " - look at its log",
                "    9.0 s    cuda:0 torch fp32 400 ms (2.50 GFLOP/s, n=40)",
                "    9.0 s    cpu torch fp32 t8 160 ms (6.25 GFLOP/s, n=40)",
                "    9.0 s    cuda:0 torch fp32 skipped: it needs about 90.0 GiB"
                " - take a smaller size",
            ],
        ),
        (ev.BatchTried, ["    0.5 s    work[of=a] cpu torch fp32 t8 batch 8: fits"]),
        (ev.CaseProfiled, [None]),
        (
            ev.TraceWritten,
            ["    0.5 s  wrote trace.json: open it in ui.perfetto.dev or chrome://tracing"],
        ),
        (ev.CasesJoined, ["    0.5 s    joined: cpu torch fp32 t8"]),
        (ev.ModelAdvised, [None]),
        (ev.StatusChanged, ["    0.5 s  paused", "    0.5 s  running"]),
        (ev.RunFinished, ["    9.5 s  done after 9.5 s"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_log_line_of_each_kind_of_event(kind: type, expected: list[str | None]) -> None:
    assert spoken_of(kind) == expected


def test_a_race_for_one_size_says_which() -> None:
    (planned,) = [e for e in events({case("cpu-a"): []}) if isinstance(e, ev.RacePlanned)]
    point = msgspec.structs.replace(planned, point={"batch": 12}, of="row")
    told = Report.of([eventful()[0], planned, point])
    race = ev.RaceStarted(at_s=9.0, scenario=point.scenario, share_s=4.0)
    told.apply(race)
    assert line(race, told) == "    9.0 s  Row at batch 12: 1 candidate, 4 s"


def test_a_command_is_broken_at_its_spaces_only() -> None:
    for width in range(20, 60):
        text = wrapped("run it: `workbench advise row --what-if some-device`", width=width)
        assert " ".join(text.split()).endswith("--what-if some-device`")


def test_a_plain_run_tells_what_disturbed_it_below_its_candidates() -> None:
    run = Report.of([e for e in eventful() if not isinstance(e, ev.VerdictReached)])
    assert "  ! busy; wait\n" in run_text(run)


def test_the_log_line_of_a_verdict_is_the_choice_and_its_first_reason() -> None:
    first, second = spoken_of(ev.VerdictReached)
    assert "-> gpu: The GPU came out 3.00x" in first
    assert "-> unknown: Nothing was measured on the GPU: it needs about 90.0 GiB." in second


def test_a_worker_that_ended_as_asked_is_not_worth_a_line() -> None:
    assert line(ev.WorkerEnded(at_s=1.0, worker="cpu/torch", reason=None), Report()) is None


def test_fewer_cores_than_the_machine_has_are_told_with_their_cause() -> None:
    few = msgspec.structs.replace(machine().cpu, effective_cores=3, limited_by="cgroup")
    text = machine_line(msgspec.structs.replace(machine("cuda:0"), cpu=few))
    assert text == "Test CPU, 3 of 8 cores (cgroup) | Test GPU"


def test_every_event_has_its_line_or_none_and_never_fails() -> None:
    told = Report()
    lines = []
    for event in events({case("cpu-a"): [[1.0] * 5] * 8, case("cpu-b"): []}):
        told.apply(event)
        lines.append(line(event, told))
    spoken = [text for text in lines if text]
    assert any("Test CPU, 8 cores | no GPU" in text for text in spoken)
    assert any("1.00 s" in text and "n=40" in text for text in spoken)
    assert all("\n" not in text for text in spoken)
