"""The folder of a fleet: what each job and file in it counts for, even where it is damaged."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import scenes
from fleet_folder import NOW, only
from hypothesis import given, strategies as st

from benchmarks import fleet as made_up
from workbench.advisor.fleet import fleet_document
from workbench.advisor.recordings import load
from workbench.cli.program import head
from workbench.export.view.fleet import sections
from workbench.fleet.reader import NO_VERDICT, read_folder
from workbench.records.events import encode
from workbench.records.fleet import FleetFolder, FleetNode
from workbench.report.run_files import MOST_BYTES

LATE = NOW + 3600
FIXTURES = Path(__file__).parents[2] / "fixtures"
JOURNAL = FIXTURES / "journals" / "advise-interrupted.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made_up.make(tmp_path, 3)
    return tmp_path


def job(folder: Path, name: str = "old-1", now_s: float = NOW) -> FleetNode:
    return next(node for node in read_folder(folder, now_s).nodes if node.name == name)


def submitted(at: Path, state: str | None = None) -> None:
    note = {"job_id": "7", "at": made_up.START, "native_state": state}
    made_up.write(at / "submitted.json", note)


def document(name: str) -> dict[str, Any]:
    return json.loads((FIXTURES / "documents" / f"{name}.json").read_text())


def test_a_document_is_an_answer_with_its_queue_apart(folder: Path) -> None:
    found = read_folder(folder, LATE)
    assert [node.state for node in found.nodes] == ["done"] * 3
    node = found.nodes[0]
    assert (node.node_type, node.node, node.queued_s) == ("old", "n0", pytest.approx(60.207))
    assert node.run.machine.endswith("2 cores, 24 GiB")
    answer = node.run.answers[1]
    assert answer.job == "matmul[n=1024]/1 products"
    assert answer.value_s == pytest.approx(0.0158, rel=0.01) and answer.uncompared is None


def test_rows_that_share_a_case_keep_their_own_figures(folder: Path) -> None:
    before = job(folder).run
    file = folder / "jobs/old-1/document.json"
    found = json.loads(file.read_text())
    found["measurements"] += [
        {**each, "scenario": "another", "samples_s": [9.0]} for each in found["measurements"]
    ]
    made_up.write(file, found)
    assert job(folder).run.answers == before.answers


def test_the_99th_percentile_is_that_of_what_if(folder: Path) -> None:
    run = job(folder).run
    answer = run.answers[0]
    measured = next(
        m
        for m in json.loads((folder / "jobs/old-1/document.json").read_text())["measurements"]
        if m["id"] == answer.pick.id
    )
    samples = sorted(measured["samples_s"])
    assert answer.objective == "latency_p99"
    assert answer.value_s == pytest.approx(samples[round(0.99 * (len(samples) - 1))], rel=0.01)


@pytest.mark.parametrize(
    ("files", "state", "now_s", "expected", "words"),
    [
        ((), None, NOW, "pending", "not submitted yet"),
        (("submitted.json",), None, NOW, "pending", "submitted"),
        (("submitted.json",), "PENDING (Resources)", NOW, "pending", "PENDING (Resources)"),
        (("submitted.json", "log.txt"), "RUNNING", NOW, "running", None),
        (("submitted.json",), "REFUSED (x)", NOW, "failed", "REFUSED (x)"),
        (("submitted.json",), "NODE_FAIL", NOW, "failed", "NODE_FAIL"),
        (("submitted.json",), "CANCELLED (x)", NOW, "failed", "CANCELLED (x)"),
        (("submitted.json", "exit_code"), "COMPLETING", NOW, "failed", "exit code 9"),
        (
            ("submitted.json", "doctor.json"),
            "RUNNING",
            LATE,
            "lost",
            "by the deadline, 30 min 00 s; its",
        ),
        (("submitted.json",), "ENDED", NOW, "failed", "ENDED"),
        ((), None, LATE, "lost", "never submitted"),
    ],
)
def test_the_state_of_a_job_without_a_document(
    folder, files, state, now_s, expected, words
) -> None:
    at = only(folder)
    for name in files:
        made_up.write(at / name, "9\n" if name == "exit_code" else "{}")
    if "submitted.json" in files:
        submitted(at, state)
    node = job(folder, now_s=now_s)
    assert node.state == expected
    assert node.reason is None if words is None else words in node.reason.message


def test_the_tail_of_a_huge_log_is_read_and_made_safe(folder: Path) -> None:
    at = only(folder)
    submitted(at, "FAILED")
    with (at / "log.txt").open("wb") as log:
        log.truncate(1 << 32)  # a hole: it takes no room
        log.seek(0, os.SEEK_END)
        log.write(b"\none\ntwo \x1b]0;owned\x07\xff\n")
    assert job(folder).log[-2:] == ["one", "two \\x1b]0;owned\\x07\ufffd"]


@pytest.mark.parametrize(("code", "state"), [(None, "running"), ("130", "partial")])
def test_a_journal_without_an_end_counts_for_what_is_in_it(folder, code, state) -> None:
    at = only(folder, "submitted.json")
    (at / "run.jsonl").write_bytes(JOURNAL.read_bytes()[:-200])
    if code:
        made_up.write(at / "exit_code", code)
    node = job(folder)
    assert node.state == state and node.run.answers
    assert job(folder, now_s=LATE).state == "partial"


def measured_nothing(text: str) -> str:
    """The document without its measurements, as a run whose time ran out has it."""
    found = json.loads(text)
    verdicts = [
        {**each, "pick": None, "pick_ratio": None, "pick_ratio_ci95": None,
         "reasons": ["Nothing was measured: time ran out."]}
        for each in found["verdicts"]
    ]  # fmt: skip
    return json.dumps({**found, "verdicts": verdicts})


def test_a_run_that_measured_nothing_has_not_answered(folder: Path) -> None:
    for at in folder.glob("jobs/*/document.json"):
        made_up.write(at, measured_nothing(at.read_text()))
    found = read_folder(folder, NOW)
    assert [node.state for node in found.nodes] == ["failed"] * 3
    assert found.nodes[0].reason.message == "Nothing was measured: time ran out."
    shown = fleet_document(head("fleet"), found)
    assert not shown.is_complete
    assert shown.rows == []


def test_a_plain_run_has_no_verdict_to_compare(tmp_path: Path) -> None:
    made_up.write(tmp_path / "mail.json", document("run-sweep"))
    (node,) = read_folder(tmp_path, NOW).nodes
    assert (node.state, node.reason.message) == ("failed", NO_VERDICT)


def test_a_whole_journal_stands_for_a_document_that_is_cut_off(folder: Path) -> None:
    at = folder / "jobs" / "old-1"
    journal = at / "run.jsonl"
    journal.write_bytes(b"".join(encode(event) + b"\n" for event in scenes.cpu_only()))
    made_up.write(at / "document.json", "{")
    node = job(folder)
    assert node.state == "done" and node.run.status == "done"
    assert node.reason.message.startswith("document.json is not usable: ")


def test_a_run_that_was_cut_short_is_partial(folder: Path) -> None:
    at = folder / "jobs/old-1/document.json"
    made_up.write(at, at.read_text().replace('"status": "done"', '"status": "cancelled"'))
    node = job(folder)
    assert node.state == "partial" and node.run.status == "cancelled"


def test_a_run_that_was_refused_shows_the_end_of_its_log(folder: Path) -> None:
    at = folder / "jobs/old-1"
    found = json.loads((at / "document.json").read_text())
    ended = {**found["run"], "status": "failed"}
    made_up.write(at / "document.json", {**found, "run": ended, "verdicts": [], "measurements": []})
    for name in ("old-1", "new-1"):
        made_up.write(folder / "jobs" / name / "log.txt", "workbench: it needs a GPU\n")
    node = job(folder)
    assert (node.state, node.log) == ("failed", ["workbench: it needs a GPU"])
    assert (job(folder, "new-1").state, job(folder, "new-1").log) == ("done", [])


def test_documents_that_came_by_mail_are_further_machines(folder: Path) -> None:
    made_up.write(folder / "mail.json", made_up.document(1.0, "elsewhere"))
    (folder / "mail.jsonl").write_bytes(JOURNAL.read_bytes())
    made_up.write(folder / "fleet-document.json", "{}")  # the collected document is no machine
    found = read_folder(folder, NOW)
    assert [node.name for node in found.nodes[3:]] == ["mail.json", "mail.jsonl"]
    assert [node.state for node in found.nodes[3:]] == ["done", "partial"]
    assert found.nodes[3].node == "elsewhere"
    assert found.warnings == []


def test_copies_of_a_run_count_once_as_the_most_complete(folder: Path) -> None:
    lines = JOURNAL.read_bytes().splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if line.startswith(b'{"event":"RaceEnded"'))
    (folder / "a.jsonl").write_bytes(b"".join(lines[:cut]))
    for name in ("b.jsonl", "c.jsonl"):
        (folder / name).write_bytes(JOURNAL.read_bytes())
    whole = folder / "jobs/old-1/document.json"
    (folder / "a.json").write_bytes(whole.read_bytes())
    found = read_folder(folder, NOW)
    assert [node.name for node in found.nodes] == ["old-1", "new-1", "next-1", "b.jsonl"]
    assert [warning.message.partition(" and ")[0] for warning in found.warnings] == [
        "a.json holds the same run as old-1",
        "a.jsonl holds the same run as b.jsonl",
        "c.jsonl holds the same run as b.jsonl",
    ]


@pytest.mark.parametrize(
    ("name", "reason"), [("advise-model", "few_samples"), ("advise-command", None)]
)
def test_documents_about_the_users_own_have_their_hash(tmp_path, name, reason) -> None:
    made_up.write(tmp_path / "a.json", document(name))
    (node,) = read_folder(tmp_path, NOW).nodes
    assert len(node.run.subject) == 64
    (answer,) = node.run.answers
    assert reason == (answer.uncompared and answer.uncompared.code)
    assert (answer.value_s is None) is (reason is not None)


def test_a_document_without_samples_is_said_to_lack_them(tmp_path: Path) -> None:
    found = document("advise-model")
    for each in found["measurements"]:
        each["samples_s"] = []
    made_up.write(tmp_path / "a.json", found)
    (answer,) = read_folder(tmp_path, NOW).nodes[0].run.answers
    assert answer.uncompared.code == "no_samples"
    assert answer.uncompared.hint == "write it without --no-samples"


@pytest.mark.parametrize("name", ["pod.log", "pod.json"])
def test_the_raw_log_of_a_pod_is_a_document(folder: Path, name: str) -> None:
    text = json.dumps(made_up.document(1.0, "pod"), indent=1)
    marks = [f"-----{word} WORKBENCH DOCUMENT-----" for word in ("BEGIN", "END")]
    raw = f"pulling\n-----BEGIN WORKBENCH DOCTOR-----\n{{}}\n{marks[0]}\n{text}\n{marks[1]}\nbye\n"
    made_up.write(folder / name, raw)
    made_up.write(folder / "launcher.log", "submitted\n")  # no pod's
    found = read_folder(folder, NOW)
    assert (found.nodes[3].node, found.nodes[3].state, found.warnings) == ("pod", "done", [])
    recordings, flaws = load([folder])
    assert flaws == []
    assert sum(each.file == name for each in recordings) == 1
    made_up.write(folder / name, raw[:5000])
    (warning,) = read_folder(folder, NOW).warnings
    assert warning.message.startswith(f"{name} is not usable: it is empty or ends too early")


def test_fleets_in_the_folder_of_another_are_named_and_judged_by_their_own_plans(folder) -> None:
    second = folder / "desk"
    made_up.make(second, 3)
    plan = json.loads((second / "fleet.json").read_text())
    made_up.write(second / "fleet.json", {**plan, "deadline_s": 1.0})
    (second / "jobs" / "old-1" / "document.json").unlink()
    (folder / "jobs" / "old-1" / "document.json").unlink()
    made_up.write(second / "mail.json", "{")
    found = read_folder(folder, NOW)
    states = {node.name: node.state for node in found.nodes}
    assert states["old-1"] == "pending" and states["desk/old-1"] == "lost"
    assert len(states) == 6
    (warning,) = found.warnings
    assert warning.message.startswith("desk: mail.json is not usable")
    (row,) = [e for e in fleet_document(head("fleet"), found).rows if e.scenario == "convolution"]
    assert {cell.node_type: cell.nodes for cell in row.cells} == {"new": 2, "next": 2}
    assert len(read_folder(folder, NOW, alone=True).nodes) == 3
    recordings, _ = load([folder])
    assert {each.file.split("/")[0] for each in recordings} == {"desk", "jobs"}


def test_a_run_of_scaling_answers_without_a_verdict(folder: Path) -> None:
    found = document("run-sweep")
    del found["measurements"][2:]
    for ranks, measured in enumerate(found["measurements"], start=1):
        measured["case"]["workload"] = "scaling"
        measured["work"]["ranks"] = ranks
        measured["figures"] = {"sync_fraction": 0.25, "scaling_efficiency_fraction": 0.5}
    found["tool"]["version"] = job(folder).run.version
    made_up.write(folder / "jobs" / "old-1" / "document.json", found)
    node = job(folder)
    assert node.state == "done"
    assert [each.ranks for each in node.run.scaling] == [1, 2]
    shown = fleet_document(head("fleet"), read_folder(folder, NOW))
    assert shown.is_complete
    (table,) = [part for part in sections(shown) if part.title == "Scaling over nodes"]
    assert table.rows[1][:5] == ["old-1", "old", "n0", "2", "cpu"]
    assert table.rows[1][6:] == ["50%", "25%"]
    del found["measurements"][1]
    made_up.write(folder / "jobs" / "old-1" / "document.json", found)
    assert job(folder).state == "failed"


def test_a_folder_of_documents_needs_no_plan(tmp_path: Path) -> None:
    made_up.write(tmp_path / "a.json", made_up.document(1.0, "a"))
    found = read_folder(tmp_path, NOW)
    assert (found.plan, [node.state for node in found.nodes]) == (None, ["done"])


def test_jobs_of_another_plan_in_the_folder_are_not_lost(folder: Path) -> None:
    made_up.write(folder / "jobs" / "more-1" / "document.json", made_up.document(1.0, "m"))
    node = job(folder, "more-1")
    assert (node.state, node.node_type) == ("done", "")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("{", "it is empty or ends too early"),
        ("[1]", "Expected `object`"),
        ("{}", "missing required field"),
        ('{"fleet_version": NaN}', "invalid character"),
        (None, "it is a folder"),
    ],
)
def test_jobs_are_read_without_their_plan(folder: Path, plan: str | None, words: str) -> None:
    (folder / "fleet.json").unlink()
    if plan is None:
        (folder / "fleet.json").mkdir()
    else:
        made_up.write(folder / "fleet.json", plan)
    found = read_folder(folder, NOW)
    assert [node.state for node in found.nodes] == ["done"] * 3
    (warning,) = found.warnings
    assert words in warning.message and "fleet.json" in warning.message


@pytest.mark.parametrize(("name", "value"), [("fleet_version", 2), ("jobs", [{"name": "../x"}])])
def test_a_plan_that_is_not_ours_is_one_line(folder: Path, name: str, value: Any) -> None:
    plan = json.loads((folder / "fleet.json").read_text())
    jobs = [{"node_type": "", "node": "", **job} for job in value] if name == "jobs" else value
    made_up.write(folder / "fleet.json", {**plan, name: jobs})
    found = read_folder(folder, NOW)
    assert len(found.warnings) == 1 and len(found.nodes) == 3


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
