"""Random keys and sizes: no exception, and always a way back."""

import os
import random
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
import scenes
from kept_runs import keep_five
from stage import held, press, replayed, text

import screens.pages
import screens.widgets
from screens.app import WorkbenchApp
from screens.fleet import FleetApp
from screens.keys import PAGES
from screens.pages.help import HelpScreen
from screens.pages.new_run import NewRunScreen

LEAVING = {"q", "ctrl+c", "ctrl+q", "ctrl+z"}


def bound_keys() -> tuple[list[str], list[str]]:
    """Every key that a screen or a widget binds, as often as they do, and those for letters."""
    found, letters = [], []
    packages = (screens.pages, screens.widgets)
    names = [m.name for p in packages for m in iter_modules(p.__path__, f"{p.__name__}.")]
    for module in map(import_module, ["screens.app", *names]):
        own = [kind for kind in vars(module).values() if isinstance(kind, type)]
        for kind in (kind for kind in own if kind.__module__ == module.__name__):
            for binding in vars(kind).get("BINDINGS", ()):
                keys = letters if binding.action.startswith("seek") else found
                keys += [key for key in binding.key.split(",") if key not in LEAVING]
    return found, letters


KEYS, LETTERS = bound_keys()
SIZES = [(20, 5), (39, 9), (40, 10), (60, 20), (80, 24), (120, 40), (200, 60)]


async def wander(seed: int) -> None:
    """Thirty keys and resizes, after which escape and `3` lead back to the table."""
    chance = random.Random(seed)
    scene = chance.choice(
        [scenes.h200, scenes.midway, scenes.cpu_only, scenes.training_midway, scenes.sweep]
    )
    app = held(scene())[0] if chance.random() < 0.5 else replayed(scene())
    done: list[object] = [seed]
    async with app.run_test(size=chance.choice(SIZES)) as pilot:
        await pilot.pause()
        for _ in range(30):
            if chance.random() < 0.15:
                done.append(chance.choice(SIZES))
                await pilot.resize_terminal(*done[-1])
            else:
                done.append(some_key(chance, app))
                await pilot.press(done[-1])
        await pilot.resize_terminal(80, 24)
        for _ in range(3):  # a busy machine may open a form after these keys
            for _ in range(5):
                await pilot.press("escape")
            await press(pilot, "3")
            if "[3 Advisor]" in text(pilot):
                break
        assert "[3 Advisor]" in text(pilot), done
    assert app._exception is None, done


def some_key(chance: random.Random, app: WorkbenchApp) -> str:
    """A key that works now, or any, or a letter."""
    active = sorted(app.screen.active_bindings.keys() - LEAVING)
    kinds = chance.choices([active, KEYS, LETTERS], [5, 4, 1])
    return chance.choice(kinds[0])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nothing may appear; runs can be opened, compared and deleted elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)  # `e` writes a page
    return tmp_path / "home"


def seeds() -> list[Any]:
    """`make test` takes four walks, and `make walks` a thousand."""
    numbers = range(int(os.environ.get("WALKS", "1000")))
    return [pytest.param(n, marks=[pytest.mark.campaign] if n >= 4 else []) for n in numbers]


@pytest.mark.parametrize("seed", seeds())
async def test_random_keys_and_sizes_never_lose_the_way_back(seed: int, home: Path) -> None:
    keep_five()
    await wander(seed)
    assert not home.exists()


def test_walks_know_every_key_that_a_screen_binds() -> None:
    assert set(KEYS) >= {*"123456vecsnx", "delete", "left_square_bracket", "space", "ctrl+p"}
    assert set(LETTERS) >= {*"abcxyz09", "backspace"} and not LEAVING & {*KEYS, *LETTERS}


NAMES = {  # keys that docs/tui.md calls by another name
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "delete": "del",
    "question_mark": "?",
    "slash": "/",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "equals_sign": "=",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
}
TABS = {page.key for page in PAGES}  # `1` to `6`


def test_every_key_is_in_the_manual() -> None:
    manual = Path(__file__).parents[2].joinpath("docs", "tui.md").read_text()
    words = {word.strip("`,;.|()") for word in manual.split()}
    fleet = {key for b in FleetApp.BINDINGS for key in b.key.split(",")}
    wanted = {NAMES.get(key, key) for key in {*KEYS, *LEAVING, *fleet} - TABS}
    assert not wanted - words
    assert "`1` to `6`" in manual and {"1", "6"} <= TABS
    form = manual.partition("In the form for another run")[2].partition("workbench fleet show")[0]
    own = {
        key for b in NewRunScreen.BINDINGS for key in b.key.split(",") if "seek(" not in b.action
    }
    in_form = {word.strip("`,;.") for word in form.split()}
    assert not {NAMES.get(key, key) for key in own} - in_form
    (closing,) = (line for line in manual.splitlines() if line.startswith("| `?` |"))
    closes = {NAMES.get(key, key) for b in HelpScreen.BINDINGS for key in b.key.split(",")}
    assert not closes - {word.strip("`,;") for word in closing.split()}
