"""Names of the user's objects, and errors of the user's code."""

import statistics
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from checking import fails_with

from workbench.contract import WorkloadError
from workbench.worker.code import Code
from workloads.own import target
from workloads.own.target import GUARD, is_users, resolve, user_errors


def test_a_dotted_attribute_of_a_module_is_found(code) -> None:
    assert resolve(code("works:Inner.method"))() == 7
    assert resolve(code("works:Inner.method"))() == 7, "again, in the same worker"
    assert sys.argv == ["works"]


@pytest.mark.parametrize(
    ("target", "text", "hint"),
    [
        ("wroks:plain", "there is no module wroks", "--python"),
        ("works.inner:plain", "there is no module works.inner", "--python"),
        ("works:plan", "works has no plan", "did you mean plain?"),
        ("works:Inner.methd", "works has no Inner.methd", "None"),
        ("statistics:work", "statistics is the name of a module", "rename"),
    ],
)
def test_a_wrong_name_is_one_line_with_near_ones(code, target: str, text: str, hint: str) -> None:
    assert statistics.mean, "loaded, as in a worker"
    with fails_with("bad_target", text, hint=hint):
        resolve(code(target))


def test_a_package_in_src_is_named(code, tmp_path: Path) -> None:
    (tmp_path / "src" / "inside").mkdir(parents=True)
    (tmp_path / "src" / "inside" / "__init__.py").touch()
    with pytest.raises(WorkloadError) as caught:
        resolve(replace(code("inside:build"), directory=str(tmp_path)))
    assert str(caught.value.hint).startswith("inside is in src: install it")


def test_packages_outside_the_environment_are_not_the_users() -> None:
    assert not is_users("/usr/lib/python3/dist-packages/torch/nn/modules/linear.py")
    assert is_users("/home/me/packages/model.py")


def test_generated_files_are_not_the_users(monkeypatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/me/compiled")
    assert not is_users("/home/me/compiled/ee/ceeizq.py")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("exits_at_import:x", "import of exits_at_import: SystemExit: 2 (exits_at_import.py:7)"),
        (
            "breaks_at_import:x",
            "import of breaks_at_import: KeyError: 'weights' (breaks_at_import.py:5)",
        ),
    ],
)
def test_an_error_at_import_names_the_innermost_line_of_the_user(code, target, says) -> None:
    with pytest.raises(WorkloadError) as caught:
        resolve(code(target))
    assert (caught.value.code, str(caught.value)) == ("user_code", says)
    assert (caught.value.hint == GUARD) == ("SystemExit" in says)


def test_a_package_that_the_users_module_lacks_is_not_a_wrong_name(code) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        resolve(code("lacks_package:x"))
    assert caught.value.name == "a_package_that_nobody_has"  # the worker says how to install it


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("first\nsecond"), "user_code"),
        (SystemExit(3), "user_code"),
        (MemoryError(), "no_memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), "no_memory"),
        (WorkloadError("ours", code="bad_input"), "bad_input"),
        (ModuleNotFoundError("text only"), "user_code"),
    ],
)
def test_errors_of_the_users_code_have_a_code(error: BaseException, code: str) -> None:
    with pytest.raises(WorkloadError) as caught, user_errors("work"):
        raise error
    assert caught.value.code == code
    assert "second" not in str(caught.value)


def test_an_optimizer_that_takes_no_sparse_gradients_has_a_remedy() -> None:
    table = torch.nn.Embedding(3, 2, sparse=True)
    table(torch.tensor([0])).sum().backward()
    with fails_with("user_code", "sparse gradients", hint="Adagrad"), user_errors("net:build"):
        torch.optim.AdamW(table.parameters()).step()


@pytest.mark.parametrize(
    ("text", "cause", "says"),
    [
        ("look up:\nanother error", KeyError("nms"), "another error; the cause is KeyError: 'nms'"),
        ("bad settings: no such axis", ValueError("no such axis"), "bad settings: no such axis"),
        ("bad settings", TimeoutError(), "bad settings; the cause is TimeoutError"),
        ("a part fails", None, "a part fails"),
    ],
)
def test_the_error_that_caused_another_is_named(text, cause, says) -> None:
    with pytest.raises(WorkloadError) as caught, user_errors("work"):
        raise RuntimeError(text) from cause
    assert says in str(caught.value)
    assert ("the cause is" in str(caught.value)) == ("the cause is" in says)


def test_the_line_is_that_of_the_cause(tmp_path: Path) -> None:
    (tmp_path / "caused_cfg.py").write_text("def rate(known):\n    return known['lr']\n")
    wrapped = "def work():\n    try:\n        rate({})\n    except KeyError as error:\n"
    wrapped += "        raise RuntimeError('bad config') from error\n"
    (tmp_path / "caused_job.py").write_text(f"from caused_cfg import rate\n{wrapped}")
    with pytest.raises(WorkloadError) as caught, user_errors("work"):
        resolve(Code("function", "caused_job:work", str(tmp_path), str(tmp_path)))()
    assert "bad config; the cause is KeyError: 'lr' (caused_cfg.py:2)" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("/venv/lib/site-packages/peft/lora.py", "work: KeyError: 'lr' (peft/lora.py:1)"),
        ("/venv/lib/site-packages/torch/nn/linear.py", "work: KeyError: 'lr'"),
    ],
)
def test_without_a_line_of_the_users_that_of_a_package_is_named(file: str, says: str) -> None:
    code = compile("raise KeyError('lr')", file, "exec")
    with (
        patch.object(target, "is_users", lambda name: False),
        pytest.raises(WorkloadError) as caught,
        user_errors("work"),
    ):
        exec(code)
    assert str(caught.value) == says


def test_an_error_may_be_its_own_cause() -> None:
    error = ValueError("no such axis")
    with pytest.raises(WorkloadError, match="no such axis"), user_errors("work"):
        raise error from error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("CUDA error: misaligned")])
def test_an_interrupt_and_a_lost_gpu_stay_what_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, user_errors("work"):
        raise error
    assert caught.value is error
