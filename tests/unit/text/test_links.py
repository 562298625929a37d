"""Every link of README and docs leads to a file, and to a heading in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = {path: path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)")


def headings(text: str) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for name, heading in LINK.findall(PAGES[page]):
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), name
        assert not heading or heading in headings(PAGES[target]), f"{name}#{heading}"
