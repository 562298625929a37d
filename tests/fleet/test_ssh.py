"""`workbench fleet run --hosts` on a real sshd."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
STUB = HERE / "stub_python"
OWN = (HERE / "own.toml").read_text()


def test_hosts_that_share_the_folder_answer(hosts, tmp_path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text('hosts = ["lab", "desk"]\n')
    code, err = hosts.run("--hosts-file", str(file))
    assert code == 0, err
    plan = json.loads((hosts.folder / "fleet.json").read_text())
    (kind,) = plan["node_types"]
    assert (plan["engine"], kind["nodes"]) == ("ssh", ["lab", "desk"])
    assert kind["cores"] >= 1 and kind["memory_bytes"] > 1 << 28 and kind["features"]
    assert err.count(": done") == 2
    assert all(job["partition"] is None for job in plan["jobs"])


def test_a_host_that_does_not_see_the_folder_gets_a_copy_and_is_read(hosts, tmp_path) -> None:
    """The launcher's folder is in a mount namespace of its own; sshd has another one there."""
    hosts.folder.mkdir()
    scenario = tmp_path / "own.toml"
    scenario.write_text(OWN)
    launcher = [sys.executable, "-m", "workbench", "fleet", "run", "--into", str(hosts.folder)]
    options = ["--hosts", "lab", "--python", str(STUB), "--every=1", "--scenarios", str(scenario)]
    hidden = f"mount -t tmpfs none {shlex.quote(str(hosts.folder))} && {shlex.join(launcher)}"
    kept = (
        f"{hidden} {shlex.join(options)}; code=$?; cat {hosts.folder}/jobs/*/exit_code; exit $code"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", kept],
        env=hosts.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    (there,) = (hosts.folder / "jobs").iterdir()  # as the host sees it
    assert (there / "document.json").exists()
    assert (hosts.folder / "inputs" / "scenarios.toml").read_text() == scenario.read_text()
    assert f"--scenarios {hosts.folder}/inputs/scenarios.toml" in (there / "run.sh").read_text()


def test_a_host_that_asks_for_a_password_is_an_error_of_one_line(hosts) -> None:
    code, err = hosts.run("--hosts", "lab,locked")
    assert code == 2
    assert err.startswith("workbench: locked cannot be used over ssh: ")
    assert "load a key that needs no password" in err
    assert err.count("\n") == 1
    assert not hosts.folder.exists()


def test_a_job_on_a_host_is_cancelled_at_the_deadline(hosts) -> None:
    hosts.folder.mkdir()
    (hosts.folder / "hold").touch()
    code, err = hosts.run("--hosts", "lab", "--deadline", "3s")
    assert code == 1
    assert "lost: no document by the deadline" in err
    (submitted,) = hosts.folder.glob("jobs/*/submitted.json")
    process, _, host = json.loads(submitted.read_text())["job_id"].partition("@")
    assert host == "lab"
    state = Path(f"/proc/{process}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"
