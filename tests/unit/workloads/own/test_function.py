"""A user's function as a task: its arguments, its check, the changes that it makes."""

import re
import runpy
import subprocess
import sys
from dataclasses import asdict
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from checking import fails_with

from workbench.contract import Case, Setup, WorkloadError
from workbench.records.code import CodeFacts
from workbench.worker.code import FUNCTION
from workloads.own import function
from workloads.own.plain import WRONG
from workloads.own.save import save
from workloads.own.workload import WORKLOAD


def _task(code, *, batch: int | None = None, device: str = "cpu") -> function.FunctionTask:
    case = Case("own", device, "python", "", batch=batch)
    return WORKLOAD.prepare(case, Setup(files={"code": code.as_text()}))


def _facts(code) -> CodeFacts:
    found = WORKLOAD.consult("examine", code=code.as_text())
    return msgspec.convert(found, CodeFacts)


def _result(task: function.FunctionTask) -> object:
    task.step()
    task.finish()
    return task._result


@pytest.mark.parametrize(
    ("name", "batch", "result"),
    [
        ("plain", None, {"sum": 3.0, "names": ["a", "b"], "more": (1, 2.5)}),
        ("sized", 5, 10),
        ("sized", None, 0),  # n is 1
        ("keywords", None, [0.0, 2.0, 4.0]),  # n is the default of `inputs`
        ("keywords", 2, [0.0, 2.0]),
        ("added", None, 499500),  # a default that is no whole number is no size
        ("of_a_limit", None, 2),  # nor is one below 1
        ("of_a_graph", None, 3),  # a dictionary whose keys are not text is the only argument
        ("checked", None, 4),  # a default of the function itself is left alone
        ("on_device", 2, "2 on cpu"),
    ],
)
def test_the_arguments_of_a_call(code, name: str, batch: int | None, result: object) -> None:
    assert _result(_task(code(f"works:{name}"), batch=batch)) == result


@pytest.mark.parametrize("name", ["unsized", "of_fixed_inputs"])
def test_a_size_that_nothing_takes_is_none(code, name: str) -> None:
    assert _facts(code(f"works:{name}", batch=8)).batch is None


def test_a_default_below_1_is_no_size_but_makes_room_for_one(code) -> None:
    assert _facts(code("works:of_a_limit")).batch is None
    assert _facts(code("works:of_a_limit", batch=8)).batch == 8


def test_a_device_is_passed_on_and_a_simulated_one_is_the_cpu(code) -> None:
    assert _result(_task(code("works:on_device"), device="cuda:1", batch=2)) == "2 on cuda:1"
    assert _result(_task(code("works:on_device"), device="fake:0", batch=2)) == "2 on cpu"
    assert _facts(code("works:on_device")).takes_device
    assert not _facts(code("works:sized")).takes_device
    for name in ("on_device", "made_on", "named_device"):
        facts = _facts(code(f"works:{name}"))
        assert facts.takes_device and facts.passes_device == (name == "on_device")


def test_an_iterator_is_made_anew_for_each_call_and_is_no_result(code) -> None:
    task = _task(code("works:reads"), batch=12)
    assert task.check().passed and task.restores
    for _ in range(2):
        task.restore()
        assert _result(task) == 14
    assert _facts(code("works:reads")).mutated == ["lines"]
    with pytest.raises(WorkloadError, match="works:maps returns before its work is done"):
        _task(code("works:maps")).check()


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("of_a_tuple", "bad_input", "Python cannot list the arguments of works:of_a_tuple.inputs"),
        ("of_c", "bad_input", "Python cannot list the arguments of works:of_c"),
        ("of_a_range", "bad_input", "Python cannot list the arguments of works:of_a_range.inputs"),
        ("two", "bad_input", "works:two cannot be called: missing a required argument: 'b'"),
        ("lazy", "bad_input", "works:lazy returns before its work is done"),
        ("promises", "bad_input", "works:promises returns before its work is done"),
        ("starts", "bad_input", "works:starts returns before its work is done"),
        (
            "remembers",
            "bad_input",
            "works:remembers keeps its results, so only its cache would be timed",
        ),
        ("NUMBER", "bad_target", "works:NUMBER is not a function"),
        ("Shop.open", "bad_target", "works:Shop.open is a method without its object"),
        ("raises", "user_code", "works:raises: ValueError: no such axis (works.py:106)"),
        (
            "joins",
            "user_code",
            "works:joins (called with 1): TypeError: can only join an iterable (works.py:171)",
        ),
        ("leaves", "user_code", "works:leaves: SystemExit: goodbye (works.py:110)"),
        ("allocates", "no_memory", "MemoryError"),
    ],
)
def test_what_fails_is_one_line(code, name: str, error: str, says: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        _facts(code(f"works:{name}"))
    assert (caught.value.code, str(caught.value)) == (error, says)
    called_with = "called with 1" in says or "cannot be called" in says
    assert (caught.value.hint == function.RETURNS) == called_with


def test_a_first_call_that_takes_far_longer_is_noted(code) -> None:
    assert any("or it caches results" in note for note in _facts(code("works:looks_up")).notes)
    assert not any("keeps" in note for note in _facts(code("works:imports_late")).notes)


def test_a_function_that_asks_for_a_gpu_on_the_cpu_is_to_take_a_device(code) -> None:
    with pytest.raises(WorkloadError, match="asks_for_cuda cannot run on the CPU: ") as caught:
        _facts(code("works:asks_for_cuda"))
    assert (caught.value.code, caught.value.hint) == ("needs_gpu", function.TAKE_IT)
    assert "a parameter `device`" in function.TAKE_IT


def test_a_function_that_reads_standard_input_is_to_take_arguments(code) -> None:
    with fails_with("user_code", "asks: EOFError", hint="standard input is empty: let it take arg"):
        _facts(code("works:asks"))


@pytest.mark.parametrize(
    ("name", "kind"), [("needs_package", ModuleNotFoundError), ("loses_the_gpu", RuntimeError)]
)
def test_errors_that_the_worker_knows_reach_it(code, name: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        _task(code(f"works:{name}")).step()


def test_results_are_compared_with_the_first_call_in_any_worker(code) -> None:
    of = code("works:product")
    first, again = _task(of, batch=8).check(), _task(of, batch=8).check()
    assert (first.value, first.reference, first.limit) == (0.0, function.FIRST, 1e-3)
    assert (again.value, again.passed) == (0.0, True), "the seeds are equal"
    other = _task(of, batch=8)
    other.function = lambda a, b: 1.01 * (a @ b)
    wrong = other.check()
    assert wrong.value == pytest.approx(0.01)
    assert not wrong.passed
    assert _task(of, batch=9).check().passed, "each size has its own"
    on_gpu = _task(of, batch=8, device="cuda:0")
    on_gpu.function = other.function
    assert on_gpu.check().passed, "libraries use TF32 there"


def test_the_users_limit_counts(code) -> None:
    _task(code("works:product"), batch=4).check()
    loose = _task(code("works:product", max_error=0.1), batch=4)
    loose.function = lambda a, b: 1.01 * (a @ b)
    assert loose.check().passed


def test_a_result_that_is_no_number_is_wrong_and_can_be_written(code) -> None:
    _task(code("works:product"), batch=4).check()
    other = _task(code("works:product"), batch=4)
    other.function = lambda a, b: np.full((4, 4), np.nan)
    found = other.check()
    assert (found.value, found.passed) == (WRONG, False)


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("refused", "wrong_result", "its own check(output) rejects it"),
        ("asserted", "user_code", "works:asserted.check: AssertionError: one is not two"),
    ],
)
def test_the_functions_own_check_decides(code, name: str, error: str, says: str) -> None:
    task = _task(code(f"works:{name}"))
    with fails_with(error, re.escape(says)):
        task.check()
    task.function = lambda *_: 5 if name == "refused" else 2
    assert task.check().reference == f"works:{name}.check"


def test_a_function_that_exits_may_be_a_command(code) -> None:
    with fails_with("user_code", "SystemExit", hint="or race it with --command"):
        _facts(code("works:leaves"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("drifts", "two equal calls differ"),
        ("unseeded", "its inputs, or arrays of its module, differ each time: seed them"),
        ("of_locked", "its inputs of type Locked may differ each time: seed them"),
        (
            "opaque",
            "its result holds values of type object, which only works:opaque.check could judge",
        ),
        ("leaves_nothing", "it returns nothing"),
    ],
)
def test_what_cannot_be_compared_says_so(code, name: str, why: str) -> None:
    of = code("works:asserted" if name == "leaves_nothing" else f"works:{name}")
    for task in (_task(of), _task(of)):
        if name == "leaves_nothing":
            task._own_check = None
            task.function = lambda: None
        found = task.check()
        assert (found.value, found.passed) == (0.0, True)
    assert found.reference == f"not checked: {why}"
    if name != "leaves_nothing":
        facts = _facts(of)
        assert facts.reference == "", "it is compared with nothing"
        assert f"not checked: {why}" in facts.notes
        assert "two calls with equal inputs differ" not in facts.notes, "that is said once"


ASKED = """
import sys
from workbench.contract import Case
from workbench.worker.code import Code
from workloads.own.function import FunctionTask
found = FunctionTask(Case("own", "cpu", "python", ""), Code.of(sys.argv[1])).check()
print(found.value, found.reference)
"""


@pytest.mark.parametrize(
    ("draws", "reference"),
    [
        ("np.random.rand(4)", function.FIRST),
        (
            "np.random.default_rng().random(4)",
            "not checked: its inputs, or arrays of its module, differ each time: seed them",
        ),
    ],
)
def test_what_a_module_draws_at_import_is_the_same_in_a_second_process_or_is_not_compared(
    written, draws: str, reference: str
) -> None:
    text = f"import numpy as np\nDRAWN = {draws}\ndef build(): return DRAWN.sum()\n"
    of = written("draws_at_import", text, kind=FUNCTION)
    for _ in range(2):
        command = [sys.executable, "-c", ASKED, of.as_text()]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert answer == f"0.0 {reference}\n"


def test_noise_between_equal_calls_widens_the_limit(code) -> None:
    found = _task(code("works:noisy", max_error=1e-9)).check()
    assert found.passed
    assert 1e-5 < found.limit < 1e-3
    facts = _facts(code("works:noisy"))
    assert facts.nondeterministic
    assert "two calls with equal inputs differ" in facts.notes


def test_changed_inputs_are_named_renewed_and_compared(code) -> None:
    facts = _facts(code("works:sorts"))
    assert facts.mutated == ["values"]
    assert facts.reference == function.FIRST, "what is compared is the changed input"
    assert (facts.batch, facts.resizable) == (50, True)
    assert [(one.name, one.type, one.shape) for one in facts.inputs] == [
        ("values", "float64", [50])
    ]
    task = _task(code("works:sorts"))
    assert not task.restores
    assert task.check().passed
    assert task.restores
    task.restore()
    values = task.named["values"]
    assert not np.array_equal(values, np.sort(values)), "fresh, so not sorted yet"
    task.step()
    assert np.array_equal(values, np.sort(values))


def test_facts_hold_hashes_and_no_precision(code) -> None:
    facts = _facts(code("works:product"))
    assert (facts.kind, facts.name, facts.precision) == ("function", "works:product", "")
    assert len(facts.code_sha256) == len(facts.inputs_sha256) == 64
    assert facts.step_s > 0
    assert not facts.nondeterministic
    assert _facts(code("works:plain")).batch is None
    assert _facts(code("works:keywords", batch=2)).batch == 2


def test_the_hash_of_an_object_that_is_called_is_that_of_its_module(written) -> None:
    text = "import functools\nbuild = functools.partial(sum, (1, 2))\n"
    own = written("partly", text, kind=FUNCTION)
    before = _facts(own).code_sha256
    written("partly", f"{text}# another\n")
    assert _facts(own).code_sha256 != before


ON_CUDA = ["cupy", "tensorflow", "numba"]


def test_a_step_waits_for_asynchronous_results(code, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[object] = []
    jax = SimpleNamespace(block_until_ready=lambda result: waited.append(("jax", result)))
    cuda = SimpleNamespace(
        is_initialized=lambda: True, synchronize=lambda device: waited.append(("torch", device))
    )
    torch = SimpleNamespace(cuda=cuda, manual_seed=int)
    device = SimpleNamespace(synchronize=lambda: waited.append("cupy"))
    cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda number: device))
    experimental = SimpleNamespace(sync_devices=lambda: waited.append("tensorflow"))
    tensorflow = SimpleNamespace(test=SimpleNamespace(experimental=experimental))
    numba = SimpleNamespace(synchronize=lambda: waited.append("numba"))
    libraries = {"jax": jax, "torch": torch, "cupy": cupy, "tensorflow": tensorflow}
    for name, module in {**libraries, "numba.cuda": numba}.items():
        monkeypatch.setitem(sys.modules, name, module)
    _result(_task(code("works:sized"), batch=3))
    assert waited == [("jax", 3)]
    _result(_task(code("works:on_device"), batch=1, device="cuda:1"))
    assert waited[1:] == [("jax", "1 on cuda:1"), ("torch", "cuda:1"), *ON_CUDA]
    torch.mps = SimpleNamespace(synchronize=lambda: waited.append("mps"))
    _result(_task(code("works:on_device"), batch=1, device="mps:0"))
    assert waited[6:] == [("jax", "1 on mps:0"), "mps", "tensorflow"]


SAVED = ["keywords", "made_on", "named_device", "on_device", "product", "sorts", "unseeded"]


@pytest.mark.parametrize("name", SAVED)
def test_the_saved_script_calls_it_as_it_is_measured(
    code, tmp_path, monkeypatch, capsys, name: str
) -> None:
    of = code(f"works:{name}")
    task = _task(of, batch=None if name == "unseeded" else 5)
    case = Case("own", "cpu", "python", "", batch=task.batch)
    device = ", device='cpu'" if task.passes_device else ""
    call = f"result = work(*inputs, **named{device})"
    folder = tmp_path / "best"
    how = {"onnx_file": "", "setup": [], "call": [call], "renews": name == "sorts"}
    save(of, None, asdict(case), str(folder), str(tmp_path / ".hidden"), **how)
    monkeypatch.chdir(of.directory)
    ran = runpy.run_path(str(folder / "reproduce.py"))
    assert capsys.readouterr().out.startswith("median of 50 calls: ")
    if name == "unseeded":  # no generator of ours
        return
    expected = _result(task)
    np.testing.assert_array_equal(ran["result"], expected)
    if name == "sorts":
        np.testing.assert_array_equal(ran["inputs"][0], task.named["values"])
