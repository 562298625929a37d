"""Many machines, one advice: what is compared, and how surely."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from builders import events
from msgspec.structs import replace
from recorded_devices import document as recorded, matmul, put, rows

from benchmarks import fleet as made_up
from workbench.advisor import whatif_devices
from workbench.advisor.fleet import fleet_document, priced
from workbench.cli.program import head
from workbench.fleet.reader import NO_VERDICT, read_folder
from workbench.planning.request import Request
from workbench.planning.usage import UsageError
from workbench.records.events import encode
from workbench.records.fleet import FleetDocument, FleetRow
from workbench.records.verdict import WhatIf
from workbench.stats.ratios import Z95
from workbench.stats.unpaired import BETWEEN_RUNS, between_equals, far_ends


def fleet(folder: Path, **prices: float) -> FleetDocument:
    return priced(fleet_document(head("fleet"), read_folder(folder, 0.0)), prices)


def row(found: FleetDocument, scenario: str = "convolution") -> FleetRow:
    return next(each for each in found.rows if each.scenario == scenario)


def changed(folder: Path, job: str, **members: Any) -> None:
    file = folder / "jobs" / job / "document.json"
    made_up.write(file, {**json.loads(file.read_text()), **members})


# ---------------------------------------------------------------------- choice


def test_the_node_type_that_is_faster_beyond_doubt_is_the_choice(tmp_path: Path) -> None:
    made_up.make(tmp_path, 6, {"slow": 1.0, "fast": 0.5})
    found = row(fleet(tmp_path))
    assert (found.choice, found.alike) == ("fast", ["fast"])
    assert [cell.node_type for cell in found.cells] == ["fast", "slow"]
    assert found.lead == found.cells[1].ratio == pytest.approx(2.0)
    assert found.lead_ci95[0] < 2.0 < found.lead_ci95[1] and found.lead_ci95[0] > 1.5


def test_node_types_that_cannot_be_told_apart_are_either(tmp_path: Path) -> None:
    made_up.make(tmp_path, 9)
    found = row(fleet(tmp_path))
    assert (found.choice, found.alike) == ("either", ["next", "new"])


def test_the_paired_lead_within_a_node_stays_as_it_was(tmp_path: Path) -> None:
    made_up.make(tmp_path, 3)
    verdict = json.loads((tmp_path / "jobs/new-1/document.json").read_text())["verdicts"][2]
    cell = next(c for c in row(fleet(tmp_path)).cells if c.node_type == "new")
    paired = [verdict["pick_ratio"], *verdict["pick_ratio_ci95"]]
    assert [cell.lead, *cell.lead_ci95] == pytest.approx(paired, rel=1e-5)


def test_one_node_type_that_answered_is_no_choice_while_others_run(tmp_path: Path) -> None:
    made_up.make(tmp_path, 2, {"one": 1.0, "two": 0.5})
    (tmp_path / "jobs/two-1/document.json").unlink()
    found = fleet(tmp_path)
    assert (row(found).choice, row(found).alike) == ("unknown", ["one"])
    assert row(fleet(tmp_path, cpu=0.1)).cheapest == []
    assert not found.is_complete


@pytest.mark.parametrize(("time", "choice"), [(0.25, "unknown"), (1.1, "unknown"), (9.0, "fast")])
def test_a_node_type_without_an_interval_may_be_the_best_unless_far_behind(
    tmp_path: Path, time: float, choice: str
) -> None:
    made_up.make(tmp_path, 6, {"slow": 1.0, "fast": 0.5, "vague": 0.5 * time})
    found = fleet(tmp_path)
    for node in found.nodes:
        if node.node_type == "vague" and node.run:
            for at, answer in enumerate(node.run.answers):
                node.run.answers[at] = replace(answer, value_ci95_s=None)
    assert row(priced(found, {})).choice == choice


def test_the_node_in_the_middle_stands_for_equal_nodes(tmp_path: Path) -> None:
    made_up.make(tmp_path, 3, {"one": 1.0})
    (cell,) = row(fleet(tmp_path)).cells
    assert (cell.node, cell.nodes, cell.agreeing, cell.slowest) == ("one-2", 3, 3, "one-3")
    assert cell.spread == pytest.approx(1.01 / 0.99)


# ------------------------------------------------------------------- intervals


def test_the_interval_takes_the_far_ends_and_what_equal_nodes_differ_by(tmp_path: Path) -> None:
    made_up.make(tmp_path, 6, {"slow": 1.0, "fast": 0.5})
    found = fleet(tmp_path)
    fast, slow = row(found).cells
    values = [
        [a.value_s for n in found.nodes if n.node_type == kind for a in n.run.answers[i : i + 1]]
        for i in range(3)
        for kind in ("slow", "fast")
    ]
    spread = between_equals(values)
    assert spread > 0.01
    expected = far_ends(
        (slow.value_s, slow.value_ci95_s),
        (fast.value_s, fast.value_ci95_s),
        math.hypot(spread, spread),
    )
    assert row(found).lead_ci95 == pytest.approx(expected.interval)


def test_a_node_type_whose_nodes_differ_cannot_be_sure(tmp_path: Path) -> None:
    made_up.make(tmp_path, 4, {"slow": 1.0, "fast": 0.8})
    assert row(fleet(tmp_path)).choice == "fast"
    for number, factor in ((1, 0.6), (2, 1.0)):
        file = tmp_path / "jobs" / f"fast-{number}" / "document.json"
        made_up.write(file, made_up.document(factor, "n"))
    assert row(fleet(tmp_path)).choice == "either"


def test_runs_differ_at_least_as_processes_do() -> None:
    assert between_equals([]) == between_equals([[1.0], [2.0], []]) == BETWEEN_RUNS
    assert between_equals([[1.0, 1.001]] * 20) == BETWEEN_RUNS
    assert WhatIf.__struct_defaults__[-1] == BETWEEN_RUNS


def test_two_nodes_say_less_about_their_spread_than_many() -> None:
    apart = math.exp(0.1)
    one, many = between_equals([[1.0, apart]]), between_equals([[1.0, apart]] * 40)
    assert many == pytest.approx(0.1 / math.sqrt(2), rel=0.05)
    assert one == pytest.approx(0.1 / math.sqrt(2) * 12.706 / Z95, rel=1e-3)


def test_far_ends_contain_both_intervals() -> None:
    ratio = far_ends((2.0, (1.8, 2.2)), (1.0, (0.9, 1.1)), 0.0)
    assert (ratio.value, *ratio.interval) == pytest.approx((2.0, 1.8 / 1.1, 2.2 / 0.9))


# ----------------------------------------------------------------------- money


def test_a_price_of_a_node_type_or_of_its_device_finds_the_cheapest(tmp_path: Path) -> None:
    made_up.make(tmp_path, 4, {"slow": 1.0, "fast": 0.5})
    unpriced = fleet(tmp_path)
    assert row(unpriced).cheapest == []
    assert row(fleet(tmp_path, slow=0.1)).cheapest == []  # the other has no price
    assert row(fleet(tmp_path, cpu=0.1)).cheapest == ["fast"]
    found = row(fleet(tmp_path, cpu=0.1, fast=1.0))
    assert found.cheapest == ["slow"]
    fast, slow = found.cells
    assert fast.per_million / slow.per_million == pytest.approx(10 * fast.value_s / slow.value_s)
    assert row(fleet(tmp_path, slow=0.1, fast=0.2)).cheapest == ["slow", "fast"]
    assert priced(fleet(tmp_path, cpu=0.1), {}) == unpriced


# ---------------------------------------------------------------- incomparable


def test_another_version_model_or_job_is_incomparable_and_named(tmp_path: Path) -> None:
    made_up.make(tmp_path, 8, {"one": 1.0})
    changed(tmp_path, "one-1", tool={"name": "workbench", "version": "0.0.9", "command": ""})
    changed(tmp_path, "one-2", model={"facts": {"sha256": "ab"}})
    file = tmp_path / "jobs" / "one-3" / "document.json"
    made_up.write(
        file, file.read_text().replace('"n": 1024', '"n": 512').replace("n=1024", "n=512")
    )
    found = fleet(tmp_path)
    assert [node.state for node in found.nodes] == ["incomparable"] * 3 + ["done"] * 5
    version, model, job = (node.reason.message for node in found.nodes[:3])
    assert "workbench 0.0.9, not 0.1.0" in version
    assert "another model" in model
    assert "its floating_point measured other work than the others: matmul[n=512]" in job
    assert row(found).cells[0].nodes == 5


def test_the_plans_own_version_and_model_count_before_those_of_most(tmp_path: Path) -> None:
    made_up.make(tmp_path, 2, {"one": 1.0})
    plan = json.loads((tmp_path / "fleet.json").read_text())
    inputs = {"model": {"file": "m.onnx", "sha256": "ab"}}
    made_up.write(tmp_path / "fleet.json", {**plan, "inputs": inputs})
    changed(tmp_path, "one-1", model={"facts": {"sha256": "ab"}})
    assert [node.state for node in fleet(tmp_path).nodes] == ["done", "incomparable"]
    changed(tmp_path, "one-2", model={"facts": {"sha256": "ab"}})
    made_up.write(tmp_path / "fleet.json", {**plan, "tool_version": "0.2.0"})
    assert {node.state for node in fleet(tmp_path).nodes} == {"done"}  # both have another one
    tool = {"name": "workbench", "version": "0.2.0", "command": "workbench"}
    changed(tmp_path, "one-2", tool=tool)
    assert [node.state for node in fleet(tmp_path).nodes] == ["incomparable", "done"]


def test_nodes_that_failed_say_so_and_have_no_vote(tmp_path: Path) -> None:
    made_up.make(tmp_path, 4, {"one": 1.0})
    changed(tmp_path, "one-1", code={"facts": {"code_sha256": "ab"}})
    for name in ("one-2", "one-3", "one-4"):
        changed(tmp_path, name, verdicts=[], measurements=[])
    found = fleet(tmp_path)
    assert [node.state for node in found.nodes] == ["done", "failed", "failed", "failed"]
    assert {node.reason.message for node in found.nodes[1:]} == {NO_VERDICT}
    assert row(found).cells[0].nodes == 1


def test_a_node_that_has_just_begun_is_running(tmp_path: Path) -> None:
    made_up.make(tmp_path, 2, {"one": 1.0})
    plan = json.loads((tmp_path / "fleet.json").read_text())
    inputs = {"model": {"file": "m.onnx", "sha256": "ab"}}
    made_up.write(tmp_path / "fleet.json", {**plan, "inputs": inputs})
    changed(tmp_path, "one-1", model={"facts": {"sha256": "ab"}})
    (tmp_path / "jobs/one-2/document.json").unlink()
    began = b"".join(encode(event) + b"\n" for event in events({})[:2])  # the machine, no model
    (tmp_path / "jobs/one-2/run.jsonl").write_bytes(began)
    assert [node.state for node in fleet(tmp_path).nodes] == ["done", "running"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("1024", "512"), ('"model": null', '"model": {"facts": {"sha256": "ab"}}')],
    ids=["size", "model"],
)
def test_documents_by_mail_do_not_outvote_the_nodes_of_the_plan(tmp_path, old, new) -> None:
    made_up.make(tmp_path, 2, {"one": 1.0})
    for number in range(3):
        mail = json.dumps(made_up.document(1.0, f"mail{number}"))
        assert old in mail
        made_up.write(tmp_path / f"{number}.json", mail.replace(old, new))
    found = fleet(tmp_path)
    assert [node.state for node in found.nodes] == ["done"] * 2 + ["incomparable"] * 3
    assert row(found).cells[0].nodes == 2


def test_another_objective_is_another_measurement(tmp_path: Path) -> None:
    made_up.make(tmp_path, 3, {"one": 1.0})
    file = tmp_path / "jobs/one-3/document.json"
    verdicts = json.loads(file.read_text())["verdicts"]
    verdicts[1]["objective"] = "latency"
    changed(tmp_path, "one-3", verdicts=verdicts)
    *_, node = fleet(tmp_path).nodes
    assert node.state == "incomparable"
    assert node.reason.message.endswith("matmul[n=1024]/1 products for latency")


def test_a_copy_of_the_model_under_another_name_is_the_same_work(tmp_path: Path) -> None:
    text = (made_up.SOURCE.parent / "advise-model.json").read_text()
    made_up.write(tmp_path / "a.json", text)
    copy = text.replace("small.onnx", "model.onnx").replace('"hostname":"host"', '"hostname":"b"')
    made_up.write(tmp_path / "b.json", copy)
    assert [node.state for node in fleet(tmp_path).nodes] == ["done", "done"]


def test_what_cannot_be_compared_says_why(tmp_path: Path) -> None:
    made_up.make(tmp_path, 2, {"one": 1.0, "two": 0.5})
    for name in ("one-1", "two-1"):
        file = tmp_path / "jobs" / name / "document.json"
        text = file.read_text().replace('"objective": "throughput"', '"objective": "memory"', 1)
        made_up.write(file, text)
    made_up.write(file, text.replace('"simulated": false', '"simulated": true'))
    found = fleet(tmp_path)
    reasons = {
        r.scenario: [c.uncompared and c.uncompared.code for c in r.cells] for r in found.rows
    }
    assert reasons["floating_point"] == ["objective", "objective"]
    assert reasons["convolution"] == [None, "simulated"]
    assert row(found).choice == "unknown"


# ----------------------------------------------------------------- node types


def test_an_equal_machine_by_mail_joins_the_node_type_of_the_plan(tmp_path: Path) -> None:
    made_up.make(tmp_path, 2, {"one": 1.0})
    made_up.write(tmp_path / "mail.json", made_up.document(1.0, "elsewhere"))
    other = made_up.document(1.0, "larger")
    other["machine"]["memory"]["total_bytes"] *= 2
    made_up.write(tmp_path / "other.json", other)
    kinds = [node.node_type for node in fleet(tmp_path).nodes]
    assert kinds[:3] == ["one"] * 3 and kinds[3].endswith("2 cores, 47 GiB")


# ------------------------------------------------------------- one mechanism


@pytest.mark.usefixtures("recordings_folder")
def test_what_if_reads_the_same_folder_by_the_same_rule(tmp_path: Path) -> None:
    folder = tmp_path / "night"
    for number, time in enumerate((1.0e-3, 1.1e-3), start=1):
        at = folder / "jobs" / f"h200-{number}"
        at.mkdir(parents=True)
        put(at, recorded({matmul(4096): time}), "document.json")
    made_up.write(folder / "jobs" / "h200-3" / "submitted.json", "{}")  # has not answered
    made_up.write(folder / "fleet.json", "{}")
    (found,) = rows(what_if=(str(folder),))
    request = Request(scenarios=("floating_point",), what_if=(str(folder),))
    assert whatif_devices.fill([found], request) == []
    (answer,) = found.what_if
    assert (answer.device, answer.source) == ("NVIDIA H200", "jobs/h200-2/document.json")
    values = [1.0e-3, 1.1e-3]
    assert answer.spread == pytest.approx(between_equals([values]), rel=0.02)


def test_a_thousand_nodes_answer_as_three_do(tmp_path: Path) -> None:
    made_up.make(tmp_path / "many", 120)
    made_up.make(tmp_path / "few", 9)
    many, few = fleet(tmp_path / "many"), fleet(tmp_path / "few")
    assert [(r.choice, r.alike) for r in many.rows] == [(r.choice, r.alike) for r in few.rows]
    assert [c.value_s for r in many.rows for c in r.cells] == [
        c.value_s for r in few.rows for c in r.cells
    ]
    assert sum(cell.nodes for cell in row(many).cells) == 120


@pytest.mark.usefixtures("recordings_folder")
def test_a_device_that_is_asked_for_twice_answers_once(recordings_folder: Path) -> None:
    put(recordings_folder, recorded({matmul(4096): 1e-3}))
    request = Request(scenarios=("floating_point",), what_if=("h200", "h200"))
    (found,) = rows()
    whatif_devices.fill([found], request)
    assert [answer.spread for answer in found.what_if] == [BETWEEN_RUNS]
    with pytest.raises(UsageError, match="no recording"):
        whatif_devices.fill([found], Request(what_if=("x" * 5000,)))
