"""`workbench config`, what it fills in, and the engine that runs a recorded command again."""

import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from workbench.cli.launch import _engine, with_settings
from workbench.cli.main import cli, main
from workbench.files import config
from workbench.planning.usage import UsageError

NOTHING: dict[str, Any] = {
    "budget_s": None, "quick": False, "thorough": False, "prices": (), "price_file": None
}  # fmt: skip


@pytest.fixture
def file() -> Path:
    config.path().parent.mkdir(parents=True)
    return config.path()


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


@pytest.mark.parametrize("key", ["budget", "prices"])
def test_an_empty_value_is_answered_with_what_the_key_takes(key: str) -> None:
    with pytest.raises(UsageError, match=f"{key} takes "):
        cli.main(["config", "set", key, ""], standalone_mode=False)


def test_a_file_that_never_ends_or_has_no_writer_is_not_waited_for(file: Path) -> None:
    file.symlink_to("/dev/zero")
    why = f"{file} cannot be read: it is not a regular file"
    assert config.load() == ({}, [f"{why}; its values are not used"])
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(config.ConfigError, match=why):
        config.assign("budget", "30")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"budget =", "TOML: "),
        (b"budget = " + b"9" * 5000, "TOML: "),
        (b"a = " + b"[" * 5000, "TOML: "),
        (b"\xff\xfe", "UTF-8"),
    ],
    ids=["cut", "number", "nested", "bytes"],
)
def test_a_file_that_cannot_be_read_is_one_line_and_stays(file, content: bytes, says: str) -> None:
    file.write_bytes(content)
    values, (line,) = config.load()
    assert values == {} and "\n" not in line
    assert f"{file} is not {says}" in line
    with pytest.raises(config.ConfigError):
        config.assign("theme", "nord")
    assert file.read_bytes() == content


def test_an_unknown_key_and_a_wrong_type_are_a_line_each_and_lose_nothing(file: Path) -> None:
    file.write_text('# mine\ncolour = 3\nbudget = "long"\ntheme = "nord"\n')
    values, wrong = config.load()
    assert values == {"theme": "nord"} and len(wrong) == 2
    assert "unknown key 'colour'" in wrong[0] and "budget takes seconds" in wrong[1]
    config.assign("budget", "30")
    assert config.load()[0] == {"theme": "nord", "budget": 30.0}
    assert "# mine\ncolour = 3\n" in file.read_text()
    config.assign("theme", None)
    assert tomllib.loads(file.read_text()) == {"colour": 3, "budget": 30.0}


WRONG = {
    "budget": ["nan", "-1", "x", "0.5", "90000"],
    "prices": ["a,,b", "banana", "cpu=x", "cpu=0", "cpu=10000000000", "cpu=1,cpu=2", "foo:0=1"],
    "theme": [""],
}


@pytest.mark.parametrize(("key", "value"), [(key, each) for key in WRONG for each in WRONG[key]])
def test_a_wrong_value_is_refused(key: str, value: str) -> None:
    with pytest.raises(config.ConfigError, match=key):
        config.assign(key, value)
    assert not config.path().exists()


def test_a_linked_file_keeps_its_link_and_an_unreadable_one_is_named(file: Path, tmp_path) -> None:
    file.symlink_to(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").write_text("budget = 30\n")
    config.assign("theme", "nord")
    assert file.is_symlink() and config.load()[0] == {"theme": "nord", "budget": 30}
    (tmp_path / "mine.toml").write_bytes(b"\xff")
    with pytest.raises(config.ConfigError, match=r"config\.toml is not UTF-8"):
        config.assign("theme", "nord")


def test_a_list_over_several_lines_is_replaced_whole(file: Path) -> None:
    file.write_text('# mine\nprices = [\n  "cpu=0.10",\n]  # per hour\ntheme = "nord"\n')
    config.assign("prices", "cpu=0.20")
    kept = 'prices = ["cpu=0.20"]\n# mine\ntheme = "nord"\n'
    assert file.read_text() == kept
    config.assign("prices", None)
    assert file.read_text() == '# mine\ntheme = "nord"\n'


def test_the_same_key_of_another_table_stays(file: Path) -> None:
    file.write_text('theme = "nord"\n[other]\ntheme = "mine"\n')
    assert CliRunner().invoke(cli, ["config", "set", "theme", "workbench-light"]).exit_code == 0
    kept = 'theme = "workbench-light"\n[other]\ntheme = "mine"\n'
    assert file.read_text() == kept
    config.assign("theme", None)
    assert file.read_text() == '[other]\ntheme = "mine"\n'


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


def test_two_changes_at_once_both_stay(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, both = config._text, Barrier(2)

    def waiting() -> str:
        text = read()
        with suppress(BrokenBarrierError):  # the second cannot read before the first has written
            both.wait(0.2)
        return text

    with monkeypatch.context() as patched, ThreadPoolExecutor() as pool:
        patched.setattr(config, "_text", waiting)
        assert [*pool.map(config.assign, ("theme", "budget"), ("nord", "30"))] == [None, None]
    assert config.load()[0] == {"theme": "nord", "budget": 30.0}


def test_a_budget_may_have_a_unit(file: Path) -> None:
    cli.main(["config", "set", "budget", "1.5m"], standalone_mode=False)
    assert config.load()[0] == {"budget": 90.0}


def test_a_full_disk_is_no_wrong_use(file: Path, monkeypatch, capsys) -> None:
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(config, "replace", full)
    with pytest.raises(SystemExit) as ended:
        main(["config", "set", "budget", "30"])
    assert ended.value.code == 1
    problem = f"workbench: {file} cannot be written: No space left on device; set XDG_CONFIG_HOME"
    assert capsys.readouterr().err.startswith(problem)


def test_a_home_that_is_read_only_is_no_wrong_use(monkeypatch, capsys) -> None:
    read_only = Mock(side_effect=OSError(30, "Read-only file system"))
    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(SystemExit) as ended:
        main(["config", "set", "budget", "30"])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "cannot be written: Read-only file system; set XDG_CONFIG_HOME" in said
