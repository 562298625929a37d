"""The form for a new run, as tests fill it in."""

import scenes
from stage import Feed, press, settle, text
from textual.pilot import Pilot

from screens.app import WorkbenchApp
from screens.pages.new_run import FieldLine
from screens.widgets.chips import Chips
from screens.widgets.table import Table
from workbench.planning.request import Request

SIZE = (80, 24)
Started = list[list[str]]


def finished(request: Request | None = None) -> tuple[WorkbenchApp, Started]:
    """An app whose run is over, and the arguments of every engine that it starts."""
    started: Started = []

    def feed(asked: Request) -> Feed:
        started.append(asked.arguments())
        return Feed(scenes.cpu_only())

    return WorkbenchApp(feed, request, monotonic=lambda: 0.0), started


async def choose(pilot: Pilot[None], name: str) -> None:
    """Open the form with the cursor on this entry; walking there would take long."""
    await press(pilot, "n")
    entries = pilot.app.screen.query_one(Table)
    entries.choose(name)
    await settle(pilot)
    assert entries.cursor == name, f"there is no {name}"


async def walk_to(pilot: Pilot[None], label: str) -> None:
    """Go on to this field, which is then explained below."""
    for _ in range(12):
        await pilot.press("tab")
        line = pilot.app.screen.focused.parent
        if isinstance(line, FieldLine) and line.field.label == label:
            break
    await settle(pilot)
    assert f" {label}: " in text(pilot), f"there is no field {label}"


async def tick(pilot: Pilot[None], *names: str) -> None:
    """Tick these choices of the field that has the focus."""
    chips = pilot.app.screen.focused
    assert isinstance(chips, Chips)
    for name in names:
        while chips.at > 0:
            await pilot.press("left")
        while chips._options[chips.at] != name:
            before = chips.at
            await pilot.press("right")
            assert chips.at != before, f"there is no {name}"
        await press(pilot, "space")
