"""The pictures of README and docs: recorded runs on the real screens (`make pictures`).

Each is the app at the size of a reader's terminal, driven by keys and exported by Textual as SVG,
which Chromium turns into a PNG. No run is measured here.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from screens.app import WorkbenchApp
from screens.state.event_source import EngineSource
from screens.state.session import Session
from screens.theme import choose
from workbench.report.run_files import open_run

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "assets" / "pictures"
RUNS = PICTURES / "runs"
FONT = "DejaVu Sans Mono"  # has braille and block characters, which the web font lacks
SHARPNESS = 1  # pixels of the picture for each of the SVG


@dataclass(frozen=True)
class Picture:
    """A recorded run, and the keys that lead from its first screen to the one to show."""

    name: str
    run: str
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (120, 40)  # columns, lines
    theme: str = "workbench"


PICTURES_OF_DOCS = (
    Picture("advice", "default"),
    Picture("details", "default", ("down", "enter")),
    Picture("race", "default", ("down", "down", "2")),
    Picture("curves", "sweep"),
    Picture("hardware", "default", ("1",)),
    Picture("small", "default", size=(80, 24)),
    Picture("roofline", "default", ("down", "down", "6")),
    Picture("new-run", "default", ("n", "down", "enter")),
    Picture("help", "default", ("question_mark",)),
    Picture("light", "sweep", theme="workbench-light"),
)


async def svg_of(picture: Picture) -> str:
    """Open the recording, press the keys, and return Textual's picture of the screen."""
    kept = Session.of(open_run(str(RUNS / f"{picture.run}.json")))
    app = WorkbenchApp(lambda _: EngineSource(()), kept=kept)
    async with app.run_test(size=picture.size) as pilot:
        choose(app, picture.theme)
        await pilot.pause()
        for key in picture.keys:
            await pilot.press(key)
            await pilot.pause()
        return app.export_screenshot(title="workbench")


def png_of(svg: str, into: Path) -> None:
    """Draw the SVG with a font of this machine; nothing is loaded from a network."""
    svg = re.sub(r"@font-face\s*{.*?}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", FONT)
    (box,) = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[:1]
    width, height = (round(float(side)) for side in box)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "screen.html"
        style = "body{margin:0;background:transparent}svg{display:block}"
        page.write_text(f"<!doctype html><meta charset=utf-8><style>{style}</style>{svg}")
        command = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", f"--window-size={width},{height}"]
        command += [f"--force-device-scale-factor={SHARPNESS}", f"--screenshot={into}"]
        command += ["--default-background-color=00000000", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    """Make all pictures, or those named."""
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    os.environ.pop("NO_COLOR", None)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="pictures to make; all of them by default")
    names = parser.parse_args().names
    if not shutil.which("chromium"):
        raise SystemExit("make pictures: there is no chromium: apt install chromium")
    if unknown := set(names) - {picture.name for picture in PICTURES_OF_DOCS}:
        raise SystemExit(f"no such picture: {', '.join(sorted(unknown))}")
    for picture in PICTURES_OF_DOCS:
        if not names or picture.name in names:
            png_of(asyncio.run(svg_of(picture)), PICTURES / f"{picture.name}.png")
            print(PICTURES / f"{picture.name}.png")


if __name__ == "__main__":
    main()
