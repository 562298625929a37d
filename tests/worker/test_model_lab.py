"""`advise --model` from the command line to the document, with real children."""

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import onnxruntime
import pytest
from onnx import helper
from support import Cli, budget, printed

from workbench.records import events as ev


class Bench:
    """A command line with a folder of its own for models and temporary files."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.cli = Cli({**environment, "TMPDIR": str(self.scratch)})

    def advise(self, model: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.cli("advise", "--model", model, *options)

    def left(self) -> list[Path]:
        return list(self.scratch.iterdir())


@pytest.fixture
def bench(tmp_path: Path, environment: dict[str, str]) -> Bench:
    return Bench(tmp_path, environment)


def by_id(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in found["measurements"]}


def run_snippet(text: str, folder: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", f"{text}\nassert outputs[0].size"],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=60,
    )


def test_a_classifier_in_all_its_variants(bench: Bench) -> None:
    file = onnx_models.saved(bench.folder, onnx_models.conv_net(), "net.onnx")
    done = bench.advise(file, "--json", *budget(15), "--threads", "1,2")
    found = printed(done)
    model, facts = found["model"], found["model"]["facts"]
    assert (facts["file"], facts["precision"], facts["batch"]) == ("net.onnx", "fp32", 1)
    assert facts["inputs"][0]["run_shape"] == [1, 3, 8, 8]
    assert facts["forms"][0]["step"] == "as given"
    assert facts["multiply_adds"] > 0

    built = {each["recipe"]: each for each in model["built"]}
    assert {"int8-static-u8s8", "int8-dynamic-products"} & set(built)
    assert all(each["reason"] is None and each["size_bytes"] > 0 for each in built.values())
    measured = by_id(found)
    labels = {
        m["case"]["precision"] + "-" + (m["case"]["quantization"] or "") for m in measured.values()
    }
    assert "fp32-" in labels
    assert any(label.startswith("int8-") for label in labels)

    (verdict,) = found["verdicts"]
    pick = measured[verdict["pick"]]
    assert (verdict["scenario"], verdict["objective"]) == ("model", "latency")
    assert pick["accuracy"]["value"] <= 0.02
    assert {o["name"] for o in pick["accuracy"]["outputs"]} == {"y"}
    assert verdict["basis"] == "measured"
    for each in measured.values():
        beyond = each["accuracy"] is not None and each["accuracy"]["value"] > 0.02
        assert (each["reason"] or {}).get("code") == "error_limit" or not beyond

    advice = model["advice"]
    assert "--inputs" in advice["weak_evidence"]
    assert advice["saved"] is None
    assert [e["case"] for e in advice["explanations"] if e["won"]] == [verdict["pick"]]
    assert all(each["sentences"] for each in advice["explanations"])
    explained = {each["case"] for each in advice["explanations"]}
    assert any("int8" in case for case in explained)
    if pick["case"]["precision"] == "fp32":  # other variants have no file without --save-best
        run_snippet(advice["snippet"], bench.folder)
    assert verdict["reproduce"].startswith("workbench advise --model")
    assert bench.left() == []


@pytest.mark.campaign  # six seconds
def test_real_inputs_agreement_and_the_saved_variant(bench: Bench) -> None:
    made = onnx_models.mlp()
    model = onnx_models.saved(bench.folder, made, "mlp.onnx")
    inputs = np.random.default_rng(1).standard_normal((40, 6)).astype(np.float32)
    np.savez(bench.folder / "data.npz", x=inputs)
    best = bench.folder / "best.onnx"
    done = bench.advise(
        model, "--json", "--budget", "8", "--precision", "int8", "--min-agreement", "0.5",
        "--objective", "throughput", "--inputs", str(bench.folder / "data.npz"),
        "--save-best", str(best),
    )  # fmt: skip
    found = printed(done)
    assert found["model"]["facts"]["inputs_from"] == "data.npz"
    measured = by_id(found)
    (verdict,) = found["verdicts"]
    assert verdict["objective"] == "throughput"
    pick = measured[verdict["pick"]]
    assert pick["case"]["precision"] == "int8"
    assert pick["accuracy"]["metric"] == "disagreement"
    assert pick["accuracy"]["value"] <= 0.5
    agreement = pick["accuracy"]["outputs"][0]["top1_agreement"]
    assert pick["accuracy"]["value"] == pytest.approx(1 - agreement)

    saved = found["model"]["advice"]["saved"]
    assert saved["reason"] is None
    assert saved["file"] == str(best)
    assert saved["size_bytes"] == best.stat().st_size
    assert saved["difference"] == pytest.approx(0.0, abs=1e-6)
    onnx.checker.check_model(str(best))
    answers = [
        onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(
            None, {"x": inputs}
        )[0]
        for source in (made.SerializeToString(), str(best))
    ]
    same = np.mean(np.argmax(answers[0], axis=-1) == np.argmax(answers[1], axis=-1))
    assert same >= 0.5
    run_snippet(found["model"]["advice"]["snippet"], bench.folder)
    assert bench.left() == []


@pytest.mark.campaign
def test_the_least_memory_is_what_counts_when_asked_for(bench: Bench) -> None:
    model = onnx_models.saved(bench.folder, onnx_models.mlp())
    done = bench.advise(
        model, "--json", "--budget", "9", "--objective", "memory", "--threads", "1",
        "--max-error", "1",
    )  # fmt: skip
    found = printed(done)
    measured = {i: m for i, m in by_id(found).items() if m["status"] == "ok"}
    memory = {i: m["memory_peak_bytes"] for i, m in measured.items()}
    assert len(memory) >= 2
    assert all(memory.values())
    (verdict,) = found["verdicts"]
    assert memory[verdict["pick"]] == min(memory.values())


@pytest.mark.campaign  # six seconds
def test_a_simulated_gpu_is_called_simulated(bench: Bench) -> None:
    model = onnx_models.saved(bench.folder, onnx_models.mlp())
    done = bench.advise(
        model, "--json", "--budget", "8", "--device", "cpu", "--device", "fake:0",
        "--precision", "fp32",
    )  # fmt: skip
    found = printed(done)
    (verdict,) = found["verdicts"]
    assert verdict["basis"] == "simulated"
    assert verdict["best_gpu"] is not None and "/fake:0/" in verdict["best_gpu"]
    assert verdict["best_cpu"] is not None and "/cpu/" in verdict["best_cpu"]
    assert found["model"]["built"] == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "model.onnx cannot be read: No such file"),
        (b"hello, world" * 9, "model.onnx"),
        ("custom", "com.example:Nothing"),
    ],
    ids=["missing", "text", "custom operator"],
)
def test_a_file_that_cannot_be_used_is_one_line(bench: Bench, content, words: str) -> None:
    model = bench.folder / "model.onnx"
    if content == "custom":
        opsets = [helper.make_opsetid("com.example", 1)]
        made = onnx_models.one_node("Nothing", domain="com.example", opsets=opsets)
        model.write_bytes(made.SerializeToString())
    elif content is not None:
        model.write_bytes(content)
    done = bench.advise(str(model), "--json", "--budget", "8")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    *_, line = done.stderr.strip().splitlines()
    assert line.startswith("workbench: ")
    assert words in line
    assert line.count("model.onnx") <= 1
    assert bench.left() == []
    assert not list((bench.folder / "state").rglob("*.jsonl"))


def slow(products: int = 40) -> Any:
    """Products of its input with itself: a small file that takes long to run."""
    names = ["x", *(f"a{n}" for n in range(products))]
    nodes = [helper.make_node("MatMul", ["x", old], [new]) for old, new in pairwise(names)]
    nodes.append(helper.make_node("Tanh", [names[-1]], ["y"]))
    return onnx_models.model(
        nodes, [onnx_models.port("x", shape=["n", "n"])], [onnx_models.port("y")]
    )


def test_a_child_killed_while_it_reads_the_model_is_an_outcome(live_engine, cli, tmp_path) -> None:
    model = onnx_models.saved(tmp_path, slow())
    engine = live_engine("advise", "--model", model, "--shape", "x=1500,1500", "--budget", "30")
    started = engine.until(ev.WorkerStarted)
    assert started.worker == "cpu/onnx"
    os.kill(started.pid, signal.SIGKILL)
    events = engine.rest()
    assert engine.process.returncode == 1
    (finished,) = (event for event in events if isinstance(event, ev.CaseFinished))
    assert (finished.status, finished.reason.code) == ("failed", "worker_died")
    assert "SIGKILL" in finished.reason.message
    (verdict,) = (event.verdict for event in events if isinstance(event, ev.VerdictReached))
    assert (verdict.choice, verdict.pick) == ("unknown", None)
    assert events[-1].status == "done"
    found = printed(cli("open", engine.run_id, "--json"))
    assert found["verdicts"][0]["choice"] == "unknown"
    assert [each["status"] for each in found["measurements"]] == ["failed"]
    assert found["model"] is None
