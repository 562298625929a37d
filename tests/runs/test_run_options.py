"""Curves, the largest batch and traces, by the real command line with real workers."""

import json
from pathlib import Path

import psutil
import pytest
from support import budget, printed


def test_several_sizes_are_measured_and_compared(cli) -> None:
    arguments = ("run", "spin", "--set", "ms=1,8,64", "--precision", "fp32", *budget(4))
    done = cli(*arguments, "--json", "-v")
    document = printed(done)
    (sweep,) = document["sweeps"]
    assert sweep["axes"] == {"ms": [1.0, 8.0, 64.0]}
    (curve,) = sweep["curves"]
    rates = [point["rate"] for point in curve["points"]]
    assert rates == sorted(rates, reverse=True)
    assert "race 3 of 3" in done.stderr
    shown = cli("open", "last", "--plain")
    assert "spin over ms" in shown.stdout
    assert "Highest rate" not in shown.stdout, "it is the only candidate"


def test_tuning_races_and_its_best_setting_is_told(cli) -> None:
    done = cli("run", "tuned", "--set", "hands=1,2", *budget(3))
    assert done.returncode == 0, done.stderr
    assert "cpu numpy fp32 hands=1" in done.stdout
    assert "fastest     cpu numpy fp32 hands=" in done.stdout


def test_the_largest_batch_is_bounded_by_memory_or_by_what_there_is(cli) -> None:
    free = psutil.virtual_memory().available >> 30
    done = cli("run", "hungry", "--largest-batch", "--budget", "40", "--json", "-v")
    (found,) = printed(done)["largest_batches"]
    codes = {a["reason"] and a["reason"]["code"] for a in found["attempts"]}
    assert found["ended_by"] == ("memory" if free < 32 else "bad_input")
    later = psutil.virtual_memory().available >> 30  # neighbours come and go
    assert 1 <= found["batch"] <= max(free, later) + 2
    assert codes >= {None, "no_memory" if free < 32 else "bad_input"}
    assert "batch 2: fits" in done.stderr
    assert "largest     batch" in cli("open", "last", "--plain").stdout


@pytest.mark.campaign
def test_a_trace_holds_the_candidates_and_their_operators(cli, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    done = cli("run", "launch", "--device", "cpu", "--budget", "6", "--trace", str(file), "--json")
    document = printed(done)
    assert document["trace"] == {"file": str(file), "nsys": None}
    (measured,) = document["measurements"]
    assert "aten::add_" in [operator["name"] for operator in measured["operators"]]
    shares = [operator["share"] for operator in measured["operators"]]
    assert shares == sorted(shares, reverse=True)
    assert 0.5 < sum(shares) <= 1.0001
    events = json.loads(file.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {measured["id"]}
    assert any(event["name"] == "aten::add_" for event in events)
    assert "--trace" not in measured["id"] + document["tool"]["command"].partition("--trace")[0]


def test_a_backend_without_a_profiler_says_so_and_the_run_is_whole(cli, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    done = cli("run", "spin", "--precision", "fp32", *budget(3), "--trace", str(file))
    assert done.returncode == 1, done.stderr  # a file that was asked for is missing
    assert "nothing was profiled: this backend has no profiler" in done.stderr
    assert not file.exists()
