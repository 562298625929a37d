"""Scripts that are run once, unchanged, in forks of a real process: what is seen, chosen and handed
over."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest

from workloads.own import handing_over

ROOT = Path(__file__).parents[4]
OWN = ROOT / "tests" / "fixtures" / "own"

# Name of the request: target, arguments, seconds, names of modules to choose.
REQUESTS: dict[str, tuple[str, list[str], float, list[str]]] = {
    "guarded": ("scripts/guarded.py", [], 60.0, ["", "Net#2", "Wide", "Nut"]),
    "well": ("scripts/unguarded.py", ["--batch", "5"], 60.0, [""]),
    "exit": ("scripts/unguarded.py", ["--batch", "5", "--end", "exit"], 60.0, []),
    "raise": ("scripts/unguarded.py", ["--batch", "5", "--end", "raise"], 60.0, []),
    "cancel": ("scripts/unguarded.py", ["--batch", "5", "--end", "cancel"], 60.0, []),
    "refused": ("scripts/unguarded.py", [], 60.0, []),
    "endless": ("scripts/endless.py", [], 0.2, []),
    "sleeper": ("scripts/sleeper.py", [], 0.2, []),
    "training": ("scripts/training.py", [], 60.0, [""]),
    "mixes": ("scripts/none.py", ["mixed"], 60.0, []),
    "many": ("scripts/many.py", [], 60.0, ["Locked", "Guarded"]),
    "none": ("scripts/none.py", [], 60.0, []),
    "hidden": ("scripts/none.py", ["compiled"], 60.0, []),
    "broken": ("scripts/none.py", ["data"], 60.0, []),
    "forks": ("scripts/forks.py", [], 60.0, []),
    "leaves": ("scripts/leaves.py", [], 60.0, []),
    "spawns": ("scripts/spawns.py", [], 60.0, []),
    "settings": ("scripts/settings.py", [], 60.0, [""]),
    "hub": ("scripts/hub.py", [], 60.0, [""]),
    "by_hand": ("scripts/by_hand.py", [], 60.0, []),
    "spread": ("scripts/spread.py", [], 60.0, [""]),
    "grows": ("scripts/grows.py", [], 60.0, []),
    "bars": ("scripts/bars.py", [], 60.0, []),
    "lacks": ("scripts/lacks.py", [], 60.0, []),
    "on_cuda": ("scripts/lacks.py", ["cuda"], 60.0, []),
    "torchrun": ("scripts/lacks.py", ["torchrun"], 60.0, []),
    "notebook": ("scripts/lacks.py", ["notebook"], 60.0, []),
    "folder": ("scripts/lacks.py", ["folder"], 60.0, []),
    "asks": ("scripts/asks.py", [], 60.0, []),
    "inside": ("scripts/inside.py", [], 60.0, []),
    "direct": ("scripts/direct.py", [], 60.0, []),
    "mapped": ("scripts/mapped.py", [], 60.0, [""]),
    "compiles": ("scripts/compiles.py", [], 0.2, []),
    "replaced": ("scripts/lacks.py", ["exec"], 60.0, []),
    "slow_start": ("scripts/lacks.py", ["sleep"], 0.2, []),
    "unnamed": ("scripts/lacks.py", ["unnamed"], 60.0, []),
}


@dataclass(frozen=True)
class Outcomes:
    """What came of each request, and what the scripts printed."""

    found: dict[str, dict[str, Any]]
    received: dict[str, dict[str, Any]]  # folder to what another process got out of it
    printed: list[str]
    log: str


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    home = tmp_path_factory.mktemp("code")
    requests = []
    for name, (target, arguments, seconds, choose) in REQUESTS.items():
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
                "choose": choose,
            }
        )
    done = subprocess.run(
        [sys.executable, str(OWN / "script_runner.py"), str(home), json.dumps(requests)],
        cwd=OWN,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = {name: json.loads((home / name / "outcome.json").read_text()) for name in REQUESTS}
    received = json.loads((home / "received.json").read_text())
    return Outcomes(found, received, done.stdout.splitlines(), done.stderr)


def test_a_script_runs_once_as_main_in_the_users_directory(outcomes: Outcomes) -> None:
    assert outcomes.printed.count("ran scripts/guarded.py in own") == 1
    assert outcomes.printed.count("ran unguarded") == 4  # argparse refuses the fifth


def test_modules_are_listed_with_calls_shapes_and_shares(outcomes: Outcomes) -> None:
    found = outcomes.found["guarded"]
    modules = found["modules"]
    assert list(modules) == ["Net", "Net#2", "Wide"]
    assert [each["calls"] for each in modules.values()] == [4, 1, 1]
    assert modules["Net"]["shapes"] == ["5x8, scale=1", "2x8"]
    assert modules["Net"]["sizes"] == 2
    assert modules["Wide"]["shapes"] == ["64x256"]
    assert modules["Net"]["notes"] == [], "its training mode changes nothing"
    assert found["trains"] == []
    # The inputs of the most frequent shapes are kept.
    assert modules["Net"]["example"] == {"args.0": [[1.0] * 8] * 5, "kwargs.scale": [2.0]}
    seconds = [each["seconds"] for each in modules.values()]
    assert all(each > 0 for each in seconds)
    assert sum(seconds) <= found["seconds"]
    assert not found["cut"]
    assert found["notes"] == []


def test_a_module_is_chosen_by_its_share_or_by_name(outcomes: Outcomes) -> None:
    modules, chosen = (outcomes.found["guarded"][each] for each in ("modules", "chosen"))
    assert chosen[""]["name"] == max(modules, key=lambda name: modules[name]["seconds"])
    assert chosen["Net#2"]["name"] == "Net#2"
    message = "the script calls no 'Nut'; it calls Net, Net#2, Wide"
    assert chosen["Nut"] == {"error": "bad_target", "message": message, "hint": None}


def test_the_worker_is_left_as_it_was(outcomes: Outcomes) -> None:
    for name in ("guarded", "raise", "endless", "training"):
        found = outcomes.found[name]
        assert found["restored"], name
        assert found["paths"] == ["scripts"]
        assert found["last_path"] == "scripts"  # imports inside forward still work


def test_the_threads_that_a_script_sets_are_known(outcomes: Outcomes) -> None:
    found = [outcomes.found[name]["threads"] for name in ("well", "raise", "guarded")]
    assert found == [3, 3, None]


def test_a_thread_is_waited_for_and_settings_are_known(outcomes: Outcomes) -> None:
    found = outcomes.found["settings"]
    assert found["modules"]["Adds"]["notes"] == ["Adds was compiled in 1 of 1 calls"]
    assert found["dtype"] == "float64" and found["restored"]
    on_meta, slowed = found["notes"]
    assert on_meta.startswith("the script makes new tensors on meta;")
    assert slowed.startswith("the script turns on anomaly detection and deterministic algorithms")
    handed = found["chosen"][""]
    assert handed["reason"] is None
    assert outcomes.received[handed["folder"]] == {"": [1.0, 1.0]}


def test_what_was_seen_before_the_end_counts(outcomes: Outcomes) -> None:
    well, exits, raises = (outcomes.found[name] for name in ("well", "exit", "raise"))
    assert (well["modules"]["Linear"]["shapes"], well["notes"]) == (["5x3"], [])
    assert exits["notes"] == ["the script exited with 3"]
    assert exits["modules"]["Linear"]["calls"] == 1
    (note,) = outcomes.found["cancel"]["notes"]
    assert note.startswith("the script raised CancelledError (unguarded.py:")
    (note,) = raises["notes"]
    assert note.startswith("the script raised RuntimeError: mat1 and mat2 shapes")
    linear = raises["modules"]["Linear"]
    assert (linear["calls"], linear["shapes"]) == (2, ["5x3", "5x7"])
    assert "unguarded.py" in outcomes.log  # the traceback


@pytest.mark.parametrize(
    ("name", "error", "message", "remedy"),
    [
        (
            "refused",
            "user_code",
            "scripts/unguarded.py exited with 2 before it called a module",
            "pass its arguments after --",
        ),
        (
            "broken",
            "user_code",
            "scripts/none.py raised ValueError: no data (none.py:13) before it called a module",
            None,
        ),
        (
            "lacks",
            "missing_package",
            "scripts/lacks.py raised ModuleNotFoundError: No module named 'not_there'"
            " (lacks.py:25) before it called a module",
            "--python names the environment that has it",
        ),
        (
            "unnamed",
            "user_code",
            "scripts/lacks.py raised ModuleNotFoundError: Could not import module 'Net'"
            " (lacks.py:23) before it called a module",
            None,
        ),
        (
            "on_cuda",
            "user_code",
            "scripts/lacks.py raised AssertionError: Torch not compiled with CUDA enabled"
            " (lacks.py:10) before it called a module",
            "let it use the CPU, by an option after -- (--device cpu) or in its code",
        ),
        (
            "torchrun",
            "user_code",
            "scripts/lacks.py raised KeyError: 'LOCAL_RANK' (lacks.py:12)"
            " before it called a module",
            "torchrun sets it: put RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost"
            " MASTER_PORT=29500 before workbench",
        ),
        (
            "notebook",
            "user_code",
            "scripts/lacks.py raised NameError: name 'get_ipython' is not defined (lacks.py:14)"
            " before it called a module",
            "it was a notebook: remove what only IPython can run",
        ),
        (
            "folder",
            "missing_package",
            "scripts/lacks.py raised ModuleNotFoundError: No module named 'small_net'"
            " (lacks.py:17) before it called a module",
            "put PYTHONPATH=. before workbench: it is there",
        ),
        (
            "none",
            "bad_input",
            "scripts/none.py called no torch module in its own process",
            "name a function of it, --torch scripts.none:build or --function scripts.none:work,"
            " or race the whole script by --command",
        ),
        (
            "hidden",
            "bad_input",
            "scripts/none.py called no torch module outside functions that torch.compile compiles,"
            " where none is seen",
            "name a function of it, --torch scripts.none:build or --function scripts.none:work,"
            " or race the whole script by --command",
        ),
        (
            "asks",
            "user_code",
            "scripts/asks.py raised EOFError: EOF when reading a line (asks.py:5)"
            " before it called a module",
            "its standard input is empty: let it take arguments",
        ),
        (
            "inside",
            "user_code",
            "scripts/inside.py raised ImportError: attempted relative import with no known parent"
            " package (inside.py:3) before it called a module",
            "name a script outside the package that imports this one",
        ),
        (
            "replaced",
            "user_code",
            "scripts/lacks.py replaced its process with another program before it called a module",
            "do first what it does for that, such as set a variable",
        ),
        (
            "slow_start",
            "bad_input",
            "scripts/lacks.py called no torch module within 0.2 s",
            "raise --budget: a script gets a third of it;"
            " for a server, name a function that builds its module",
        ),
    ],
)
def test_a_script_that_calls_no_module_says_why_and_what_to_do(
    outcomes: Outcomes, name: str, error: str, message: str, remedy: str | None
) -> None:
    assert outcomes.found[name] == {"error": error, "message": message, "hint": remedy}


def test_a_script_that_does_not_end_is_cut(outcomes: Outcomes) -> None:
    for name in ("endless", "sleeper"):
        found = outcomes.found[name]
        assert found["cut"]
        assert found["seconds"] > 0
        assert found["modules"]["ReLU"]["calls"] >= 1
        assert found["modules"]["ReLU"]["example"] == {"args.0": [0.0] * 4}
    assert "caught" not in outcomes.printed
    assert outcomes.found["endless"]["notes"] == ["the script was cut after 0.2 s"]
    assert outcomes.found["sleeper"]["notes"] == [
        "the script was cut after 0.2 s",
        "the script left 1 thread running",
    ]


def test_a_training_script(outcomes: Outcomes) -> None:
    found = outcomes.found["training"]
    net, loss = found["modules"]["Classifier"], found["modules"]["Loss"]
    assert (net["calls"], loss["calls"]) == (4, 3)
    assert found["trains"] == ["Classifier"]
    assert found["chosen"][""]["name"] == "Classifier", "the loss may take longer"
    assert net["shapes"] == ["4x6", "2x6"]
    assert net["notes"] == [
        "Classifier was in training mode in 3 of 4 calls",
        "Classifier was under autocast to bfloat16 on cpu in 3 of 4 calls",
    ]
    # Copied before the module halved it, and without what the loader adds later.
    assert net["example"] == {"args.0": [[float(row)] * 6 for row in range(4)]}


def test_a_training_without_an_optimizer_or_cut_before_its_first_step_is_one(outcomes) -> None:
    assert outcomes.found["by_hand"]["trains"] == ["Linear"], "without an optimizer of torch"
    assert outcomes.found["compiles"]["trains"] == ["Compiling"], "cut before its first step"


def test_a_module_in_data_parallel_is_seen_and_handed_over_without_it(outcomes: Outcomes) -> None:
    found = outcomes.found["spread"]
    (outer,) = found["modules"].values()
    assert outer["kind"] == "Sequential"
    assert outer["notes"] == ["Sequential was in DataParallel in 2 of 2 calls"]
    assert found["chosen"][""]["parts"] == ["Sequential", "Linear", "ReLU"]


def test_a_package_whose_folder_the_script_takes_off_the_path_is_found(outcomes: Outcomes) -> None:
    handed = outcomes.found["hub"]["chosen"][""]
    assert handed["reason"] is None and handed["name"] == "Wide"
    assert outcomes.received[handed["folder"]].keys() == handed["result"].keys()


def test_among_inputs_of_equal_frequency_the_large_ones_are_kept(outcomes: Outcomes) -> None:
    net = outcomes.found["grows"]["modules"]["ReLU"]
    assert net["shapes"][0] == "1x1"
    assert net["example"] == {"args.0": [[0.0] * 4]}


def test_the_thread_that_watches_bars_is_no_thread_of_the_script(outcomes: Outcomes) -> None:
    assert outcomes.found["bars"]["notes"] == []


def test_a_script_with_many_modules(outcomes: Outcomes) -> None:
    modules = outcomes.found["many"]["modules"]
    # New modules in every call share a record.
    assert [name for name in modules if name.startswith("Softmax")] == ["Softmax"]
    assert (modules["Softmax"]["calls"], modules["Softmax"]["sizes"]) == (10, 6)
    # Inputs of frequent shapes displace rare ones.
    locked = modules["Locked"]
    assert locked["shapes"] == ["2", "6", "1", "3", "4"]
    assert locked["example"] == {"args.0": [0.0] * 6}  # it led first
    # Threads and compiled modules are seen.
    assert modules["Tanh"]["calls"] == 1
    compiled = modules["Sequential"]
    assert (compiled["calls"], compiled["kind"]) == (2, "Sequential")
    assert compiled["notes"][0] == "Sequential was compiled in 2 of 2 calls"
    assert "Linear" not in modules


def test_calls_that_compiled_functions_hide_are_noted(outcomes: Outcomes) -> None:
    found = outcomes.found["mixes"]
    assert found["modules"]["Linear"]["calls"] == 1
    assert found["notes"] == ["calls inside functions that torch.compile compiles are not seen"]


def test_only_the_script_itself_answers_when_it_forks(outcomes: Outcomes) -> None:
    assert outcomes.found["forks"]["modules"]["ReLU"]["calls"] == 1
    assert outcomes.printed.count("answered forks") == 1


def test_a_script_that_ends_its_process_leaves_its_calls(outcomes: Outcomes) -> None:
    found = outcomes.found["leaves"]
    assert found["modules"]["ReLU"]["calls"] == 1
    assert found["notes"] == ["the script exited with 5"]
    assert found["restored"]
    assert "the child ended with 7" in outcomes.printed


def test_a_process_that_a_script_leaves_running_is_known(outcomes: Outcomes) -> None:
    assert outcomes.found["spawns"]["notes"] == ["the script left 1 process running"]


def test_what_cannot_be_pickled_or_copied_is_named_with_the_reason(outcomes: Outcomes) -> None:
    chosen = outcomes.found["many"]["chosen"]
    reason = chosen["Locked"]["reason"]
    assert reason.startswith("Locked cannot be handed to another process: TypeError: cannot pickle")
    assert not Path(chosen["Locked"]["folder"], handing_over.PICKLE).exists()
    message = "the inputs of Guarded cannot be copied"
    assert chosen["Guarded"] == {"error": "unsupported", "message": message, "hint": None}


def test_a_module_of_which_only_forward_is_called_is_noted(outcomes: Outcomes) -> None:
    found = outcomes.found["direct"]
    assert found["modules"].keys() == {"Linear"}
    (note,) = found["modules"]["Linear"]["part"]
    assert note.startswith("the script calls Net.forward, of which only Linear races: call the")


def test_a_module_that_only_vmap_calls_is_refused(outcomes: Outcomes) -> None:
    refused = outcomes.found["mapped"]["chosen"][""]
    assert refused["error"] == "bad_input"
    assert refused["message"].startswith("Linear is called only by a transform of torch.func")


def test_another_process_without_cloudpickle_gets_the_same_module(outcomes: Outcomes) -> None:
    all_chosen = [
        each for found in outcomes.found.values() for each in found.get("chosen", {}).values()
    ]
    handed = [each for each in all_chosen if each.get("reason", "") is None]
    assert len(handed) == 8
    assert {each["folder"] for each in handed} == outcomes.received.keys()
    for each in handed:
        received, expected = outcomes.received[each["folder"]], each["result"]
        assert received.keys() == expected.keys() != set()
        for path, value in expected.items():
            numpy.testing.assert_allclose(received[path], value, rtol=1e-5)
