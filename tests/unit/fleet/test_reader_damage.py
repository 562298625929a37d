"""Damaged and hostile files in the folder of a fleet: each is a state or one line, no error."""

import json
import os
from pathlib import Path

import pytest
from fleet_folder import NOW, only
from hypothesis import given, strategies as st

from benchmarks import fleet as made_up
from workbench.fleet.reader import read_folder
from workbench.records.fleet import FleetFolder
from workbench.report.run_files import MOST_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made_up.make(tmp_path, 3)
    return tmp_path


def _damaged(folder: Path, kind: str) -> None:
    """Put something else in the place of the first document."""
    at = folder / "jobs" / "old-1" / "document.json"
    text = at.read_text()
    at.unlink()
    match kind:
        case "fifo":
            os.mkfifo(at)
        case "folder":
            at.mkdir()
        case "link":
            at.symlink_to(folder / "nowhere")
        case "huge":
            with at.open("wb") as file:
                file.truncate(MOST_BYTES + 1)
        case "cut":
            at.write_text(text[: len(text) // 2])
        case "bytes":
            at.write_bytes(b"\xff\xfe\x00")
        case _:
            old, new = REPLACED[kind]
            assert old in text
            at.write_text(text.replace(old, new) if old else new)


REPLACED = {
    "newer": ('"schema_version": 1', '"schema_version": 9'),
    "nan": ('"n": 6', '"n": NaN'),
    "deep": ("", "[" * 100_000),
    "foreign": ("", '{"results": []}'),
    "parts": ('"code": null', '"code": {"facts": 3}'),
    "absurd": ('"items": 1.0', '"items": 1e-300'),
}
KINDS = ["fifo", "folder", "link", "huge", "cut", "bytes", *REPLACED]


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_that_cannot_be_read_is_one_line(folder: Path, kind: str) -> None:
    _damaged(folder, kind)
    made_up.write(folder / "jobs" / "old-1" / "exit_code", "0")
    found = read_folder(folder, NOW)
    assert [node.state for node in found.nodes] == ["failed", "done", "done"]
    message = found.nodes[0].reason.message
    assert message.startswith("document.json is not usable: ")
    assert message.isprintable() and "Error" not in message


@pytest.mark.parametrize("name", ["submitted.json", "exit_code", "log.txt", "doctor.json"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "text"])
def test_odd_files_of_a_job_do_not_stop_the_others(folder: Path, name: str, kind: str) -> None:
    at = only(folder) / name
    {"fifo": os.mkfifo, "folder": os.mkdir, "text": lambda p: p.write_text("\x1b[2J{")}[kind](at)
    found = read_folder(folder, NOW)
    assert [node.state for node in found.nodes[1:]] == ["done", "done"]
    assert found.nodes[0].state in ("pending", "failed", "running")
    assert all(text.isprintable() for text in texts(found))


def texts(found: FleetFolder) -> list[str]:
    """Everything in a folder that a terminal may show."""
    reasons = [node.reason.message for node in found.nodes if node.reason]
    names = [n for node in found.nodes for n in (node.name, node.node_type, node.node, *node.log)]
    return reasons + names + [warning.message for warning in found.warnings]


def test_escape_sequences_of_names_do_not_reach_the_terminal(folder: Path) -> None:
    escape = "\x1b]0;owned\x07"
    plan = json.loads((folder / "fleet.json").read_text())
    plan["jobs"][0] |= {"name": f"a{escape}", "node_type": f"b{escape}", "node": f"c{escape}"}
    made_up.write(folder / "fleet.json", plan)
    made_up.write(folder / f"mail{escape}.json", made_up.document(1.0, f"host{escape}"))
    made_up.write(folder / f"bad{escape}.json", "[")
    os.mkdir(os.path.join(os.fsencode(folder / "jobs"), b"\xff"))  # noqa: PTH102, PTH118
    found = read_folder(folder, NOW)
    assert len(found.nodes) == 6 and len(found.warnings) == 1
    assert all(text.isprintable() for text in texts(found))


WHOLE = json.dumps(made_up.document(1.0, "n0")).encode()


@given(
    st.integers(0, len(WHOLE) - 1),
    st.one_of(st.binary(max_size=4), st.sampled_from([b"-1", b"1e400", b"null", b'"', b"[]"])),
    st.integers(0, 60),
)
def test_any_damage_is_a_state_and_never_an_error(tmp_path_factory, at, put, gone) -> None:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "any.json").write_bytes(WHOLE[:at] + put + WHOLE[at + gone :])
    found = read_folder(folder, NOW)
    assert len(found.nodes) + len(found.warnings) == 1
    for node in found.nodes:
        for answer in node.run.answers:
            assert answer.value_s is None or 0 < answer.value_s < 1e9
