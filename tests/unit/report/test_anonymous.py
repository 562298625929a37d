"""Reports without names: nothing private is left, in any format, and the rest stays as it was."""

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machines
import msgspec
import own_runs
import pytest
import scenes
import schemas
import simulated_lab
from builders import machine as build_machine
from click.testing import CliRunner
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from workbench.cli.main import cli
from workbench.export.formats import FILES
from workbench.export.json import document_parts
from workbench.export.text import run_text
from workbench.records import events as ev
from workbench.records.events import encode
from workbench.records.machine import CoreLimit, GpuProcess
from workbench.records.reason import Reason, Warning
from workbench.report.anonymous import Pseudonyms, anonymised, salt
from workbench.report.from_document import contradictions
from workbench.report.journal import runs_folder
from workbench.report.report import Report
from workbench.report.run_files import open_run

UUID = "GPU-6e4f0f5e-8f2c-4a0a-9b53-0d2f8a4c9b11"
POD = "/sys/fs/cgroup/kubepods.slice/pod4af1c0de/0cb1a2d3e4f5a6b7.scope/cpu.max"
TEXT = (
    f"on node17 (node17.acme.example) of zoe: no room in '/scratch/zoe/My Models/secretnet.data', "
    f"'~/hush dir/x' -I/home/zoe/include ~yan/lib ./hushtool {POD}:3 {UUID} MIG-{UUID[4:]} "
    'File "/mnt/hush/secretmodule.py", line 3; see hush/secretcode.py:12.'
)
SECRETS = (
    *("node17", "acme", "zoe", "yan", "hush", "secret", "kubepods", "4af1c0de", "0cb1a2d3"),
    *("6e4f0f5e", "0d2f8a4c9b11", "/home", "/scratch", "/opt/venvs", "My Models"),
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "workbench"


def secret(events: list[ev.AnyEvent], command: str) -> Iterator[ev.AnyEvent]:
    """The same run on a machine full of names."""
    change = msgspec.structs.replace
    for event in events:
        if isinstance(event, ev.RunStarted):
            yield change(event, tool=change(event.tool, command=f"workbench advise {command}"))
        elif isinstance(event, ev.HardwareDetected):
            found, software = machines.gpu_server()
            users = [GpuProcess(1, 2**20, "hush", "zoe")]
            yield change(
                event,
                machine=change(
                    found,
                    hostname="node17.acme.example",
                    cpu=change(found.cpu, limits=[CoreLimit("cgroup", 4.0, POD)]),
                    gpus=[change(found.gpus[0], processes=users), *found.gpus[1:]],
                ),
                software=change(
                    software,
                    executable="/opt/venvs/hush/bin/python",
                    environment={
                        "CUDA_VISIBLE_DEVICES": UUID[:12],
                        "LD_PRELOAD": "/opt/venvs/x.so",
                    },
                ),
            )
            yield ev.WarningRaised(at_s=event.at_s, warning=Warning("busy_gpu", TEXT, TEXT, UUID))
        elif isinstance(event, ev.CaseFinished):
            yield change(event, reason=event.reason or Reason("cut", TEXT, TEXT))
        elif isinstance(event, ev.CodeAdvised):
            yield change(event, breaks=[TEXT], left_out={"onnx": TEXT})
        else:
            yield event


def renamed(events: list[ev.AnyEvent], old: str, new: str) -> list[ev.AnyEvent]:
    return [ev.decode(encode(event).replace(old.encode(), new.encode())) for event in events]


MODEL = "'/scratch/zoe/My Models/secretnet.onnx'"
RUNS = {
    "model": (
        renamed(simulated_lab.done(), "mobilenet_v2.onnx", "secretnet.onnx"),
        f"--model {MODEL}",
    ),
    "script": (renamed(own_runs.script(), "train.py", "secrettrain.py"), "--torch secrettrain.py"),
    "function": (renamed(own_runs.function(), "stats:", "secret:"), "--function secret:work"),
    "command": (
        renamed(own_runs.command(), "train.py", "secretcode.py"),
        "--command 'python secretcode.py' --over data=/opt/venvs/x",
    ),
    "container": (
        renamed(own_runs.script(), "train.py", "secretcode.py"),
        "--torch /usr/src/app/secretcode.py --python /usr/local/secretlist/bin/python",
    ),
    "etc": (
        renamed(own_runs.script(), "train.py", "secretcode.py"),
        "--torch /etc/secretlist/secretcode.py",
    ),
    "scenarios": (scenes.h200(), "--scenarios secretlist --python /home/zoe/bin/python"),
    "workload": (renamed(scenes.sweep(), "matmul", "secretkernel"), ""),
}


@pytest.mark.parametrize("name", RUNS)
def test_no_format_has_a_name_left(name: str, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_bytes(b"".join(encode(event) + b"\n" for event in secret(*RUNS[name])))
    files = [text for form in FILES for text in (f"--{form}", str(tmp_path / f"{name}.{form}"))]
    options = [*files, "--svg", str(tmp_path / "svg"), "--anonymize"]
    done = CliRunner().invoke(cli, ["export", str(file), *options])
    assert done.exit_code == 0, done.exception
    report = anonymised(open_run(str(file)).report)
    written = [*tmp_path.glob(f"{name}.*"), *tmp_path.glob("svg/*")]
    outputs = {path.name: path.read_text() for path in written}
    outputs |= {"json": b"".join(document_parts(report)).decode(), "text": run_text(report, 100)}
    for form, text in outputs.items():
        left = [text[m.start() - 60 :][:120] for m in re.finditer("|".join(SECRETS), text)]
        assert left == [], form
    assert len(outputs) > len(FILES) + 1
    schemas.checked_document(outputs["json"])
    again = tmp_path / "again.json"
    again.write_text(outputs["json"])
    opened = open_run(str(again)).report
    assert opened.document().verdicts == report.document().verdicts


def test_only_names_change(tmp_path: Path) -> None:
    """Each figure stays, and so does everything that a run without names says."""
    report = Report.of(secret(*RUNS["script"]))
    before, after = report.document(), anonymised(report).document()
    assert [m.samples_s for m in after.measurements] == [m.samples_s for m in before.measurements]
    for verdict, known in zip(after.verdicts, before.verdicts, strict=True):
        assert verdict.pick_ratio_ci95 == known.pick_ratio_ci95
    warning = next(each for each in after.warnings if each.code == "busy_gpu")
    assert warning.subject == after.machine.gpus[0].uuid
    assert warning.subject.startswith("GPU-")


def test_open_takes_the_option_too(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_bytes(b"".join(encode(event) + b"\n" for event in secret(*RUNS["scenarios"])))
    cli.main(["open", str(file), "--json", "--anonymize"], standalone_mode=False)
    printed = capfd.readouterr().out
    schemas.checked_document(printed)
    assert "node17" not in printed
    assert '"hostname":"host-' in printed


def test_a_machine_keeps_its_hash_and_another_salt_gives_another(state: Path) -> None:
    named = replace(build_machine(), hostname="node17")
    first, second = Pseudonyms(named)(named), Pseudonyms(named)(named)
    assert first.hostname == second.hostname
    kept = state / "salt"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert runs_folder().with_name("salt") == kept
    assert [*state.iterdir()] == [kept]
    kept.unlink()
    assert Pseudonyms(named)(named).hostname != first.hostname


def test_without_a_folder_each_salt_is_a_new_one(state: Path) -> None:
    state.parent.mkdir()
    state.write_text("no folder")
    assert len(salt()) == len(salt()) == 32
    assert salt() != salt()


def test_a_salt_that_was_cut_is_not_used(state: Path) -> None:
    state.mkdir(parents=True)
    (state / "salt").write_bytes(b"")
    assert len(salt()) == 32


words = st.text(alphabet="abcdefgh-_/.", min_size=3, max_size=12)


def hidden(text: Any, *users: str, host: str = "box") -> Any:
    gpu = replace(machines.h200(), processes=[GpuProcess(1, None, None, user) for user in users])
    return Pseudonyms(replace(build_machine(), hostname=host, gpus=[gpu]))(text)


@given(st.lists(words), words, words)
@example([], "a/b", "a/b/c")
def test_no_private_word_survives(text: list[str], user: str, host: str) -> None:
    found = hidden(" ".join([*text, user, f"/home/{user}/x", host]), user, host=host)
    assert user not in found.split() and host not in found.split()


@given(st.from_regex(r"(/[^/\s'\"`\x00]{3,9}){2,5}", fullmatch=True), st.sampled_from(" '\"(=:,"))
def test_no_path_survives(path: str, before: str) -> None:
    found = hidden(f"see{before}{path}")
    assert path not in found
    assert not any(part.rstrip(".,:;)]") in found for part in path.split("/") if len(part) > 8)


def test_whole_words_only_are_replaced() -> None:
    text = "box of toolbox; ~ann, samples/s, n/a, CPU/GPU, GPU-accelerated, https://pytorch.org"
    found = hidden(text, "zoe")
    assert found.startswith("host-")
    assert " of toolbox; ~ann, samples/s, n/a, CPU/GPU, GPU-accelerated, https://py" in found


@pytest.mark.parametrize("name", ["true", "null", "1", "ok", "cpu", "status", "python"])
def test_a_person_or_machine_may_be_called_like_a_word_of_ours(name: str) -> None:
    found = {"status": "ok", "name": "python", "devices": {"cpu": None}, "count": 1, "fits": True}
    scrubbed = hidden({**found, "texts": [f"{name} has it"]}, name, host="box")
    assert scrubbed.pop("texts")[0].startswith("user-")
    assert scrubbed == found
    document = Report.of(scenes.h200()).document()
    document.machine = replace(document.machine, hostname=name)
    after = Pseudonyms(document.machine, document)(document)
    assert not [*contradictions(after)]
    assert [m.id for m in after.measurements] == [m.id for m in document.measurements]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("/home/ann/.venv/bin/python: broken", "ann"),
        ("'/Users/ann' and /home/bob", "ann|bob"),
        ("for ann", "ann"),  # from `sudo`, the user who calls it
        ("/sys/fs/cgroup/docker/4f5c9a1b2c3d4e5f6a7b8c9d0e1f2a3b/cpu.max", "4f5c9a"),
        ("limited by /sys/fs/cgroup/lxc.payload.node17/cpu.max", "node17"),
        ("workbench model /dev/shm/zoe/secret.onnx --json", "secret"),
        ("workbench model /run/media/ann/stick/secret.pt2 --json", "secret"),
        ("recorded 2026-11-21 in secret.json", "secret"),
        ("recorded 2026-11-21 in secret.jsonl", "secret"),
    ],
)
def test_what_names_a_person_a_machine_or_a_file_goes(text, secret, monkeypatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ann")
    assert not re.search(secret, hidden(text, host="node17"))


@pytest.mark.parametrize("path", ["/dev/nvidia0", "/proc/cpuinfo", "/sys/fs/cgroup/cpu.max"])
def test_paths_of_every_machine_stay(path: str) -> None:
    assert Pseudonyms(None)(f"cannot read {path}: no permission") == (
        f"cannot read {path}: no permission"
    )
