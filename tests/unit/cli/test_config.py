"""`workbench config`, what it fills in, and the engine that runs a recorded command again."""

import os
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.cli.launch import _engine, with_settings
from workbench.cli.main import cli
from workbench.files import config
from workbench.planning.usage import UsageError

NOTHING: dict[str, Any] = {
    "budget_s": None, "quick": False, "thorough": False, "prices": (), "price_file": None
}  # fmt: skip


def test_set_show_and_unset() -> None:
    runner = CliRunner()
    assert runner.invoke(cli, ["config", "set", "prices", "cpu=0.1,gpu=2.99"]).exit_code == 0
    shown = runner.invoke(cli, ["config"]).output
    assert shown.startswith(str(config.path())) and "cpu=0.1,gpu=2.99" in shown
    assert all(f"\n{key} " in shown for key in config.KEYS)
    assert runner.invoke(cli, ["config", "unset", "prices"]).exit_code == 0
    assert config.load() == ({}, [])


@pytest.mark.parametrize(
    "arguments",
    [
        ["set"],
        ["set", "theme"],
        ["unset"],
        ["unset", "theme", "nord"],
        ["set", "colour", "red"],
        ["set", "theme", "nrod"],
    ],
)
def test_what_is_wrong_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        cli.main(["config", *arguments], standalone_mode=False)
    assert not config.path().exists()


def test_a_file_that_never_ends_or_has_no_writer_is_not_waited_for() -> None:
    config.path().parent.mkdir(parents=True)
    config.path().symlink_to("/dev/zero")
    why = f"{config.path()} cannot be read: it is not a regular file"
    assert config.load() == ({}, [f"{why}; its values are not used"])
    config.path().unlink()
    os.mkfifo(config.path())
    with pytest.raises(config.ConfigError, match=why):
        config.assign("budget", "30")


@pytest.mark.parametrize("text", ["budget =", f"budget = {'9' * 5000}", "a = " + "[" * 5000])
def test_a_file_that_cannot_be_parsed_is_one_line(text: str) -> None:
    config.path().parent.mkdir(parents=True)
    config.path().write_text(text)
    values, (line,) = config.load()
    assert values == {} and f"{config.path()} is not TOML: " in line


def test_a_list_over_several_lines_is_replaced_whole() -> None:
    config.path().parent.mkdir(parents=True)
    config.path().write_text('# mine\nprices = [\n  "cpu=0.10",\n]  # per hour\ntheme = "nord"\n')
    config.assign("prices", "cpu=0.20")
    kept = 'prices = ["cpu=0.20"]\n# mine\ntheme = "nord"\n'
    assert config.path().read_text() == kept
    config.assign("prices", None)
    assert config.path().read_text() == '# mine\ntheme = "nord"\n'


def test_the_same_key_of_another_table_stays() -> None:
    config.path().parent.mkdir(parents=True)
    config.path().write_text('theme = "nord"\n[other]\ntheme = "mine"\n')
    assert CliRunner().invoke(cli, ["config", "set", "theme", "workbench-light"]).exit_code == 0
    kept = 'theme = "workbench-light"\n[other]\ntheme = "mine"\n'
    assert config.path().read_text() == kept
    config.assign("theme", None)
    assert config.path().read_text() == '[other]\ntheme = "mine"\n'


def test_choices_fill_in_what_the_command_line_leaves_open() -> None:
    config.assign("budget", "30")
    config.assign("prices", "gpu=2.99")
    options = dict(NOTHING)
    with_settings(options)
    assert (options["budget_s"], options["prices"]) == (30.0, ("gpu=2.99",))
    for given in ({"quick": True}, {"every": True}, {"all_scenarios": True}):
        options = NOTHING | given
        with_settings(options)
        assert options["budget_s"] is None, given
    options = NOTHING | {"budget_s": 5.0, "price_file": "own.toml"}
    with_settings(options)
    assert (options["budget_s"], options["prices"]) == (5.0, ())


def test_a_recorded_command_runs_again_in_an_engine() -> None:
    command = "workbench advise training --quick"
    recorded = command.split()[1:]
    assert _engine(command)._argv[-len(recorded) - 2 :] == [*recorded, "--jsonl", "--control"]


def test_a_recorded_command_with_half_a_quote_is_left_to_the_engine_to_refuse() -> None:
    half = "workbench run 'matmul"
    assert _engine(half)._argv[-3:] == [half, "--jsonl", "--control"]
