"""A user's own scenarios from a file to a verdict."""

import json
import re
from pathlib import Path

import pytest
from support import printed

from workbench.planning import scenarios
from workbench.planning.scenario import Limits, Scenario

DOCS = Path(__file__).resolve().parents[2] / "docs" / "advisor.md"
BROKEN = """
[[scenario]]
id = "broken"
title = "Broken"
question = "Who is left?"
workload = "spin"
params = { trouble = "raise" }
objective = "throughput"
precisions = ["fp32"]
"""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The complete file of the documentation."""
    blocks = re.findall(r"^```toml\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / "mine.toml"
    file.write_text(blocks[0])
    return file


def test_the_documented_file_is_right_and_uses_every_part(example: Path) -> None:
    (row,) = scenarios.load(example).values()
    assert all(limit is not None for limit in vars_of(row.limits))
    assert row.size is not None
    assert row.quickened().params == {"width": 64}


def vars_of(limits: Limits) -> list[object]:
    return [getattr(limits, name) for name in limits.__struct_fields__]


def test_the_documented_file_races(cli, example: Path) -> None:
    narrow = ("--precision", "fp32", "--backend", "onnxruntime", "--device", "cpu")
    done = cli("advise", "--scenarios", str(example), "--quick", "--budget", "8", *narrow, "--json")
    (verdict,) = printed(done)["verdicts"]
    assert verdict["scenario"] == "ranking"
    assert verdict["pick"].startswith("infer_mlp[batch=32,width=64]/cpu/onnxruntime/")
    assert verdict["reproduce"].endswith(f"--scenarios {example}")


def test_where_every_candidate_fails_the_choice_is_unknown_with_the_reason(cli, tmp_path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(BROKEN)
    done = cli("advise", "--scenarios", str(file), "--budget", "8", "--device", "cpu", "--json")
    (verdict,) = printed(done, 1)["verdicts"]
    assert (verdict["choice"], verdict["pick"]) == ("unknown", None)
    assert "the step broke" in verdict["reasons"][0]


def test_ones_own_are_listed_with_all_their_fields(cli, example: Path) -> None:
    listed = cli("list", "--scenarios", str(example))
    assert "ranking" in listed.stdout
    assert "on request" in listed.stdout
    rows = json.loads(cli("list", "--scenarios", str(example), "--json").stdout)["scenarios"]
    own = next(row for row in rows if row["id"] == "ranking")
    assert set(own) == set(Scenario.__struct_encode_fields__)


def test_a_budget_too_small_for_one_block_is_unknown_with_the_reason(cli) -> None:
    done = cli("advise", "branching", "--budget", "1", "--backend", "torch", "--json")
    (verdict,) = printed(done, 1)["verdicts"]
    assert (verdict["choice"], verdict["pick"]) == ("unknown", None)
    assert "no time was left for its turn" in verdict["reasons"][0]
