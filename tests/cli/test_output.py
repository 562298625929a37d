"""stdout carries data only, in the form that was asked for."""

import fcntl
import json
import os
import re
import resource
import struct
import subprocess
import sys
import termios
from pathlib import Path

import msgspec
import pytest
from schemas import checked_document
from support import budget, until

from workbench.records import events as ev
from workbench.records.document import Document


def test_json_is_one_valid_document_and_a_replay_of_the_journal_gives_it_again(cli) -> None:
    done = cli("run", "spin", *budget(3), "--json", "-v")
    assert done.returncode == 0
    assert json.loads(cli("open", "last", "--json").stdout) == json.loads(done.stdout)
    title, *lines = cli("open", "last", "--where").stdout.splitlines()
    assert title.split()[:4] == ["Seconds", "all", "starting", "preparing"]
    assert lines[-1].startswith("the run ")
    assert cli("open", "last", "--where", "--json").returncode == 2
    document = msgspec.json.decode(done.stdout, type=Document, strict=True)
    assert document.schema_version == 1
    assert document.run.status == "done"
    assert [m.case.id for m in document.measurements] == [m.id for m in document.measurements]
    assert re.search(r"worker +cpu/numpy", done.stderr)
    fast = document.measurements[1]
    assert fast.n == len(fast.samples_s) >= 10
    assert fast.ci95_s[0] <= fast.median_s <= fast.ci95_s[1]
    assert fast.throughput.unit == "spins/s"


def test_jsonl_is_the_journal(cli) -> None:
    done = cli("run", "spin", *budget(3), "--jsonl")
    events = [ev.decode(line) for line in done.stdout.splitlines()]
    assert isinstance(events[0], ev.RunStarted)
    assert isinstance(events[-1], ev.RunFinished)
    (journal,) = cli.runs.glob("*.jsonl")
    assert journal.read_text() == done.stdout


def test_an_earlier_run_is_printed_without_its_samples(cli, earlier_run, tmp_path: Path) -> None:
    done = cli("open", "last", "--json", "--no-samples")
    measured = json.loads(done.stdout)["measurements"]
    assert any(m["median_s"] for m in measured)
    assert not any(m["samples_s"] for m in measured)
    file = tmp_path / "bare.json"
    file.write_text(done.stdout)
    refused = cli("open", str(file))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"`workbench open {earlier_run.stem}`" in refused.stderr
    wrong = cli("open", "last", "--no-samples", "--plain")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)


def test_plain_text_ends_with_the_table(cli) -> None:
    done = cli("run", "spin", "--set", "gain=10", *budget(3))
    assert done.returncode == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert any(line.startswith("cpu numpy bf16") for line in lines)
    assert any(line.startswith("fastest     cpu numpy bf16") for line in lines)
    assert "worker" not in done.stdout


def test_output_writes_the_document_and_leaves_stdout_empty(cli, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    done = cli("run", "spin", *budget(3), "--no-samples", "--json", "--output", str(target))
    assert (done.returncode, done.stdout) == (0, "")
    document = checked_document(target.read_bytes())
    assert document["run"]["status"] == "done"
    fast = document["measurements"][1]
    assert fast["n"] == sum(block["n"] for block in fast["blocks"]) > 0
    assert fast["samples_s"] == []
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["report.json"]


def test_detect_and_list_have_json(cli) -> None:
    found = json.loads(cli("detect", "--json").stdout)
    assert found["machine"]["cpu"]["effective_cores"] >= 1
    backends = json.loads(cli("list", "--backends", "--json").stdout)["backends"]
    names = "jax keras lightgbm numpy onnxruntime openvino sklearn tensorflow torch xgboost"
    assert [each["name"] for each in backends] == names.split()
    assert all("pip install" in each["install"] for each in backends)
    assert next(e["version"] for e in backends if e["name"] == "torch")
    listed = json.loads(cli("list", "--json").stdout)
    assert listed["schema_version"] == 1
    assert [row["id"] for row in listed["scenarios"]][:2] == ["training", "realtime"]
    assert "spin" in [workload["name"] for workload in listed["workloads"]]


@pytest.mark.campaign
def test_strict_samples_turns_a_trust_warning_into_exit_3(cli) -> None:
    slow = ("run", "spin", "--set", "ms=350", "--set", "gain=1", "--budget", "4", "--json")
    assert cli(*slow).returncode == 0
    done = cli(*slow, "--strict-samples")
    assert done.returncode == 3
    codes = [w["code"] for m in json.loads(done.stdout)["measurements"] for w in m["warnings"]]
    assert "few_samples" in codes


@pytest.mark.parametrize("arguments", ["list", "--help", "run --help"])
def test_a_closed_stdout_ends_a_command_in_silence(environment, arguments: str) -> None:
    shell = f"{sys.executable} -m workbench {arguments} | head -0; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("130\n", "")


def test_closed_streams_are_no_error(environment, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    run = f"{sys.executable} -m workbench run spin {' '.join(budget(3))} --plain --output {target}"
    subprocess.run(f"{run} >&- 2>&-", shell=True, env=environment, check=True)
    assert json.loads(target.read_text())["run"]["status"] == "done"


def test_a_full_disk_under_a_listing_is_told_in_one_line(environment: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "workbench", "list"],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("workbench: the output cannot be written: No space left")


@pytest.mark.parametrize(("option", "named"), [("--html", "out"), ("--svg", "out/plot-01.svg")])
def test_an_export_that_has_no_room_names_the_file(
    environment: dict[str, str], earlier_run: Path, tmp_path: Path, option: str, named: str
) -> None:
    command = f"{sys.executable} -m workbench export {earlier_run} {option} out"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 1; {command}"],
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},  # else it would be cut short, too
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == f"workbench: {named} cannot be written: File too large; write it elsewhere\n"
    )
    assert not [*tmp_path.glob("out*"), *tmp_path.glob(".workbench*")]


@pytest.mark.parametrize(
    ("module", "size", "why"),
    [
        ("cli/history", 1024, "marshal data too short"),  # imported by a command
        ("cli/main", 1024, "marshal data too short"),
        ("cli/history", 16, "EOF read where object expected"),  # the header alone
    ],
)
def test_a_compiled_module_that_a_full_disk_cut_short_is_no_interruption(
    environment: dict[str, str], tmp_path: Path, module: str, size: int, why: str
) -> None:
    cached = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    run = [sys.executable, "-m", "workbench", "runs"]
    subprocess.run(run, env={**environment, **cached}, check=True, capture_output=True)
    (compiled,) = tmp_path.rglob(f"{module}.*.pyc")
    os.truncate(compiled, size)
    done = subprocess.run(run, env={**environment, **cached}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    why = f"workbench: {why}: delete the folders __pycache__, which a full disk cut short"
    assert done.stderr.strip() == why  # click writes a blank line first


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_json_is_utf_8_in_every_locale(cli, tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    listed = subprocess.run(
        [sys.executable, "-m", "workbench", "list", "--json", "--scenarios", str(file)],
        env={**cli.environment, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    assert "Größe 😀" in {row["title"] for row in json.loads(listed.stdout)["scenarios"]}


SCENARIO = """
[[scenario]]
id = "mine"
title = "Größe 😀"
question = "how large?"
textbook = "gpu"
workload = "matmul"
objective = "throughput"
precisions = ["fp32"]
"""


def _unread_bytes(pipe: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return count


def test_a_pipe_that_its_parent_made_non_blocking_gets_the_whole_document(environment) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    command = [sys.executable, "-P", "-m", "workbench", "schema"]
    process = subprocess.Popen(command, env=environment, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert process.stderr
    with process, os.fdopen(reading) as document:
        full = fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ) - resource.getpagesize()
        assert until(lambda: _unread_bytes(reading) >= full)
        assert "$defs" in json.load(document)
        assert (process.stderr.read(), process.wait(30)) == (b"", 0)
