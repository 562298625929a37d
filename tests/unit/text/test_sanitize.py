"""Text of others cannot steer a terminal, and stays short."""

import runpy
from pathlib import Path

import pytest

from workbench.cli.main import LONGEST, fail
from workbench.contract import WorkloadError
from workbench.process.children import ending
from workbench.text.output import say
from workbench.text.sanitize import clean, shown
from workbench.worker.failures import first_line
from workbench.worker.serve import describe


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain: \u00e9, \u00d7 \u2026", "plain: \u00e9, \u00d7 \u2026"),
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\u202eright to left", r"\u202eright to left"),
        ("\udcff", r"\udcff"),
    ],
)
def test_an_unprintable_character_is_escaped(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_lines_keep_their_ends_whatever_stands_before_them() -> None:
    assert clean("a\x1b[31m red text\nb\u202e end") == "a\\x1b[31m red text\nb\\u202e end"


def test_a_long_text_is_cut() -> None:
    assert shown("x" * 5_000_000, 10) == "x" * 10 + "..."
    assert len(shown("x" * 10**6)) < 400


def test_the_log_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    say("\x1b[31mred")
    assert capsys.readouterr().err == "\\x1b[31mred\n"


def test_an_error_that_repeats_a_huge_argument_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail(f"unknown workload {'x' * 100_000}\n\x1b[31m", 2)
    line = capsys.readouterr().err
    assert len(line) < LONGEST + 50
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    "error", [ValueError("\x1b" + "x" * 5_000_000), WorkloadError("\x1b\n" * 10_000)]
)
def test_what_a_workload_raises_is_one_short_line(error: Exception) -> None:
    for text in (first_line(error), describe(error)["message"]):
        assert text.isprintable() and len(text) < 700


def test_an_assertion_without_a_message_is_shown_itself(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("path = ''\nassert path\n")
    with pytest.raises(AssertionError) as raised:
        runpy.run_path(str(tmp_path / "data.py"))
    assert first_line(raised.value) == "AssertionError: assert path"


def test_the_end_of_a_log_is_quoted_safely() -> None:
    text = ending("it died", 1, "\x1b[31mred\n" + "x" * 10_000)
    assert text.startswith(r"it died (exit code 1); its log ends: \x1b[31mred | xxx")
    assert len(text) < 700
