"""The exported page in Debian's headless Chromium, which `make test-html` has looked for."""

import os
import subprocess
from pathlib import Path

import pytest
import scenes
from PIL import Image

from workbench.export.formats import file_text
from workbench.report.report import Report

SCHEMES = {"dark": 0, "light": 1}
SIZES = {"phone": (390, 3000), "desktop": (1200, 1800)}


def browsed(page: Path, picture: Path, size: tuple[int, int], scheme: str) -> str:
    """The lines of the console; the picture is of the whole window."""
    command = [
        "chromium", "--headless=new", "--disable-gpu", "--hide-scrollbars",
        "--enable-logging=stderr", f"--user-data-dir={picture.parent / 'profile'}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--window-size={size[0]},{size[1]}", f"--screenshot={picture}", page.as_uri(),
    ]  # fmt: skip
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_the_page_is_drawn_and_its_console_stays_empty(scheme: str, size: str, tmp_path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    page.write_text(file_text("html", Report.of(scenes.crossing())))
    assert browsed(page, picture, SIZES[size], scheme) == ""
    with Image.open(picture) as drawn:
        assert drawn.size == SIZES[size]
        paper = sum(drawn.convert("RGB").getpixel((1, 1)))
        assert len(drawn.convert("RGB").getcolors(1 << 20)) > 20  # letters and plots
    assert paper < 150 if scheme == "dark" else paper > 700


def test_a_script_that_got_in_would_be_blocked_and_noticed(tmp_path: Path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    text = file_text("html", Report.of(scenes.crossing()))
    page.write_text(text.replace("<body>", "<body><script>document.title = 1</script>"))
    assert "Content Security Policy" in browsed(page, picture, SIZES["phone"], "light")
