"""The pictures of README and docs: each can be made, and each that a page shows is made."""

import asyncio
import re
from pathlib import Path

import pytest

from benchmarks.pictures import PICTURES_OF_DOCS, Picture, svg_of

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"assets/pictures/([\w-]+)\.png")


@pytest.mark.parametrize("picture", PICTURES_OF_DOCS, ids=lambda picture: picture.name)
def test_a_picture_is_made_from_its_recording(picture: Picture) -> None:
    svg = asyncio.run(svg_of(picture))
    assert "recorded" in svg or picture.name == "new-run"  # the form hides it
    assert svg.startswith("<svg")


def test_every_picture_that_a_page_shows_is_made() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for page in pages for name in SHOWN.findall(page.read_text())}
    assert shown == {picture.name for picture in PICTURES_OF_DOCS}
