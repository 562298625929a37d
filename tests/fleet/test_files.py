"""The files that other tools run: the Kubernetes manifest, and the ReFrame check."""

import json
import os
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "assets" / "fleet" / "reframe_check.py"


def test_the_manifest_is_valid_kubernetes(cli) -> None:
    options = ("--image", "registry/workbench:1", "--pool", "pool=a100:2", "--pool", "zone/x=cpu")
    done = cli("fleet", "manifest", "--kubernetes", *options, "--per-type", "3", "--quick")
    assert done.returncode == 0, done.stderr
    jobs = list(yaml.safe_load_all(done.stdout))
    for job in jobs:
        kubernetes_validate.validate(job, "1.33", strict=True)
    assert [job["metadata"]["name"] for job in jobs] == ["workbench-1", "workbench-2"]
    spec = jobs[0]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert spec["template"]["spec"]["nodeSelector"] == {"pool": "a100"}
    limits = [job["spec"]["template"]["spec"]["containers"][0].get("resources") for job in jobs]
    assert limits == [{"limits": {"nvidia.com/gpu": "2"}}, None]
    tolerated = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert spec["template"]["spec"]["tolerations"] == tolerated
    assert spec["template"]["spec"]["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory"}}
    ]
    assert "activeDeadlineSeconds" not in spec, "it would run while the Job waits for a node"
    assert spec["template"]["spec"]["activeDeadlineSeconds"] > 17
    assert spec["template"]["spec"]["containers"][0]["args"] == ["advise", "--quick", "--json"]


def test_the_container_prints_the_document_between_marks(cli, tmp_path) -> None:
    done = cli("fleet", "manifest", "--kubernetes", "--image", "x", "--pool", "a=b", "branching")
    container = json.loads(done.stdout)["spec"]["template"]["spec"]["containers"][0]
    stub = tmp_path / "workbench"
    stub.write_text('#!/bin/sh\n[ "$1" = doctor ] || { echo "{\\"of\\": \\"$*\\"}"; exit 1; }\n')
    stub.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [*container["command"], *container["args"]],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    _, _, rest = ran.stdout.partition("-----BEGIN WORKBENCH DOCUMENT-----\n")
    assert json.loads(rest.partition("-----END")[0]) == {"of": "advise branching --json"}


@pytest.mark.parametrize("pool", ["a100", "a=b c", "=x", "a=-", "a=b:0", "a=b:"])
def test_a_pool_that_is_no_label_is_refused(cli, pool: str) -> None:
    done = cli("fleet", "manifest", "--kubernetes", "--image", "x", "--pool", pool)
    assert done.returncode == 2
    assert "--pool takes a label of nodes such as pool=a100" in done.stderr


def test_reframe_reads_ratios_and_times(environment, tmp_path) -> None:
    """The real ReFrame with its generic site."""
    python = os.environ.get("REFRAME_PYTHON", sys.executable)
    reframe = [python, "-c", "import sys; from reframe.frontend.cli import main; sys.exit(main())"]
    document = {
        "summary": [{"scenario": "realtime", "lead": 1.25}],
        "verdicts": [{"scenario": "realtime", "device_ratio": 3.5}],
        "measurements": [
            {"id": "spin/cpu/numpy/fp32", "n": 3, "median_s": 0.5},
            {"id": "spin/cpu/numpy/bf16", "n": 0, "median_s": None},
        ],
    }
    (tmp_path / "document.json").write_text(json.dumps(document))
    printer = tmp_path / "workbench"
    printer.write_text(f"#!/bin/sh\ncat {tmp_path}/document.json\n")
    printer.chmod(0o755)
    report = tmp_path / "report.json"
    done = subprocess.run(
        [*reframe, "-c", CHECK, "-r", "--prefix", tmp_path / "rfm", f"--report-file={report}"],
        cwd=tmp_path,
        env={**environment, "WORKBENCH": str(printer), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (case,) = json.loads(report.read_text())["runs"][0]["testcases"]
    values = {name.split(":", 2)[2]: found[0] for name, found in case["perfvalues"].items()}
    assert values == {
        "lead:realtime": 1.25,
        "cpu_over_gpu:realtime": 3.5,
        "time:spin:cpu:numpy:fp32": 0.5,
    }
