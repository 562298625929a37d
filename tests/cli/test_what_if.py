"""Devices that are not here, by the real command line and files in a state folder."""

import json

from support import budget, printed


def test_a_recorded_run_answers_for_the_same_job(cli) -> None:
    folder = cli.runs.with_name("recordings")
    folder.mkdir(parents=True)
    (folder / "notes.json").write_text("not a run")
    row = ("advise", "branching", "--backend", "numpy", *budget(3))
    made = cli(*row, "--output", str(folder / "here.json"))
    assert made.returncode == 0, made.stderr
    machine = json.loads((folder / "here.json").read_text())["machine"]["cpu"]
    device = f"{machine['model']}, {machine['effective_cores']} cores"
    done = cli(*row, "--what-if", device, "--json")
    document = printed(done)
    (verdict,) = document["verdicts"]
    (found,) = verdict["what_if"]
    assert (found["basis"], found["source"], found["missing"]) == ("recorded", "here.json", None)
    assert (found["ratio"] is None) == (found["uncompared"] is not None)
    assert found["of_this_kind"] is True
    codes = [warning["code"] for warning in document["warnings"]]
    assert codes.count("recording_unusable") == 1
    assert "--what-if" in verdict["reproduce"]
    assert "what if" in cli("open", "last", "--plain").stdout


def test_a_device_nobody_recorded_ends_it_before_anything_is_measured(cli) -> None:
    done = cli("advise", "branching", "--what-if", "no such device", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no recording. Recorded: " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not list(cli.runs.glob("*.jsonl"))
