"""Adding a backend is one new file, and variants in workloads."""

import json
from pathlib import Path

TOY = str(Path(__file__).parents[1] / "fixtures" / "toy_backend")


def test_a_backend_in_a_folder_is_raced_with_its_own_thread_variable(cli) -> None:
    done = cli(
        "run", "adding", "--backend", "toy", "--threads", "1,2", "--budget", "6", "--jsonl",
        WORKBENCH_WORKLOADS=TOY,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    started = [e for e in events if e["event"] == "WorkerStarted"]
    assert len(started) == 2, "its threads are fixed, so each number has a worker"
    assert {e["versions"]["toy"] for e in started} == {"1.0"}
    seen = {
        e["case"].rpartition("/")[2]: e["figures"] for e in events if e["event"] == "BlockMeasured"
    }
    assert {name: figures["toy_threads"] for name, figures in seen.items()} == {"t1": 1, "t2": 2}


def test_help_and_errors_name_it(cli) -> None:
    shown = cli("run", "--help", WORKBENCH_WORKLOADS=TOY).stdout
    assert "torch, xgboost, toy" in " ".join(shown.split())
    refused = cli("run", "adding", "--backend", "toys", WORKBENCH_WORKLOADS=TOY)
    assert refused.returncode == 2
    assert "did you mean toy?" in refused.stderr
