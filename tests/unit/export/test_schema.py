"""The schema that `workbench schema` prints, against what runs write now and wrote before."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import builders
import own_runs
import pytest
import scenes
import simulated_lab
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator
from msgspec.inspect import multi_type_info
from schemas import checked_document, checked_events, strict

from workbench.export.json import document_parts
from workbench.export.schema import PARTS, STRUCTURES, schema_of, structures
from workbench.records import events as ev
from workbench.report.report import Report
from workbench.report.run_files import open_run

FIXTURES = Path(__file__).parents[2] / "fixtures"
RUNS = {
    "eventful": builders.eventful,
    "gpu_server": scenes.h200,
    "cpu_only": scenes.cpu_only,
    "simulated": scenes.simulated,
    "midway": scenes.midway,
    "cancelled": scenes.cancelled,
    "warned": scenes.warned,
    "crossover": scenes.crossing,
    "sweep": scenes.sweep,
    "profiled": scenes.profiled,
    "largest_batch": scenes.largest_batch,
    "model": simulated_lab.done,
    **{f"own_{name}": make for name, make in own_runs.GALLERY.items()},
}
DOCUMENT = json.loads(b"".join(document_parts(Report.of(builders.eventful()))))
EVENTS = [json.loads(ev.encode(event)) for event in builders.eventful()]
KEPT = sorted(path for path in FIXTURES.glob("*s/*.json*") if path.parent.name != "own")


def lines(events: list[ev.AnyEvent]) -> list[bytes]:
    return [ev.encode(event) for event in events]


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_writes_is_what_the_schema_says(name: str) -> None:
    events = RUNS[name]()
    assert len(checked_events(lines(events))) == len(events)
    report = Report.of(events)
    assert checked_document(b"".join(document_parts(report)))["run"]["id"]
    bare = checked_document(b"".join(document_parts(report, samples=False)))
    assert all(not (m["samples_s"] or m["lead_in_s"]) for m in bare["measurements"])


def test_any_moment_of_a_run_has_a_valid_document() -> None:
    for length in range(1, len(EVENTS), 7):
        report = Report.of(builders.eventful()[:length])
        assert checked_document(b"".join(document_parts(report)))["schema_version"] == 1


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values within a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, each in inner:
        found.append((*at, key))
        if isinstance(each, dict | list):
            found += places(each, (*at, key))
    return found


def changed(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    copy = within = deepcopy(value)
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = new
    return copy


STRANGE = {"unknown": [[None]]}  # no key of this name, no value of this type


def is_refused(event: Any) -> bool:
    """Whether an event, or a document, is not what this version writes."""
    text = json.dumps(event)
    try:
        checked_events([text]) if "event" in event else checked_document(text)
    except AssertionError:
        return True
    return False


@given(st.sampled_from([DOCUMENT, *EVENTS]), st.data())
def test_a_value_of_another_type_is_refused_anywhere(written: Any, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([each for each in places(written) if each != ("event",)]))
    assert not is_refused(written)
    assert is_refused(changed(written, place, STRANGE))


@given(st.sampled_from([DOCUMENT, *EVENTS]), st.data())
def test_an_unknown_key_is_refused_anywhere(written: Any, data: st.DataObject) -> None:
    objects = [()]
    for place in places(written):
        value = written
        for key in place:
            value = value[key]
        objects += [place] if isinstance(value, dict) else []
    place = (*data.draw(st.sampled_from(objects)), "unknown")
    assert is_refused(changed(written, place, STRANGE["unknown"]))


@pytest.mark.parametrize("key", sorted(DOCUMENT))
def test_a_missing_key_is_refused(key: str) -> None:
    assert is_refused({name: value for name, value in DOCUMENT.items() if name != key})


def test_a_document_of_another_version_is_refused() -> None:
    assert is_refused({**DOCUMENT, "schema_version": 2})
    assert is_refused({**EVENTS[0], "schema_version": 2})


SCHEMAS = {part: schema_of(part) for part in PARTS}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_it_is_a_schema_whose_keys_are_explained(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")
    assert all(definition["description"] for definition in schema["$defs"].values())
    # Later versions may add keys.
    assert not any("additionalProperties" in each for each in schema["$defs"].values())


def test_keys_have_their_written_names_and_their_comments() -> None:
    defs = SCHEMAS["document"]["$defs"]
    figures = defs["Measurement"]["properties"]["figures"]
    assert figures["description"] == (
        "The workload's own metrics, and page faults: medians over its blocks, units in the names."
    )
    assert defs["Case"]["properties"]["threads"]["description"] == "CPU threads; None on a GPU"
    assert "metrics" not in defs["Measurement"]["properties"]
    assert "contender" in defs["Curve"]["properties"]
    assert defs["EqualPrecision"]["properties"]["apart"]["description"].startswith("True if")
    assert defs["Measurement"]["properties"]["samples_s"]["description"] == (
        "seconds per step, in the order of measurement"
    )
    block = SCHEMAS["events"]["$defs"]["BlockMeasured"]["properties"]
    assert block["at_s"]["description"].startswith("seconds since the run began")


def test_every_kind_of_event_is_in_the_schema() -> None:
    choices = {each["$ref"].rpartition("/")[2] for each in SCHEMAS["events"]["anyOf"]}
    assert choices == {event["event"] for event in EVENTS}


def refusing_unknown(schema: dict[str, Any]) -> Draft202012Validator:
    """The published schema, with every key that it does not know refused."""
    known = strict(deepcopy(schema))
    for name, definition in known["$defs"].items():
        definition["required"] = schema["$defs"][name].get("required", [])
    return Draft202012Validator(known)


OLDER = {
    ".json": refusing_unknown(SCHEMAS["document"]),
    ".jsonl": refusing_unknown(SCHEMAS["events"]),
}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_no_key_of_an_older_version_was_removed_or_changed_its_type(path: Path) -> None:
    written = [json.loads(line) for line in path.read_text().splitlines()]
    for each in written:
        OLDER[path.suffix].validate(each)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_kept_run_is_written_again_as_this_version_writes_it(path: Path) -> None:
    report = open_run(str(path)).report
    document = checked_document(b"".join(document_parts(report)))
    assert len(document["summary"]) == len(document["verdicts"])


def test_no_two_structures_share_a_name() -> None:
    for found in structures(multi_type_info(PARTS.values())):
        assert STRUCTURES[found.__name__] is found


def test_every_structure_of_the_schema_is_one_of_ours() -> None:
    for schema in SCHEMAS.values():
        for name in schema["$defs"]:
            assert STRUCTURES[name].__module__.startswith("workbench.")
