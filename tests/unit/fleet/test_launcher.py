"""A launcher with a fake cluster: what it submits, says and writes down."""

import json
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from workbench.fleet import launcher as launchers
from workbench.fleet.launcher import Launcher, begin, plan_in
from workbench.fleet.plan import Node, make_plan, plan_lines
from workbench.fleet.reader import read_folder
from workbench.planning.request import Request
from workbench.planning.usage import UsageError

DOCUMENT = Path(__file__).parents[2] / "fixtures" / "documents" / "advise-prices.json"
NODES = [Node("a", 8, 16 << 30, partition="cpu"), Node("b", 8, 16 << 30, partition="cpu")]
NODES += [Node("g", 32, 64 << 30, ("ib",), ("gpu:a100:4",), "gpu", forces_sharing=True)]


class Cluster:
    """Submits nothing; the states are what a test says."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.words: dict[str, str] = {}
        self.cancelled: list[str] = []
        self.refuses = ""
        self.uncancelled: list[str] = []

    def submit(self, job, script: Path) -> str:
        assert script.read_text().startswith("#!/bin/sh\n")
        if job.name == self.refuses:
            raise UsageError("Slurm refuses it: exclusive is not allowed")
        self.submitted.append(job.name)
        return f"id-{job.name}"

    def states(self, jobs) -> dict[str, str]:
        return {
            job_id: self.words[job.name] for job_id, job in jobs.items() if job.name in self.words
        }

    def cancel(self, jobs) -> list[str]:
        self.cancelled += jobs
        return self.uncancelled


class Scene:
    """A folder with a plan, and launchers that look into it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.cluster, self.said = folder, Cluster(), list[str]()
        monkeypatch.setattr(launchers, "Slurm", lambda *_: self.cluster)
        self.plan = begin(folder, plan())
        self.launcher = self.another()

    def look(self, words: dict[str, str] | None = None) -> bool:
        """Look once more, perhaps after other words of the cluster."""
        if words is not None:
            self.cluster.words = words
        return self.launcher.look()

    def another(self) -> Launcher:
        made = Launcher(self.folder, self.plan, self.said.append)
        made.submit()
        return made

    def after_the_deadline(self) -> None:
        """Another launcher finds a plan whose deadline has passed."""
        self.plan = replace(self.plan, created_at="2026-01-01T00:00:00+00:00")
        self.another().watch(15.0)

    def note(self, name: str) -> dict[str, str]:
        """The record of a submitted job."""
        return json.loads((self.folder / "jobs" / name / "submitted.json").read_text())

    def answer(self, name: str, code: str = "0", document: bool = True) -> None:
        place = self.folder / "jobs" / name
        (place / "log.txt").write_text("first\nlast \x1b[31mline\n\n")
        (place / "exit_code").write_text(f"{code}\n")
        if document:
            (place / "document.json").write_bytes(DOCUMENT.read_bytes())

    def states(self) -> list[str]:
        """The states of its nodes, as a reader sees them."""
        return [node.state for node in read_folder(self.folder, time.time()).nodes]


def plan(per_type: int = 2, scaling: str | None = None, **request: object):
    settings = {"shared": False, "python": "/venv/bin/python", "deadline_s": 600.0}
    asked = Request(**{"quick": True, **request})
    return make_plan(NODES, asked, per_type=per_type, scaling=scaling, **settings)


def script_of(folder: Path) -> str:
    return (folder / "jobs" / "cpu-8c-1" / "run.sh").read_text()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path / "fleet", monkeypatch)


def test_the_plan_in_words() -> None:
    lines = list(plan_lines(plan()))
    assert lines[:4] == [
        "cpu-8c: 8 cores, 16 GiB",
        "  2 of 2 nodes, exclusive: a, b",
        "gpu-32c-a100-4: 32 cores, 64 GiB, ib, gpu:a100:4",
        "  1 of 1 nodes, NOT exclusive, others disturb the run: g",
    ]
    assert lines[4].startswith("3 jobs, 0.8 node-minutes of measuring")
    assert "/venv/bin/python -P -m workbench advise --quick" in lines[6]


def test_the_plan_is_written_once(scene) -> None:
    assert plan_in(scene.folder) == scene.plan
    assert not list(scene.folder.glob(".*"))
    with pytest.raises(UsageError, match="Directory not empty"):
        begin(scene.folder, plan())
    (scene.folder / "fleet.json").write_text("[")
    with pytest.raises(UsageError, match=r"fleet.json cannot be read: .*"):
        plan_in(scene.folder)


def test_files_that_options_name_travel_with_their_hash(tmp_path) -> None:
    model = tmp_path / "my net.onnx"
    model.write_bytes(b"abc")
    asked = replace(plan(), arguments=["advise", "--model", str(model), "--quick"])
    made = begin(tmp_path / "fleet", asked)
    assert made.inputs["model"].file == "inputs/model.onnx"
    assert made.inputs["model"].sha256.startswith("ba7816bf8f01cfea")
    assert made.arguments[2] == str(tmp_path / "fleet" / "inputs" / "model.onnx")
    missing = replace(asked, arguments=["advise", "--model", "none.onnx"])
    with pytest.raises(UsageError, match=r"No such file or directory: none.onnx"):
        begin(tmp_path / "other", missing)


def test_a_launcher_that_comes_second_changes_nothing(tmp_path) -> None:
    """Both have looked for a plan before either has written one."""
    folder, model = tmp_path / "fleet", tmp_path / "net.onnx"
    model.write_bytes(b"abc")
    begin(folder, replace(plan(), arguments=["advise", "--model", str(model)]))
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    model.write_bytes(b"other")
    with pytest.raises(UsageError, match=r"Directory not empty: .* go on with --into alone"):
        begin(folder, replace(plan(), arguments=["--model", str(model)]))
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_the_wheels_of_a_bundle_are_copied_and_the_plan_says_so(tmp_path) -> None:
    (tmp_path / "cpu_gpu_workbench-1-py3-none-any.whl").write_bytes(b"abc")
    asked = plan()
    asked = replace(asked, wheels=str(tmp_path))
    assert f"from a copy of {tmp_path}" in list(plan_lines(asked))[-1]
    made = begin(tmp_path / "fleet", asked)
    (name,) = made.inputs
    assert made.inputs[name].sha256.startswith("ba7816bf8f01cfea")
    assert (tmp_path / "fleet" / made.inputs[name].file).read_bytes() == b"abc"
    assert f"\nwheels={tmp_path}/fleet/inputs/wheels\n" in script_of(tmp_path / "fleet")


def test_scaling_is_a_job_of_two_nodes(tmp_path) -> None:
    made = plan(per_type=1, scaling="cpu-8c")
    assert [(job.name, job.node, job.nodes) for job in made.jobs[-2:]] == [
        ("gpu-32c-a100-4-1", "g", 1),
        ("scaling", "a,b", 2),
    ]
    lines = list(plan_lines(made))
    run = "workbench run scaling --budget=17 --quick"
    assert f"scaling: 2 nodes at once, a rank on each: a,b: {run}" in lines
    assert any(line.startswith("3 jobs, 1.1 node-minutes of measuring") for line in lines)
    begin(tmp_path, made)
    text = (tmp_path / "jobs" / "scaling" / "run.sh").read_text()
    assert "\nnodes=2\n" in text
    assert "set -- run --jsonl scaling --budget=17 --quick\n" in text
    for name in ("gpu-32c-a100-4", "cpu"):
        with pytest.raises(UsageError, match="Choices: cpu-8c"):
            plan(scaling=name)


def test_a_budget_that_is_too_small_is_said_in_the_plan() -> None:
    small, enough = (list(plan_lines(plan(quick=False, budget_s=s)))[-1] for s in (16.0, 17.0))
    assert small == "warning: below 17 s a busy node may measure nothing: raise --budget"
    assert "warning" not in enough


@pytest.mark.parametrize(
    ("arguments", "run"),
    [([], "--jsonl"), (["--budget", "30"], "--jsonl --budget 30"), (["advise"], "advise --jsonl")],
)
def test_a_run_without_a_name_has_no_option_between_an_option_and_its_value(
    tmp_path, arguments: list[str], run: str
) -> None:
    begin(tmp_path, replace(plan(), arguments=arguments))
    assert f"\nset -- {run}\n" in script_of(tmp_path)


def test_the_arguments_of_a_script_name_no_files_of_the_fleet(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["advise", "--quick", "--", "--model", "resnet18", "--torch"]
    made = begin(tmp_path / "fleet", replace(plan(), arguments=asked))
    assert (made.arguments, made.inputs) == (asked, {})
    assert f"\ndirectory={tmp_path}/fleet\n" in script_of(tmp_path / "fleet")


def test_the_script_quotes_what_users_name(tmp_path) -> None:
    odd = tmp_path / "a folder; $(touch no)"
    begin(odd, replace(plan(), arguments=["run", "spin", "--set", "n=1;ls"]))
    script = odd / "jobs" / "cpu-8c-1" / "run.sh"
    assert "set -- run --jsonl spin --set 'n=1;ls'\n" in script.read_text()
    assert subprocess.run(["sh", "-n", script]).returncode == 0


@pytest.mark.parametrize(("option", "stands_here"), [("--torch", True), ("--seed", False)])
def test_own_code_is_found_where_the_user_stands(
    tmp_path, monkeypatch, option, stands_here
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "fleet"
    begin(folder, replace(plan(), arguments=["advise", option, "1"]))
    place = tmp_path if stands_here else folder
    assert f"\ndirectory={place}\n" in script_of(folder)


def test_every_job_is_submitted_once_even_by_another_launcher(scene) -> None:
    assert scene.cluster.submitted == ["cpu-8c-1", "cpu-8c-2", "gpu-32c-a100-4-1"]
    (scene.folder / "jobs" / "cpu-8c-2" / "submitted.json").unlink()
    scene.another()
    assert scene.cluster.submitted[3:] == ["cpu-8c-2"]


def test_changes_are_said_once_and_written_down(scene) -> None:
    scene.said.clear()
    scene.cluster.words = {"cpu-8c-1": "PENDING (Resources)"}
    assert scene.launcher.look() and scene.launcher.look()
    assert scene.said == ["cpu-8c-1 on a: PENDING (Resources)"]
    note = scene.note("cpu-8c-1")
    assert (note["job_id"], note["native_state"]) == ("id-cpu-8c-1", "PENDING (Resources)")


@pytest.mark.parametrize("code", ["0", "1", "3"])
def test_a_document_with_an_answer_is_one_whatever_the_exit_code(scene, code: str) -> None:
    scene.answer("cpu-8c-1", code)
    assert scene.launcher.look()
    assert scene.said[-1] == "cpu-8c-1 on a: done"
    for name in ("cpu-8c-2", "gpu-32c-a100-4-1"):
        scene.answer(name)
    assert not scene.launcher.look()
    assert scene.states() == ["done"] * 3


@pytest.mark.parametrize("code", ["0", "127"])
def test_a_run_that_failed_shows_the_end_of_its_log(scene, code: str) -> None:
    scene.answer("cpu-8c-1", code, document=False)
    scene.look()
    assert scene.said[-1] == (
        f"cpu-8c-1 on a: failed: it ended without a document, exit code {code}: last \\x1b[31mline"
    )


def test_a_damaged_note_is_written_again(scene) -> None:
    (scene.folder / "jobs" / "cpu-8c-1" / "submitted.json").write_text("{")
    scene.another()
    assert scene.note("cpu-8c-1")["job_id"] == "id-cpu-8c-1"


def test_a_cancelled_job_is_no_running_one_to_readers(scene) -> None:
    scene.look({"cpu-8c-1": "RUNNING"})
    scene.answer("cpu-8c-2")
    scene.look()
    assert scene.launcher.cancel()
    assert scene.cluster.cancelled == ["id-cpu-8c-1", "id-gpu-32c-a100-4-1"]
    assert scene.states() == ["failed", "done", "failed"]


def test_a_job_that_could_not_be_cancelled_is_named_and_not_called_cancelled(scene) -> None:
    scene.look({"cpu-8c-1": "RUNNING"})
    scene.cluster.uncancelled = ["id-cpu-8c-1"]
    assert not scene.launcher.cancel()
    assert "cpu-8c-1 on a: it could not be cancelled and may go on" in scene.said
    states = [scene.note(name)["native_state"] for name in ("cpu-8c-1", "cpu-8c-2")]
    assert states == ["RUNNING", "CANCELLED"]
    scene.said.clear()
    scene.after_the_deadline()
    assert scene.said[0] == "cpu-8c-1 on a: it could not be cancelled and may go on"


def test_the_word_of_the_cluster_ends_a_job_the_second_time(scene) -> None:
    scene.look({"cpu-8c-1": "NODE_FAIL (NodeDown)"})
    assert not [line for line in scene.said if "failed" in line]
    scene.look()
    assert scene.said[-1].startswith("cpu-8c-1 on a: failed: it ended without a document; its last")
    assert scene.said[-1].endswith("was NODE_FAIL (NodeDown)")


def test_a_job_that_is_forgotten_keeps_the_reason_for_its_end(scene) -> None:
    for words in ("TIMEOUT (TimeLimit)", "ENDED"):
        scene.cluster.words = {"cpu-8c-1": words}
        scene.launcher = scene.another()
        scene.look()
    scene.look()
    assert scene.said[-1].endswith("its last state was TIMEOUT (TimeLimit)")
    scene.look({"cpu-8c-2": "ENDED"})
    assert scene.said[-1] == "cpu-8c-2 on b: ENDED"


def test_a_job_that_is_forgotten_after_the_deadline_is_lost(scene) -> None:
    scene.look({"cpu-8c-1": "PENDING (Resources)"})
    scene.cluster.words = {"cpu-8c-1": "ENDED"}
    scene.after_the_deadline()
    assert "cpu-8c-1 on a: ENDED" not in scene.said
    lost = "cpu-8c-1 on a: lost: no document by the deadline, 10 min 00 s"
    assert f"{lost}; its last state was PENDING (Resources)" in scene.said


def test_a_folder_that_its_node_does_not_see_is_suspected(scene) -> None:
    scene.look({"cpu-8c-1": "FAILED (NonZeroExitCode)"})
    scene.look()
    assert scene.said[-1].endswith("is empty: the node may not see it, so name a shared folder")


def test_a_file_that_comes_late_still_counts(scene) -> None:
    scene.look({"cpu-8c-1": "COMPLETED"})
    scene.answer("cpu-8c-1")
    scene.look()
    assert scene.said[-1] == "cpu-8c-1 on a: done"


def test_a_refused_job_costs_only_itself(tmp_path, monkeypatch) -> None:
    scene = Scene(tmp_path / "fleet", monkeypatch)
    scene.cluster.refuses = "cpu-8c-1"
    (scene.folder / "jobs" / "cpu-8c-1" / "submitted.json").unlink()
    again = scene.another()
    refusal = "REFUSED (Slurm refuses it: exclusive is not allowed)"
    assert f"cpu-8c-1 on a: {refusal}" in scene.said
    for name in ("cpu-8c-2", "gpu-32c-a100-4-1"):
        scene.answer(name)
    assert not again.look()
    assert scene.states() == ["failed", "done", "done"]
    scene.cluster.refuses = ""
    assert scene.another().look()


def test_at_the_deadline_the_rest_is_cancelled(scene) -> None:
    scene.answer("cpu-8c-1")
    scene.after_the_deadline()
    assert scene.cluster.cancelled == ["id-cpu-8c-2", "id-gpu-32c-a100-4-1"]
    assert scene.said[-1] == (
        "gpu-32c-a100-4-1 on g: lost: no document by the deadline, 10 min 00 s"
    )
