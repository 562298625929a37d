"""The texts of the form for a new run, and the request that they make."""

from pathlib import Path

import machines
import pytest

from screens.state.run_form import OWN, SCENARIOS, RunForm
from workbench import catalog
from workbench.contract import Parameter
from workbench.planning.questions import ModelQuestion, OwnQuestion
from workbench.planning.request import Request


@pytest.mark.parametrize("name", [SCENARIOS, *catalog.files()])
def test_every_entry_has_fields_and_can_be_started_as_it_stands(name: str) -> None:
    draft = RunForm(Request())
    draft.entry = name
    checked = draft.check()
    assert checked.error == ""
    assert checked.request.arguments() == (["run", name] if name else ["advise"])
    assert len({field.label for field in draft.fields()}) == len(draft.fields())


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("batch", "1..x", "--batch takes whole numbers"),
        ("batch", "0", "--batch must be between 1 and 1000000, not 0"),
        ("threads", "0", "--threads must be between"),
        ("budget", "soon", "--budget takes seconds, not 'soon'"),
        ("budget", "nan", "--budget must be between"),
        ("precision", "fp31", "did you mean fp32?"),
        ("backend", "theano", "unknown backend 'theano'"),
        ("device", "gpu0", "unknown device 'gpu0'"),
        ("train_cnn.image", "1", "image must be between 16 and 256, not 1"),
    ],
)
def test_a_wrong_text_is_an_error_and_the_command_is_that_of_the_entry(key, value, error) -> None:
    draft = RunForm(Request(quick=True, seed=3))
    draft.entry = "train_cnn"
    draft.texts[key] = value
    checked = draft.check()
    assert error in checked.error
    assert checked.command == "workbench run train_cnn --seed 3"


@pytest.mark.parametrize(
    ("entry", "key", "value"),
    [
        ("train_cnn", "train_cnn.image", "1"),
        ("train_cnn", "budget", "soon"),
        ("train_cnn", "python", "/nowhere/python"),
        (OWN, "code", "nowhere.py"),
        (OWN, "max_error", "2"),
        (OWN, "arguments", "'"),
    ],
)
def test_the_field_of_an_error_is_known(entry: str, key: str, value: str) -> None:
    draft = RunForm(Request())
    draft.entry = entry
    draft.texts |= {"code": "nowhere:net", key: value}
    assert draft.check().wrong == key


def test_ones_own_scenarios_and_prices_stay_with_the_table(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[scenario]]\nid = "mine"\ntitle = "Mine"\nquestion = "Which?"\nworkload = "matmul"\n'
        'objective = "cost"\nprecisions = ["fp32"]\n'
    )
    given = Request(scenario_file=str(file), prices=("cpu=1",), all_scenarios=True)
    draft = RunForm(given)
    assert draft.check().error == ""
    assert draft.check().request == given
    assert "mine" in draft.fields()[0].choices
    draft.texts["scenarios"] = "mine,realtime"
    assert draft.check().request.scenarios == ("mine", "realtime")
    assert draft.check().error == ""
    draft.entry = "matmul"
    assert draft.check().request.arguments() == ["run", "matmul"]
    draft.entry = SCENARIOS
    file.write_text("spoilt")
    assert draft.fields()
    assert "mine.toml: Expected" in draft.check().error


def test_fields_may_be_wrong_only_together() -> None:
    draft = RunForm(Request())
    draft.entry = "train_cnn"
    draft.texts |= {
        "batch": ",".join(map(str, range(1, 60))),
        "train_cnn.image": "16..100,17,18,19,20,21",
    }
    assert "rows; 512 at most" in draft.check().error


def test_a_tuning_parameter_says_so_and_is_left_to_the_workload(monkeypatch) -> None:
    workload = type(catalog.load("matmul"))()
    knob = Parameter("block", 64, "rows in a block", 8, 512, unit="rows", tuning=True)
    monkeypatch.setattr(type(workload), "parameters", (*workload.parameters, knob))
    draft = RunForm(Request())
    draft.entry = "matmul"
    field = next(field for field in draft.fields() if field.label == "block")
    assert field.default == "as proposed"
    assert field.allowed == "tuning; between 8 and 512 rows"
    draft.texts["matmul.block"] = "16,32"
    assert draft.check().command == "workbench run matmul --set block=16,32"
    assert draft.check().outlook == "1 row"


@pytest.mark.parametrize(
    ("texts", "command"),
    [
        ({"code": "m.net:build"}, "--torch m.net:build"),
        ({"code": "m.net:build", "kind": "function"}, "--function m.net:build"),
        ({"code": "s.py"}, "--torch s.py"),
        ({"code": "sh run.sh", "kind": "command"}, "--command 'sh run.sh'"),
        ({"code": "sh {n}", "kind": "command", "over": "n=1,2"}, "--command 'sh {n}' --over n=1,2"),
        (
            {"code": "sh {n}", "kind": "command", "over": "'n=--amp --fused,--fp32'"},
            "--command 'sh {n}' --over 'n=--amp --fused,--fp32'",
        ),
        ({"code": "m:f", "over": "n=1,2"}, "--torch m:f"),
        (
            {"code": "m.onnx", "kind": "model", "objective": "memory"},
            "--model m.onnx --objective memory",
        ),
        (
            {"code": "s.py", "arguments": "--lr '1 2'", "save_best": "best", "max_error": "0.1"},
            "--torch s.py --max-error 0.1 --save-best best -- --lr '1 2'",
        ),
        ({"code": "m:f", "train": "training", "batch": "8,64"}, "--torch m:f --train --batch 8,64"),
        ({"code": "m:f", "kind": "function", "mode": "nhwc"}, "--function m:f"),
        (
            {"code": "sh x", "kind": "command", "until": "step 5", "threads": "1"},
            "--command 'sh x' --until 'step 5'",
        ),
        (
            {"code": "m.onnx", "kind": "model", "min_agreement": "0.9", "inputs": "real.npz"},
            "--model m.onnx --min-agreement 0.9 --inputs real.npz",
        ),
        (
            {"code": "m:f", "objective": "throughput", "batch": "1,8", "mode": "nhwc,compile"},
            "--torch m:f --objective throughput --mode nhwc --mode compile --batch 1,8",
        ),
    ],
)
def test_the_form_asks_what_the_command_line_asks(tmp_path, monkeypatch, texts, command) -> None:
    (tmp_path / "s.py").touch()
    monkeypatch.chdir(tmp_path)
    draft = RunForm(Request())
    draft.entry = OWN
    draft.texts |= texts
    checked = draft.check()
    assert (checked.error, checked.outlook) == ("", "1 row")
    assert checked.command == f"workbench advise {command}"
    assert RunForm(checked.request).check().request == checked.request, "the form begins with it"


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("code", "gone.py", "there is no file gone.py"),
        ("code", "sh {n}", "not 'sh {n}'"),
        ("kind", "functon", "did you mean function?"),
        ("objective", "energy", "--torch takes --objective latency or throughput"),
        ("batch", "0", "--batch must be between"),
        ("max_error", "small", "--max-error takes a number up to 1, not 'small'"),
        ("max_error", "2", "--max-error must be above 0, and 1 at most"),
        ("arguments", "--lr 1", "what follows -- belongs to a script"),
        ("arguments", "'", "arguments: No closing quotation"),
        ("python", "nowhere/python", "--python: nowhere/python is not an executable file"),
        ("mode", "nhcw", "did you mean nhwc?"),
        ("device", "cuda:7", "no device cuda:7 here"),
    ],
)
def test_a_wrong_text_about_ones_own_code_is_an_error(key, value, error: str) -> None:
    draft = RunForm(Request(), machines.cpu_server()[0])
    draft.entry = OWN
    draft.texts |= {"code": "m:build", key: value}
    assert error in draft.check().error


@pytest.mark.parametrize(
    ("installed", "error"), [(None, ""), ({"xgboost"}, ""), ({"torch"}, "tabular needs lightgbm")]
)
def test_a_row_of_optional_libraries_starts_where_one_is_installed(installed, error: str) -> None:
    draft = RunForm(Request(), machines.cpu_server()[0], installed)
    draft.texts["scenarios"] = "tabular"
    assert (draft.check().error or "").startswith(error)
    assert bool(draft.check().error) is bool(error)


def test_options_without_a_field_stay_with_the_same_code(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "m.pt").touch()
    monkeypatch.chdir(tmp_path)
    own = OwnQuestion("torch", "m.pt", train=True, pickled=True)
    draft = RunForm(Request(question=own))
    assert draft.check().request.question == own
    draft.texts["code"] = "m:other"
    assert draft.check().request.question == OwnQuestion("torch", "m:other", train=True)


def test_a_pattern_that_is_none_is_an_error() -> None:
    draft = RunForm(Request())
    draft.entry = OWN
    draft.texts |= {"kind": "command", "code": "sh x", "until": "("}
    assert "--until is not a regular expression" in draft.check().error


def test_an_effort_has_its_own_budget_unless_another_one_was_typed() -> None:
    draft = RunForm(Request(budget_s=300.0))
    for key, text, command in (
        ("effort", "quick", "advise --quick"),
        ("effort", "", "advise --budget 300"),
        ("budget", "30", "advise --budget 30"),
        ("effort", "quick", "advise --quick --budget 30"),
    ):
        draft.take(key, text)
        assert draft.check().command == f"workbench {command}"


def test_the_budget_shown_is_the_one_that_the_entry_gets() -> None:
    draft = RunForm(Request(question=ModelQuestion("m.onnx")))
    for entry, kind, effort, expected in (
        ("own", "model", "", "30"),
        ("own", "torch", "", "60"),
        ("matmul", "", "", "60"),
        ("matmul", "", "quick", "20"),
    ):
        draft.entry = OWN if entry == "own" else entry
        draft.texts |= {"kind": kind, "effort": effort}
        shown = {field.key: field.default for field in draft.fields()}
        assert shown["budget"] == expected, (entry, kind, effort)
        assert shown["threads"] == ("as proposed" if entry == "own" else "all cores")
    every = RunForm(Request(all_scenarios=True))
    for names, expected in (("", "300"), ("training", "45")):
        every.texts["scenarios"] = names
        assert next(f.default for f in every.fields() if f.key == "budget") == expected
