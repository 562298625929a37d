"""What the user names to be written, by real processes: files, links, FIFOs, devices, pipes."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support import budget

REFUSED = [
    ("run", "spin", "--output"),
    ("run", "spin", "--jsonl", "--output"),
    ("run", "spin", "--trace"),
    ("advise", "--model", "any.onnx", "--save-best"),
]


@pytest.mark.parametrize("command", REFUSED, ids=lambda command: command[-1])
def test_a_device_is_refused_before_the_run_and_stays(cli, tmp_path: Path, command) -> None:
    node = tmp_path / "node"
    try:
        os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # a copy of /dev/null: null(4)
    except PermissionError:
        pytest.skip("only root may make device nodes")
    (tmp_path / "any.onnx").write_bytes(b"")
    words = [str(tmp_path / word) if word == "any.onnx" else word for word in command]
    done = cli(*words, str(node))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"workbench: {command[-1]}: {node} ")
    assert line.endswith(("it is not a regular file", "is not a regular file: name a file"))
    assert stat.S_ISCHR(node.lstat().st_mode)
    assert not cli.runs.exists()


def test_a_reader_of_events_that_goes_away_cuts_the_run_short_in_silence(environment) -> None:
    run = f"{sys.executable} -m workbench run spin --budget 20 --jsonl"
    shell = ["bash", "-c", f"{run} | head -1; echo ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, env=environment, capture_output=True, text=True, timeout=100)
    first, code = done.stdout.splitlines()
    assert json.loads(first)["event"] == "RunStarted"
    assert (code, done.stderr) == ("130", "")


def test_a_link_is_followed_and_a_fifo_is_filled(cli, tmp_path: Path) -> None:
    link, fifo = tmp_path / "link.json", tmp_path / "fifo"
    link.symlink_to("real.json")
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
        words = ("--json", "--output", str(link), "--trace", str(fifo))
        done = cli("run", "spin", *budget(3), *words)
        reader.stdout.read()
    assert done.returncode == 1  # this backend has no profiler, so there was no trace to write
    assert link.is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["run"]["status"] == "done"
    assert fifo.is_fifo()
