"""Facts found by calling a user's module."""

from pathlib import Path

import pytest
import torch
from checking import fails_with
from own_tasks import facts_of, task_of

from workbench.worker.code import Code
from workloads.own.workload import WORKLOAD

FIXTURES = Path(__file__).parents[3] / "fixtures" / "own"


def test_the_facts_of_a_module(examined) -> None:
    _, facts = examined("picture")
    assert facts["name"] == "modules:picture"
    (given,) = facts["inputs"]
    assert (given["name"], given["type"], given["shape"]) == ("0", "float32", [4, 3, 16, 16])
    assert given["place"] == "inputs[0]"
    assert (facts["batch"], facts["resizable"], facts["convolves"]) == (4, True, True)
    assert (facts["stateful"], facts["nondeterministic"], facts["mutated"]) == (False, False, [])
    assert facts["reference"] == "eager in float64" and 0 < facts["floor"] < 1e-5
    assert facts["parameters"] == 3 * 8 * 9 + 8 + 16 + 8 * 5 + 5
    assert len(facts["code_sha256"]) == 64
    assert any("training mode" in note for note in facts["notes"])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("modules:padded", {"nondeterministic": False}),
        ("modules:chance", {"nondeterministic": True, "stateful": False}),
        ("states:running", {"nondeterministic": False, "stateful": True}),  # its state is an output
        ("modules:mixes_rows", {"resizable": False}),
        ("modules:linear", {"resizable": True, "compiled": False}),
        ("modules:recurrent", {"resizable": False}),  # its first axis is the sequence
        ("modules:maps", {"batch": 2}),  # the first axis of maps in a list
        ("modules:fixed_by_itself", {"batch": 2, "resizable": False}),
        ("modules:policy", {"batch": None}),  # a state without rows
        ("modules:of_width_4", {"batch": 2}),  # a decorator fills its parameters in
        ("modules:typed", {"convolves": True}),  # its state holds other things than tensors
        ("outputs:half_hidden", {"reference": "eager as written"}),  # it casts
        ("outputs:complex_hidden", {"reference": "eager as written"}),
        ("outputs:phases", {"reference": "eager in float64"}),
        ("outputs:overflowing", {"reference": "eager as written"}),  # float64 has no infinity there
    ],
)
def test_what_a_call_says_about_a_module(examined, target: str, expected: dict) -> None:
    file, name = target.split(":")
    _, facts = examined(name, file)
    assert {fact: facts[fact] for fact in expected} == expected


def test_the_threads_that_a_builder_sets_are_known(examined) -> None:
    before = torch.get_num_threads()
    try:
        assert examined("on_threads")[1]["threads"] == before + 1
    finally:
        torch.set_num_threads(before)


def test_variables_that_come_too_late_are_noted(examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    _, facts = examined("by_variable")
    assert facts["threads"] is None, "it counts where torch is imported after it alone"
    for name in "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES":
        assert f"it sets {name}, perhaps too late to have an effect" in facts["notes"]


def test_state_and_changed_inputs_are_found(examined) -> None:
    code, facts = examined("counting", "states")
    assert facts["stateful"] and facts["mutated"] == ["0"]
    assert sum("own copy" in n or "restored" in n for n in facts["notes"]) == 2
    task = task_of(code, batch=2)
    assert task.restores
    assert task.check().value == 0.0
    task.step()
    task.restore()
    assert task.hosted.args[0].abs().sum() == 0


@pytest.mark.parametrize("seed", range(6))
def test_actions_drawn_at_random_are_no_state(examined, seed: int) -> None:
    _, facts = examined("acting", "outputs", seed=seed)
    assert (facts["stateful"], facts["nondeterministic"]) == (False, True)
    counts = "so action counts only in calls that draw the same numbers"
    assert f"two fresh copies differ, {counts}" in facts["notes"]


def test_a_list_that_grows_is_restored(examined) -> None:
    code, facts = examined("growing", "states")
    assert facts["mutated"] == ["1.0"] and not facts["nondeterministic"]
    task = task_of(code, batch=None)
    for _ in range(2):
        task.step()
        assert len(task.hosted.args[1]) == 1
        task.restore()


def test_a_dictionary_that_a_call_fills_and_returns_is_no_obstacle(examined) -> None:
    code, facts = examined("filling", "states")
    assert facts["mutated"] == ["0.y"] and facts["returns_changes"]
    assert not examined("growing", "states")[1]["returns_changes"]
    made = WORKLOAD.consult("export", code=code.as_text(), batches=[facts["batch"]])
    assert made["inputs"] == ["input_0.x"]


def test_a_compiled_module_is_raced_without_it_and_that_is_said(examined) -> None:
    _, facts = examined("compiled")
    assert facts["compiled"]
    assert any("torch.compile is removed" in note for note in facts["notes"])
    code, partly = examined("partly_compiled")  # which compiles nothing yet
    assert "parts of it are compiled (1), and stay so in every candidate" in partly["notes"]
    with fails_with("user_code", "TypeError: compiled"):
        task_of(code, batch=2).step()


def test_gradients_inside_are_allowed(examined) -> None:
    code, facts = examined("needs_gradients")
    assert facts["guard"] == "enable_grad"
    assert task_of(code, batch=2).check().value < 1e-6


def test_images_in_a_list_are_no_batch_of_colours(examined) -> None:
    code, facts = examined("images")
    assert facts["batch"] is None and not facts["resizable"]
    assert task_of(code, batch=None).check().passed


def test_a_sequence_whose_state_goes_on_is_no_batch(examined) -> None:
    for asked, batch in ((None, None), (5, 5)):
        _, facts = examined("scanning", "states", batch=asked)
        assert facts["stateful"] and not facts["resizable"]
        assert facts["batch"] == batch


def test_a_module_that_fixes_its_batch_runs_at_that_one(examined) -> None:
    for asked, batch in ((None, None), (2, 2), (4, None)):
        _, facts = examined("fixed", batch=asked)
        found = facts["batch"], facts["resizable"], facts["of_one_size"]
        assert found == (batch, False, batch is not None)


def test_a_module_that_keeps_its_results_is_noted(examined) -> None:
    _, facts = examined("keeping", "states")
    assert "or it caches results and only reading them is timed" in facts["notes"][-1]


def test_a_nested_output_is_compared(examined) -> None:
    code, _ = examined("nesting")
    assert task_of(code, batch=2).check().passed


@pytest.mark.parametrize(
    ("name", "code_word", "says"),
    [
        ("not_a_number", "bad_input", "NaN"),
        ("text_only", "bad_input", r"no tensors were found in its output \(str\)"),
        ("asks_for_cuda", "needs_gpu", "modules:asks_for_cuda cannot run on the CPU: (?!modules)"),
        ("without_inputs", "bad_input", "gives no inputs to call its module with"),
        ("without_rows", "bad_input", "the inputs of modules:without_rows hold no values"),
        ("without_values", "bad_input", "the inputs of modules:without_values are on the meta"),
        ("nested", "bad_input", "the inputs of modules:nested are nested tensors"),
        ("of_width", "bad_target", "modules:of_width has parameters without defaults: width$"),
        ("misfit", "user_code", r"modules:misfit: .*mat1 and mat2 shapes"),
        ("unknown_keyword", "user_code", r"modules:unknown_keyword: .*argument 'mask'"),
        ("fails", "user_code", r"modules:fails: KeyError: 'vocabulary' \(modules.py:\d+\)$"),
    ],
)
def test_what_cannot_be_compared_is_refused(examined, name, code_word, says) -> None:
    with fails_with(code_word, says):
        examined(name)


def test_the_inputs_and_the_loss_of_a_training_with_data(tmp_path: Path) -> None:
    code = Code("torch", "trained:build", str(tmp_path), str(FIXTURES), train=True)
    facts = facts_of(code)
    assert (facts["data"], facts["loss"]) == ("dataset", "output, batch")
    (given,) = facts["inputs"]
    assert (given["name"], given["shape"]) == ("0", [32, 4])
    assert facts["inputs_sha256"] == ""


def test_an_archive_at_the_end_of_its_range_has_other_batches(tmp_path: Path) -> None:
    rows = {0: torch.export.Dim("rows", max=4)}
    given = (torch.ones(4, 3),)
    program = torch.export.export(torch.nn.Linear(3, 2), given, dynamic_shapes=(rows,))
    torch.export.save(program, tmp_path / "net.pt2")
    code = Code("torch", "net.pt2", str(tmp_path / "kept"), str(tmp_path))
    facts = facts_of(code)
    assert (facts["batch"], facts["resizable"], facts["of_one_size"]) == (4, True, False)


def test_an_archive_in_training_mode_has_a_remedy(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Dropout(), (torch.ones(4, 3),))
    torch.export.save(program, tmp_path / "net.pt2")
    code = Code("torch", "net.pt2", str(tmp_path / "kept"), str(tmp_path))
    notes = facts_of(code)["notes"]
    assert any(note.endswith("call eval() before torch.export") for note in notes)


@pytest.mark.parametrize(
    ("name", "made", "is_graph"),
    [
        ("exported", "torch.export.export(net, given).module()", True),
        ("frozen", "torch.jit.freeze(torch.jit.script(net.eval()))", False),
    ],
)
def test_a_module_without_another_mode_is_taken(written, name, made, is_graph) -> None:
    text = "import torch\nnet, given = torch.nn.Linear(3, 2), (torch.ones(4, 3),)\n"
    code = written(f"{name}_net", f"{text}build = lambda: ({made}, given)\n")
    facts = facts_of(code)
    assert (facts["graph"], facts["of_one_size"], facts["notes"]) == (is_graph, is_graph, [])
    assert task_of(code).check().value < 1e-6


CUT = """
import itertools, torch

lengths = itertools.count(1)

class Cut(torch.nn.Module):
    def forward(self, x):
        return x[: next(lengths)]

build = lambda: (Cut(), (torch.ones(99, 2),))
"""


def test_outputs_of_different_shapes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cut_net.py").write_text(CUT)
    code = Code("torch", "cut_net:build", str(tmp_path / "kept"), str(tmp_path))
    with fails_with("bad_input", "equal calls of cut_net:build return outputs of different shapes"):
        facts_of(code)


@pytest.mark.parametrize("name", ["remembering", "remembering_a_token"])
def test_state_that_equal_calls_hide_is_found_and_reset(examined, name: str) -> None:
    code, facts = examined(name, "states")
    assert facts["stateful"] and not facts["mutated"]
    task = task_of(code, batch=facts["batch"])
    assert task.check().value == 0.0
    for _ in range(3):
        assert len(task.model.seen) == 1, "every timed call begins where the check ended"
        task.step()
        task.restore()


def test_sparse_inputs_are_inputs(examined) -> None:
    code, facts = examined("sparse")
    assert facts["mutated"] == []
    assert task_of(code, batch=facts["batch"]).check().value < 1e-6


def test_the_hash_of_the_code_is_that_of_the_file_that_defines_a_builder_too(written) -> None:
    text = "import torch\ndef build(): return torch.nn.Linear(3, 2), torch.ones(1, 3)\n"
    written("defines_it", text)
    code = written("passes_on", "from defines_it import build\n")
    before = facts_of(code)["code_sha256"]
    assert facts_of(code)["code_sha256"] == before
    written("defines_it", f"{text}# another\n")
    assert facts_of(code)["code_sha256"] != before


def test_the_hash_of_the_code_is_that_of_its_classes_too(written) -> None:
    text = "import torch\nclass Net(torch.nn.Linear): pass\n"
    written("far_nets", text)
    build = "import torch, far_nets\ndef build(): return far_nets.Net(3, 2), torch.ones(1, 3)\n"
    code = written("far_build", build)
    before = facts_of(code)["code_sha256"]
    written("far_nets", f"{text}# another\n")
    assert facts_of(code)["code_sha256"] != before
