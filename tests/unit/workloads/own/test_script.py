"""Scripts that are run once, unchanged, in real processes: what is seen, chosen and handed over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest

ROOT = Path(__file__).parents[4]
OWN = ROOT / "tests" / "fixtures" / "own"

# Name of the request: target, arguments, seconds.
REQUESTS: dict[str, tuple[str, list[str], float]] = {
    "guarded": ("scripts/guarded.py", [], 60.0),
    "named": ("scripts/guarded.py::Net#2", [], 60.0),
    "wide": ("scripts/guarded.py::Wide", [], 60.0),
    "unnamed": ("scripts/guarded.py::Nut", [], 60.0),
    "absent": ("scripts/absent.py", [], 60.0),
    "well": ("scripts/unguarded.py", ["--batch", "5"], 60.0),
    "exit": ("scripts/unguarded.py", ["--batch", "5", "--end", "exit"], 60.0),
    "raise": ("scripts/unguarded.py", ["--batch", "5", "--end", "raise"], 60.0),
    "refused": ("scripts/unguarded.py", [], 60.0),
    "endless": ("scripts/endless.py", [], 0.2),
    "sleeper": ("scripts/sleeper.py", [], 0.2),
    "training": ("scripts/training.py", [], 60.0),
    "many": ("scripts/many.py", [], 60.0),
    "locked": ("scripts/many.py::Locked", [], 60.0),
    "guarded inputs": ("scripts/many.py::Guarded", [], 60.0),
    "none": ("scripts/none.py", [], 60.0),
    "broken": ("scripts/none.py", ["data"], 60.0),
    "forks": ("scripts/forks.py", [], 60.0),
}


@dataclass(frozen=True)
class Outcomes:
    """What came of each request, and what the scripts printed."""

    folder: Path
    found: dict[str, dict[str, Any]]
    printed: list[str]
    log: str


def child(file: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(OWN / file), *arguments]
    return subprocess.run(
        command, cwd=OWN, env=environment, capture_output=True, text=True, check=True, timeout=100
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    home = tmp_path_factory.mktemp("code")
    requests = []
    for name, (target, arguments, seconds) in REQUESTS.items():
        folder = home / name
        folder.mkdir()
        requests.append(
            {
                "kind": "torch",
                "target": target,
                "folder": str(folder),
                "directory": str(OWN),
                "arguments": arguments,
                "seconds": seconds,
            }
        )
    done = child("script_runner.py", json.dumps(requests))
    found = {name: json.loads((home / name / "outcome.json").read_text()) for name in REQUESTS}
    return Outcomes(home, found, done.stdout.splitlines(), done.stderr)


def test_a_script_runs_once_as_main_in_the_users_directory(outcomes: Outcomes) -> None:
    runs = [line for line in outcomes.printed if line == "ran scripts/guarded.py in own"]
    assert len(runs) == 4  # requests for it
    unguarded = [line for line in outcomes.printed if line == "ran unguarded"]
    assert len(unguarded) == 3  # argparse refuses the fourth


def test_modules_are_listed_with_calls_shapes_and_shares(outcomes: Outcomes) -> None:
    found = outcomes.found["guarded"]
    modules = found["modules"]
    assert list(modules) == ["Net", "Net#2", "Wide"]
    assert [each["calls"] for each in modules.values()] == [4, 1, 1]
    assert modules["Net"]["shapes"] == ["5x8, scale=1", "2x8"]
    assert modules["Wide"]["shapes"] == ["64x256"]
    assert modules["Net"]["notes"] == ["Net was in training mode in 4 of 4 calls"]
    seconds = [each["seconds"] for each in modules.values()]
    assert all(each > 0 for each in seconds)
    assert sum(seconds) <= found["seconds"]
    assert found["chosen"] == max(modules, key=lambda name: modules[name]["seconds"])
    assert not found["cut"]
    assert found["notes"] == []


def test_the_inputs_of_the_most_frequent_shapes_are_kept(outcomes: Outcomes) -> None:
    example = outcomes.found["guarded"]["modules"]["Net"]["example"]
    assert example == {"args.0": [[1.0] * 8] * 5, "kwargs.scale": [2.0]}


def test_a_module_is_chosen_by_name(outcomes: Outcomes) -> None:
    assert outcomes.found["named"]["chosen"] == "Net#2"
    assert outcomes.found["wide"]["chosen"] == "Wide"
    assert outcomes.found["unnamed"] == {
        "error": "bad_target",
        "message": "the script calls no 'Nut'; it calls Net, Net#2, Wide",
    }


def test_a_script_that_is_not_there(outcomes: Outcomes) -> None:
    assert outcomes.found["absent"] == {
        "error": "bad_target",
        "message": "there is no script scripts/absent.py",
    }


@pytest.mark.parametrize("name", ["guarded", "raise", "endless", "training"])
def test_the_worker_is_left_as_it_was(outcomes: Outcomes, name: str) -> None:
    found = outcomes.found[name]
    assert found["restored"]
    assert found["paths"] == ["scripts"]
    assert found["last_path"] == "scripts"  # what a forward imports late is still found


def test_arguments_and_a_good_exit(outcomes: Outcomes) -> None:
    found = outcomes.found["well"]
    assert found["modules"]["Linear"]["shapes"] == ["5x3"]
    assert found["notes"] == []


def test_what_was_seen_before_a_failure_counts(outcomes: Outcomes) -> None:
    assert outcomes.found["exit"]["notes"] == ["the script exited with 3"]
    assert outcomes.found["exit"]["modules"]["Linear"]["calls"] == 1
    (note,) = outcomes.found["raise"]["notes"]
    assert note.startswith("the script raised RuntimeError: mat1 and mat2 shapes")
    linear = outcomes.found["raise"]["modules"]["Linear"]
    assert (linear["calls"], linear["shapes"]) == (2, ["5x3", "5x7"])
    assert "unguarded.py" in outcomes.log  # the traceback


def test_a_failure_before_any_module_is_the_users(outcomes: Outcomes) -> None:
    assert outcomes.found["refused"] == {
        "error": "user_code",
        "message": "scripts/unguarded.py exited with 2 before it called a module",
    }
    assert outcomes.found["broken"] == {
        "error": "user_code",
        "message": "scripts/none.py raised ValueError: no data before it called a module",
    }


def test_a_script_without_modules_is_bad_input(outcomes: Outcomes) -> None:
    assert outcomes.found["none"] == {
        "error": "bad_input",
        "message": "scripts/none.py called no torch module",
    }


@pytest.mark.parametrize("name", ["endless", "sleeper"])
def test_a_script_that_does_not_end_is_cut(outcomes: Outcomes, name: str) -> None:
    found = outcomes.found[name]
    assert found["cut"]
    assert found["seconds"] > 0
    assert found["modules"]["ReLU"]["calls"] >= 1
    assert found["modules"]["ReLU"]["example"] == {"args.0": [0.0] * 4}
    assert "caught" not in outcomes.printed


def test_threads_that_are_left_are_reported(outcomes: Outcomes) -> None:
    assert outcomes.found["sleeper"]["notes"] == [
        "the script was cut after 0.2 s",
        "threads of the script still running: 1",
    ]


def test_a_training_script(outcomes: Outcomes) -> None:
    found = outcomes.found["training"]
    net, loss = found["modules"]["Classifier"], found["modules"]["CrossEntropyLoss"]
    assert (net["calls"], loss["calls"]) == (4, 3)
    assert net["shapes"] == ["4x6", "2x6"]
    assert net["notes"] == [
        "Classifier was in training mode in 3 of 4 calls",
        "Classifier was under autocast to bfloat16 on cpu in 3 of 4 calls",
    ]
    # Copied before the module halved it, and without what the loader adds later.
    assert net["example"] == {"args.0": [[float(row)] * 6 for row in range(4)]}


def test_new_modules_in_every_call_share_a_record(outcomes: Outcomes) -> None:
    modules = outcomes.found["many"]["modules"]
    softmaxes = [name for name in modules if name.startswith("Softmax")]
    assert softmaxes == ["Softmax", *(f"Softmax#{number}" for number in range(2, 9))]
    assert modules["Softmax"]["calls"] == 3


def test_inputs_of_frequent_shapes_displace_rare_ones(outcomes: Outcomes) -> None:
    locked = outcomes.found["many"]["modules"]["Locked"]
    assert locked["shapes"] == ["2", "6", "1", "3", "4"]
    assert locked["example"] == {"args.0": [0.0] * 6}  # it led first


def test_threads_and_compiled_modules_are_seen(outcomes: Outcomes) -> None:
    modules = outcomes.found["many"]["modules"]
    assert modules["Tanh"]["calls"] == 1
    compiled = modules["Sequential"]
    assert (compiled["calls"], compiled["kind"]) == (2, "Sequential")
    assert "Linear" not in modules


def test_only_the_script_itself_answers_when_it_forks(outcomes: Outcomes) -> None:
    assert outcomes.found["forks"]["modules"]["ReLU"]["calls"] == 1
    assert outcomes.printed.count("answered scripts/forks.py") == 1


def test_a_module_that_cannot_be_pickled_is_named_with_the_reason(outcomes: Outcomes) -> None:
    reason = outcomes.found["locked"]["not_handed"]
    assert reason.startswith("Locked cannot be handed to another process: TypeError: cannot pickle")
    assert not (outcomes.folder / "locked" / "module.pt").exists()


def test_inputs_that_cannot_be_copied_are_refused(outcomes: Outcomes) -> None:
    assert outcomes.found["guarded inputs"] == {
        "error": "unsupported",
        "message": "the inputs of Guarded cannot be copied",
    }


def test_another_process_without_cloudpickle_gets_the_same_module(outcomes: Outcomes) -> None:
    handed = ["named", "wide", "training", "well"]
    folders = [str(outcomes.folder / name) for name in handed]
    results = json.loads(child("script_receiver.py", *folders).stdout)
    for name in handed:
        assert outcomes.found[name]["not_handed"] is None
        expected = outcomes.found[name]["result"]
        assert results[name].keys() == expected.keys()
        for path, value in expected.items():
            numpy.testing.assert_allclose(results[name][path], value, rtol=1e-5)
