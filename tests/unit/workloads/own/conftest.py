"""Each test leaves the process as it was, whatever user code changes in it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from own_tasks import facts_of

from workbench.worker.code import FUNCTION, Code

OWN = Path(__file__).resolve().parents[3] / "fixtures" / "own"


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    yield
    for name in set(sys.modules) - set(before):
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(OWN)):
            del sys.modules[name]


@pytest.fixture
def code(tmp_path: Path) -> Callable[..., Code]:
    """The Code of a target among the fixtures."""

    def made(target: str, kind: str = FUNCTION, **given: object) -> Code:
        return Code(kind, target, str(tmp_path), str(OWN), **given)

    return made


@pytest.fixture
def net(code: Callable[..., Code]) -> Callable[..., Code]:
    """The Code of a module among the fixtures."""
    return lambda name, **given: code(f"modules:{name}", "torch", **given)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Code]:
    """The Code of what a module with this text builds."""

    def made(name: str, text: str, *, kind: str = "torch", **given: object) -> Code:
        (tmp_path / f"{name}.py").write_text(text)
        kept = tmp_path / "kept"
        kept.mkdir(exist_ok=True)
        return Code(kind, f"{name}:build", str(kept), str(tmp_path), **given)

    return made


@pytest.fixture
def examined(tmp_path: Path) -> Callable[..., tuple[Code, dict[str, Any]]]:
    """The Code of a module among the fixtures, and its facts."""

    def one(name: str, file: str = "modules", **given: object) -> tuple[Code, dict[str, Any]]:
        made = Code("torch", f"{file}:{name}", str(tmp_path / name), str(OWN), **given)
        return made, facts_of(made)

    return one
