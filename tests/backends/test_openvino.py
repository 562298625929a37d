"""OpenVINO itself in the race: `make test-backends` installs it."""

import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx_models import conv_net
from support import Cli, printed

pytest.importorskip("openvino", reason="make test-backends installs it")


@pytest.mark.parametrize("workload", ["infer_cnn", "infer_mlp", "infer_encoder"])
def test_it_races_every_inference_workload_and_computes_right_answers(cli, workload: str) -> None:
    done = cli("run", workload, "--backend", "openvino", "--quick", "--budget", "20", "--json")
    found = {m["id"].partition("/")[2]: m for m in printed(done)["measurements"]}
    plain = found["cpu/openvino/fp32/t2"]
    assert plain["status"] == "ok" and plain["n"] > 0
    assert plain["accuracy"]["value"] < 1e-5, "FP32 is FP32, also where BF16 is faster"
    assert all(m["accuracy"]["passed"] for m in found.values() if m["status"] == "ok")


def test_it_races_the_variants_of_a_model(cli, tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    onnx.save(conv_net(), file)
    done = cli("model", str(file), "--budget", "20", "--json")
    measured = printed(done)["measurements"]
    assert {m["case"]["backend"] for m in measured if m["n"]} == {"onnxruntime", "openvino"}


def test_it_races_a_module_of_the_user_and_its_lines_run(cli, tmp_path: Path) -> None:
    own = Path(__file__).parents[1] / "fixtures" / "own"
    shutil.copy(own / "small_net.py", tmp_path)
    saved = tmp_path / "saved"
    asked = ("--torch", "small_net:build", "--backend", "openvino", "--save-best", str(saved))
    done = Cli(cli.environment, tmp_path)("advise", *asked, "--budget", "40", "--json")
    document = printed(done)
    raced = [m for m in document["measurements"] if m["n"]]
    assert {m["case"]["backend"] for m in raced} == {"openvino"}
    assert all(m["accuracy"]["passed"] for m in raced if m["status"] == "ok")
    again = subprocess.run(
        [sys.executable, saved / "reproduce.py"], capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 0, again.stderr
