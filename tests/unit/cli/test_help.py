"""The help names every command once, and every option of a command once."""

from collections import Counter

import click
import pytest
from click.testing import CliRunner

from workbench.cli.main import cli
from workbench.cli.program import COMMANDS, COMMON, OPTIONS, SECTIONS
from workbench.planning.usage import UsageError


def command(name: str) -> click.Command:
    return cli.get_command(click.Context(cli), name)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_the_program_has_the_first_sentence_of_a_command(name: str) -> None:
    assert COMMANDS[name][1] == command(name).get_short_help_str(100)


def test_every_name_in_a_section_is_an_option_of_some_command() -> None:
    known = {each.name for name in COMMANDS for each in command(name).params}
    assert {name for names in OPTIONS.values() for name in names.split()} <= known


def test_the_program_shows_commands_first_and_eight_options() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    titles = [*SECTIONS, "Common options"]
    places = [shown.index(f"\n{title}") for title in titles]
    assert places == sorted(places)
    assert sum(line.startswith("  -") for line in shown.splitlines()) == len(COMMON.split()) == 8


@pytest.mark.parametrize("words", ["", "detect", "list", "run", "advise", "open"])
def test_a_command_shows_examples(words: str) -> None:
    assert "Examples:" in CliRunner().invoke(cli, [*words.split(), "--help"]).output


@pytest.mark.parametrize("name", ["advise", "run", "model", "open", "watch"])
def test_a_command_shows_each_of_its_options_once(name: str) -> None:
    shown = CliRunner().invoke(cli, [name, "--help"]).output.splitlines()
    assert not any("None" in line for line in shown)  # a range without ends
    first = [line.split()[0].rstrip(",") for line in shown if line.startswith("  -")]
    options = [each for each in command(name).params if isinstance(each, click.Option)]
    expected = [each.opts[0] for each in options if not each.hidden]
    assert Counter(first) == Counter([*expected, "-h"])


@pytest.mark.parametrize(
    ("words", "nearest"), [(["exprot"], "export"), (["fleet", "colect"], "collect")]
)
def test_an_unknown_command_is_answered_with_the_nearest(words: list[str], nearest: str) -> None:
    with pytest.raises(UsageError, match=f"unknown command .*; did you mean {nearest}"):
        cli.main(words, standalone_mode=False)


def test_the_help_of_a_group_cuts_no_sentence() -> None:
    shown = " ".join(CliRunner().invoke(cli, ["fleet", "--help"]).output.split())
    assert "its log holds the document of each node." in shown
    assert "to nodes of each type, and wait for them." in shown
