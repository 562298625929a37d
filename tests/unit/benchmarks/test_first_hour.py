"""The first hour on a GPU: its steps, its judge and its pages, on outputs that are made up."""

import itertools
import json
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import first_hour_outputs as outputs
import pytest
import scenes
from first_hour_outputs import H200, changed
from hypothesis import HealthCheck, given, settings, strategies as st

from benchmarks.first_hour.__main__ import main, short
from benchmarks.first_hour.evidence import Evidence
from benchmarks.first_hour.findings import H100
from benchmarks.first_hour.judge import (
    FINDINGS,
    NOT_TRIED,
    NOTHING_TRIED,
    REFUTED,
    SOME_REFUTED,
    exit_code,
    judge,
)
from benchmarks.first_hour.parts import PART_S, PARTS, Step
from benchmarks.first_hour.runner import ROOT, SIMULATED, run_part
from workbench.cli.main import cli
from workbench.contract import Variant
from workbench.export.json import dump
from workbench.report.report import Report

# What no H200 of one NUMA node, in shared mode, can show.
UNTRIED = {"B2", "B4 lost", "B5", "W7", "M4", "S1", "S2", "S3", "S4", "S6", "S7"}
LATE = "it was not ready within its 30 s of the budget"


def answers(folder: Path) -> dict[str, str]:
    return {each.id: each.answer for each in judge(Evidence(folder))}


def test_an_h200_that_does_as_expected_confirms_what_it_can(tmp_path: Path) -> None:
    outputs.write(tmp_path)
    found = judge(Evidence(tmp_path))
    wrong = {each.id: each.answer for each in found if each.word == REFUTED}
    missing = {"M5"} - {each.id for each in found if each.word == "confirmed"}
    assert set(wrong) <= missing  # until assets/devices.toml lists every precision
    assert {each.id for each in found if each.word == NOT_TRIED} == UNTRIED
    assert "products bf16 burst" in {each.id for each in found}
    assert len({each.id for each in found}) == len(found) == len(FINDINGS)


@pytest.mark.parametrize(
    ("step", "path", "value", "finding", "answer"),
    [
        ("products", "7/burst", 400.0, "products fp32 burst", "refuted: 400"),  # TF32 has leaked
        ("products", "8/sustained", 50.0, "products tf32 sustained", "refuted: 50"),
        ("products", "9/burst", 1300.0, "clock", "refuted: 1.314"),
        ("overhead", "2/issue_us", 4.1, "W2 cause", "refuted: 1.025"),
        ("memory", "0/copy_tb_s", 3.0, "memory copy", "refuted: 3"),
        ("faults", "1/after", "8.0", "fault assert", "refuted: 8.0"),
        ("switches", "0/raised", ["RuntimeError: mix"], "B6", "refuted: 1"),
        ("frozen", "1/steps", 40, "frozen 1 s", "refuted: 40"),
        ("frozen", "3/issued_s", 2.0, "frozen queue", "refuted: the queue was full"),
        ("table", "run/duration_s", 64.0, "B4", "refuted: 4"),
        ("quick", "measurements/3/status", "skipped", "M7", "refuted: prototyping"),
        ("table", "measurements/0/status", "skipped", "M7 default", "refuted: training"),
        ("table", "verdicts/1/choice", "either", "M1", "refuted: either"),
        (
            "table again",
            "ceilings/devices/1/peak_ops_per_s",
            {"bf16": 6.9e14},
            "M3",
            "refuted: bf16",
        ),
        ("table again", "ceilings/devices/1/peak_ops_per_s/bf16", 6.9e14, "M3", "refuted: bf16"),
        ("table", "machine/cpu/numa_nodes", 2, "W7", "refuted: not bound"),
        (
            "ceilings",
            "ceilings/devices/1/sustained_ops_per_s/bf16",
            6e14,
            "W6 sustained",
            "refuted",
        ),
        ("table again", "verdicts/0/device_ratio", 2.0, "runs agree", "refuted: 0.5"),
        ("thorough", "warnings", [{"code": "not_frozen"}], "M6", "refuted: not_frozen"),
        ("products", "9/fastest", 700.0, "W6", "refuted: 1.129"),
        ("alone", "measurements/0/telemetry", {"power_w": 640.0}, "W3", "refuted: 0"),
        ("thorough", "measurements/1/median_s", 240e-6, "W1", "refuted: 20"),
        ("train_gpt", "measurements/0/clocks/issue_s", 8.8e-3, "W2", "refuted: 0.9778"),
        ("train_gpt", "measurements/1/reason", {"message": LATE}, "B3", "refuted: 1"),
        ("train_cnn", "measurements/1/median_s", 1.4e-3, "M2", "refuted: 0.1667"),
        ("gemm", "measurements/0/median_s", 5e-6, "W5", "refuted: 1.396"),
        ("all", "measurements/0/accuracy/value", 1e-3, "W4", "refuted: 0.001"),
        ("all", "measurements/0/status", "failed", "all", "refuted: infer_cnn/cuda:0/"),
        ("trace", "measurements/0/unprofiled", {"message": "mix"}, "trace", "refuted: mix"),
    ],
)
def test_a_card_that_does_otherwise_refutes_it(
    tmp_path: Path, step: str, path: str, value: Any, finding: str, answer: str
) -> None:
    outputs.write(tmp_path, changed=changed(step, path, value))
    assert answers(tmp_path)[finding].startswith(answer)
    assert exit_code(judge(Evidence(tmp_path))) == SOME_REFUTED


@pytest.mark.parametrize(
    ("step", "path", "value", "finding", "words"),
    [
        ("thorough", "warnings", [{"code": "busy_machine"}], "M6", "busy_machine: only a look"),
        ("train_cnn", "measurements/0/figures", {"waiting_fraction": 0.1}, "M2", "only 10%"),
        ("train_cnn", "machine/cpu/effective_cores", 2, "M2", "4 loaders need 8 cores"),
        ("alone", "measurements/0/telemetry", None, "W3", "reads no power here"),
    ],
)
def test_what_may_be_right_refutes_nothing(tmp_path, step, path, value, finding, words) -> None:
    outputs.write(tmp_path, changed=changed(step, path, value))
    answer = answers(tmp_path)[finding]
    assert answer.startswith("not tried: ")
    assert words in answer


def test_a_slower_card_without_fp8_refutes_nothing_by_that(tmp_path: Path) -> None:
    peaks = {"fp32": 7e12, "fp16": 4e13, "int8": 9e13}
    slow = changed("overhead", "2/issue_us", 600.0)
    slow |= changed("ceilings", "ceilings/devices/1/peak_ops_per_s", peaks)
    outputs.write(tmp_path, "Tesla T4", slow)
    found = answers(tmp_path)
    assert {found["W2 cause"].split(":")[0], found["M3 peaks"].split(":")[0]} == {"confirmed"}


@pytest.mark.parametrize(
    ("step", "output", "finding", "words"),
    [
        ("table", '{"run": {"duration_s"', "B4", "table.json is damaged"),
        ("table", "[" * 100_000, "B4", "table.json is damaged"),
        ("table", "", "row training", "table.json is damaged"),
        ("quick", [1, 2], "M7", "printed no document"),
        ("gemm", {}, "W5", "cannot be read (KeyError: 'measurements')"),
        ("gemm", {"measurements": 3}, "W5", "cannot be read (TypeError"),
        ("overhead", [], "W1 cause", "said nothing of 'timing'"),
        ("overhead", [{"what": "timing", "added_us": "9"}], "W1 cause", "no number: '9'"),
        ("overhead", [{"what": "timing", "added_us": None}], "W1 cause", "no number: None"),
        ("overhead", [{"what": "timing", "added_us": 1e999}], "W1 cause", "no number: inf"),
        ("net", [{"what": "net", "way": "graph", "kind": "float32", "error": "CUDA error"}],
         "M1 graph", "CUDA error"),
        ("tests", "", "tests", "no summary was printed"),
    ],
    ids=map(str, itertools.count()),
)  # fmt: skip
def test_a_broken_file_costs_its_own_findings_only(tmp_path, step, output, finding, words) -> None:
    outputs.write(tmp_path)
    before = answers(tmp_path)
    outputs.write(tmp_path, changed={step: output})
    after = answers(tmp_path)
    assert after[finding].startswith("not tried: ")
    assert words in after[finding]
    assert after["products fp64 burst"] == before["products fp64 burst"] == "confirmed: 56.5"
    assert REFUTED not in {after[name].partition(":")[0] for name in after if name != "M5"}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(step=st.sampled_from([step for part in PARTS.values() for step in part]), output=JSON)
def test_whatever_a_step_leaves_every_finding_gets_a_word(tmp_path, step, output) -> None:
    outputs.write(tmp_path, changed={step.name: output})
    assert len(judge(Evidence(tmp_path))) == len(FINDINGS)


def test_ranges_depend_on_the_card(tmp_path: Path) -> None:
    outputs.write(tmp_path, H100)
    of_h100 = answers(tmp_path)
    assert of_h100["memory copy"] == "refuted: 4.3"  # an H100 has 3.35 TB/s
    assert of_h100["products bf16 burst"] == "confirmed: 790"
    outputs.write(tmp_path, "NVIDIA GeForce RTX 5090")
    unknown = answers(tmp_path)
    assert unknown["products bf16 burst"] == "not tried: no expectation for this card"
    assert unknown["row training"] == "not tried: no expectation for this card"
    assert unknown["M5"] == "not tried: no expectation for this card"  # its sheet has no FP64
    assert unknown["fault memory"] == "confirmed: 512.0"


def test_parts_of_different_cards_are_not_mixed(tmp_path: Path) -> None:
    outputs.write(tmp_path)
    part = json.loads((tmp_path / "part-1.json").read_bytes())
    (tmp_path / "part-1.json").write_text(json.dumps(part | {"card": "Tesla T4"}))
    found = answers(tmp_path)
    assert found["clock"] == "not tried: part 1 was run on another card, Tesla T4"
    assert found["M2"] == "confirmed: 1.167"


def test_the_document_of_a_real_run_can_be_read(tmp_path: Path) -> None:
    document = dump(Report.of(scenes.h200()).document())
    names = ("quick", "table", "table again", "thorough", "train_gpt", "all")
    outputs.write(tmp_path, changed={name: json.loads(document) for name in names})
    found = answers(tmp_path)
    assert not [answer for answer in found.values() if "cannot be read" in answer]
    assert found["row training"] == "confirmed: gpu"


@dataclass(frozen=True)
class Script(Step):
    """A step that is a script."""

    def command(self, scratch: str, device: str | None = None) -> list[str]:
        return [sys.executable, "-c", self.words[0]]


LINES = """
import os; os.write(1, b'{"what": "a", "figure": 1}\\nnot JSON\\n\\n[3]\\n{"what": "b"')
"""
HANG = "import os, subprocess; os.write(1, b'{\"what\": 1}\\n'); subprocess.run(['sleep', '1000'])"


def script(name: str, text: str, output: str = "lines", limit_s: float = 60) -> Script:
    return Script(name, (text,), limit_s, output)


def test_a_hang_costs_one_step_and_what_was_said_before_is_kept(tmp_path: Path) -> None:
    steps = [script("hangs", HANG, limit_s=1), script("lines", LINES)]
    done = run_part(1, steps, tmp_path, H200)["steps"]
    assert (done["hangs"]["timed_out"], done["hangs"]["facts"]) == (True, [{"what": 1}])
    assert (done["lines"]["timed_out"], done["lines"]["code"]) == (False, 0)
    assert (done["lines"]["facts"], done["lines"]["broken_lines"]) == (
        [{"what": "a", "figure": 1}],
        3,
    )
    assert json.loads((tmp_path / "part-1.json").read_bytes())["steps"] == done


def test_a_part_goes_on_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    trail = tmp_path / "trail"
    text = f"open({str(trail)!r}, 'a').write('x'); print('{{}}')"
    first, second = script("first", text, "document"), script("second", text, "recording")
    long = script("long", text, limit_s=2 * PART_S)
    assert set(run_part(1, [first, long], tmp_path, H200)["steps"]) == {"first"}
    assert "long: left for the next call" in capsys.readouterr().out
    assert set(run_part(1, [first, second], tmp_path, H200)["steps"]) == {"first", "second"}
    assert trail.read_text() == "xx"
    assert (tmp_path / "second.json").read_text() == "{}\n"
    run_part(1, [first, second], tmp_path, H200, again=True)
    assert trail.read_text() == "xxxx"
    run_part(1, [first], tmp_path, "Tesla T4")  # a result of another card does not count
    assert trail.read_text() == "xxxxx"
    assert run_part(1, [first], tmp_path, None, no_gpu="gone")["card"] == "Tesla T4"
    (tmp_path / "part-1.json").write_text("{")
    run_part(1, [first], tmp_path, "Tesla T4")
    assert trail.read_text() == "xxxxxx"


def test_a_rehearsal_runs_what_needs_no_card_and_proves_nothing(tmp_path: Path) -> None:
    quick, frozen = next(s for s in PARTS[2] if s.name == "quick"), script("frozen", "1 / 0")
    words = " ".join(quick.command("S", "fake:0@8")[2:])
    assert words.startswith("workbench --quick --no-samples --json --device cpu --device fake:0@8")
    assert not run_part(2, [frozen], tmp_path, SIMULATED + "fake:0@8")["steps"]
    outputs.write(tmp_path, SIMULATED + "fake:0@8")
    found = judge(Evidence(tmp_path))
    assert {each.word for each in found} == {NOT_TRIED}
    by_id = {each.id: each for each in found}
    assert by_id["M2"].answer == "not tried: a rehearsal on fake:0@8"
    assert by_id["M2"].figure == pytest.approx(7 / 6)
    with pytest.raises(SystemExit, match="nothing of a real card"):
        main(["--into", str(tmp_path), "--keep"])


def test_no_two_cards_keep_their_report_in_one_file() -> None:
    hopper = ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"]
    assert [*map(short, hopper)] == ["h200", "h100-80gb-hbm3", "h100-pcie"]
    others = ["NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090", "Tesla T4", "Some GPU"]
    assert [*map(short, others)] == ["a100-sxm4-80gb", "4090", "t4", "gpu"]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_brings_few_files_back_and_names_steps_once(part: int) -> None:
    names = Counter(step.name for steps in PARTS.values() for step in steps)
    assert set(names.values()) == {1}
    recorded = sum(step.output == "recording" for step in PARTS[part])
    assert recorded + len(["part-N.json", "report.md", "report.json"]) <= 8
    assert all(step.limit_s < PART_S for step in PARTS[part])


OURS = [step for steps in PARTS.values() for step in steps if step.words[0] == "workbench"]


@pytest.mark.parametrize("step", OURS, ids=[step.name for step in OURS])
def test_each_command_is_one_that_workbench_takes(step: Step, tmp_path, monkeypatch) -> None:
    words = step.command(str(tmp_path))[3:]
    if words[0] in ("detect", "doctor", "ceilings"):
        name, command, rest = cli.resolve_command(cli.make_context("workbench", []), words)
        command.make_context(name, list(rest))
        return
    ran = []

    def pretend(request: Any, rows: Any, **_: Any) -> int:
        ran.append(len(rows))
        return 0

    monkeypatch.setattr("workbench.cli.headless.run_headless", pretend)
    with pytest.raises(SystemExit) as ended:
        cli.main(words, standalone_mode=False)
    assert (ended.value.code, len(ran)) == (0, 1)


def test_it_runs_every_file_with_a_test_for_a_card() -> None:
    steps = (step for part in PARTS.values() for step in part if "pytest" in step.words)
    run = {word for step in steps for word in step.words if word.endswith(".py")}
    there = (path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__))
    marked = {str(path.relative_to(ROOT)) for path in there if "mark.cuda" in path.read_text()}
    assert run == marked


BARE = """
import sys
sys.modules["msgspec"] = None
from benchmarks.first_hour.__main__ import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--missing"], 0, ""),
        (["--part", "1", "--into", "hour"], 2, "first_hour: error: install what is missing: "),
    ],
)
def test_a_bare_machine_is_asked_for_its_packages(words: list[str], code: int, said: str) -> None:
    command = [sys.executable, "-c", BARE, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip().rpartition("\n")[2]) == (code, said.strip())


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"precision": "bf16"}, "bf16"),
        ({"variant": Variant("gpu", "torch", "bf16", mode="graph")}, "bf16"),
        ({"precision": "fp16"}, None),
        ({}, None),
    ],
)
def test_a_card_skips_tests_of_a_precision_that_it_lacks(
    given: dict[str, Any], missing: str | None, request: pytest.FixtureRequest, monkeypatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (7, 5))  # a T4's
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    marked = SimpleNamespace(get_closest_marker=str, callspec=SimpleNamespace(params=given))
    with pytest.raises(pytest.skip.Exception, match=missing) if missing else nullcontext():
        conftest.pytest_runtest_setup(marked)


def test_without_a_gpu_every_part_ends_and_says_so(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # also where there is one
    assert main(["--part", "all", "--into", str(tmp_path)]) == NOTHING_TRIED
    assert set(answers(tmp_path).values()) == {"not tried: no GPU"}
    printed = capsys.readouterr()
    assert "nothing could be tried" in printed.err
    assert len(list(tmp_path.glob("part-*.json"))) == len(PARTS)
    assert (tmp_path / "report.md").read_text().startswith("# First hour on no GPU\n")


@pytest.mark.parametrize(
    "words",
    [[], ["--into", "x", "--part", str(max(PARTS) + 1)], ["--into", "x", "--device", "cuda:0"]],
)
def test_a_wrong_use_is_one_line(words: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("first_hour: error: ")
