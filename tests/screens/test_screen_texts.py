"""Every screen as text: at four sizes, with no GPU, one and eight, of a run in progress and of a
model, the same in every theme.

`make test` draws some, `make snapshots-all` all; after a wanted change: `UPDATE_GOLDEN=1 make
snapshots-all`, read what has changed, and run it without the variable.
"""

import os
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import pytest
import scenes
import simulated_lab
from stage import held, press, replayed, settled, text
from textual.pilot import Pilot

from screens.theme import DARK, LIGHT, SIXTEEN, choose

FOLDER = Path(__file__).with_name("texts")
SIZES = [(60, 20), (80, 24), (120, 40), (200, 60)]
MACHINES: Mapping[str, Callable[[], list]] = {
    "no_gpu": scenes.cpu_only,
    "one_gpu": scenes.h200,
    "eight_gpus": scenes.eight_gpus,
    "sweep": scenes.sweep,
    "live": scenes.midway,
    "model": simulated_lab.done,
}
ALWAYS = {  # drawn by `make test` too
    ("no_gpu", (60, 20), DARK.name),
    ("no_gpu", (60, 20), SIXTEEN.name),
    ("eight_gpus", (200, 60), LIGHT.name),
}
PICTURES = [
    pytest.param(
        machine,
        size,
        theme,
        id=f"{machine}-{size[0]}x{size[1]}-{theme}",
        marks=() if (machine, size, theme) in ALWAYS else pytest.mark.campaign,
    )
    for machine, size, theme in product(MACHINES, SIZES, (DARK.name, LIGHT.name, SIXTEEN.name))
]
SCREENS = {  # keys that lead from the advisor to a screen, and back
    "advisor": ((), ()),
    "hardware": (("1",), ("3",)),
    "hardware, end": (("1", "end"), ("3",)),
    "run": (("2",), ("3",)),
    "details": (("enter",), ("escape",)),
    "model": (("4",), ("3",)),
    "runs": (("5",), ("3",)),
    "roofline": (("6",), ("3",)),
    "help": (("question_mark",), ("escape",)),
    "form": (("n", "down", "down", "down"), ("escape",)),  # the scenarios' workloads are hidden
}


async def pictures(
    machine: str, size: tuple[int, int], theme: str, patch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Each screen's text, without the mark of the cursor, which 16 colours show by inversion."""
    with patch.context() as environment:
        if theme == SIXTEEN.name:
            environment.setenv("TERM", "xterm")
            environment.delenv("COLORTERM")
        events = MACHINES[machine]()
        app = held(events)[0] if machine == "live" else replayed(events)
        async with settled(app, size) as pilot:
            if machine == "model":
                await press(pilot, "3")  # as the keys of SCREENS assume
            if theme == LIGHT.name:
                choose(app, theme)
            assert app.theme == theme
            given = SCREENS.items() if machine != "live" else list(SCREENS.items())[:-1]  # no form
            return {name: await picture(pilot, *keys) for name, keys in given}


async def picture(pilot: Pilot[None], there: tuple[str, ...], back: tuple[str, ...]) -> str:
    await press(pilot, *there)
    shown = text(pilot).replace("\N{LEFT HALF BLOCK}", " ")
    await press(pilot, *back)
    return shown


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenes with all workloads; `few_workloads` hides some of them."""
    for scene in MACHINES.values():
        scene()
    monkeypatch.chdir(tmp_path)  # without an ONNX file


@pytest.mark.usefixtures("recorded", "few_workloads")
@pytest.mark.parametrize(("machine", "size", "theme"), PICTURES)
async def test_every_screen_is_as_kept_and_the_same_in_every_theme(
    machine: str, size: tuple[int, int], theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = await pictures(machine, size, theme, monkeypatch)
    if theme == SIXTEEN.name:
        del drawn["help"]  # it shows nothing behind it
    for name, shown in drawn.items():
        lines = shown.splitlines()
        assert max(map(len, lines)) <= size[0], name
        assert len([line for line in lines if line]) > 4, name
        assert "Traceback" not in shown, name
    parts = [f"{'=' * 20} {name}\n{shown}\n" for name, shown in drawn.items()]
    file = FOLDER / f"{machine}-{size[0]}x{size[1]}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        if theme == DARK.name:
            FOLDER.mkdir(exist_ok=True)
            file.write_text("".join(parts))
        return
    kept = file.read_text()
    assert [part for part in parts if part not in kept] == []
    if theme == DARK.name:
        assert kept == "".join(parts)


def test_every_kept_text_has_its_screens() -> None:
    wanted = {f"{machine}-{width}x{height}" for machine in MACHINES for width, height in SIZES}
    assert {file.stem for file in FOLDER.iterdir()} == wanted
