"""`workbench fleet collect` and `fleet show`, as a user runs them."""

import json
import os
from pathlib import Path

import msgspec
import pytest
import schemas
from click.testing import CliRunner

from benchmarks import fleet as made_up
from workbench.cli.main import cli as command
from workbench.records.fleet import FleetDocument


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made_up.make(tmp_path / "night", 6)
    return tmp_path / "night"


def test_the_document_is_collected_and_shown_from_the_file_alone(cli, folder, tmp_path) -> None:
    done = cli("fleet", "collect", str(folder))
    assert (done.returncode, done.stdout) == (0, "6 of 6 nodes have answered.\n")
    text = (folder / "fleet-document.json").read_bytes()
    collected = schemas.checked_document(text, "fleet")
    (tmp_path / "mail.json").write_bytes(text)
    done = cli("fleet", "show", str(tmp_path / "mail.json"), "--json", "--price", "old=0.1")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["nodes"] == collected["nodes"] and found["prices"] == {"old": 0.1}
    assert msgspec.convert(found, FleetDocument).tool.command == "fleet"


def test_stragglers_are_named_with_their_state_and_the_exit_code_says_so(cli, folder) -> None:
    os.unlink(folder / "jobs/new-2/document.json")  # noqa: PTH108
    made_up.write(folder / "jobs/new-2/exit_code", "1")
    made_up.write(folder / "jobs/new-2/log.txt", "no space left on device")
    made_up.write(folder / "mail.json", "{")
    done = cli("fleet", "collect", str(folder))
    assert (done.returncode, done.stdout) == (1, "5 of 6 nodes have answered; 1 failed.\n")
    assert done.stderr.startswith("warning: mail.json is not usable: ")
    done = cli("fleet", "show", str(folder), "--price", "cpu=0.1")
    assert (done.returncode, done.stderr) == (1, "")
    said = "new-2: failed: it ended without a document, exit code 1 | no space left on device"
    assert said in " ".join(done.stdout.split())
    assert "either: next, new" in done.stdout and "mail.json is not usable" in done.stdout


def test_a_narrow_terminal_takes_no_answer_away(folder, monkeypatch, capfd) -> None:
    monkeypatch.setattr("workbench.export.markdown.terminal_width", lambda: 40)
    with pytest.raises(SystemExit):
        command.main(["fleet", "show", str(folder), "--plain"], standalone_mode=False)
    text = capfd.readouterr().out
    (head,) = [line for line in text.splitlines() if line.startswith("Scenario  ")][:1]
    assert head.split()[-3:] == ["old", "new", "next"]


def invoke(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(command, ["fleet", *map(str, arguments)])
    return done.exit_code, done.stdout


def test_markdown_has_no_markup_of_a_node(cli, folder) -> None:
    plan = json.loads((folder / "fleet.json").read_text())
    plan["jobs"][0]["node"] = "<b>|@all"
    made_up.write(folder / "fleet.json", plan)
    done = cli("fleet", "show", str(folder), "--markdown")
    assert done.returncode == 0 and "| Scenario | Node type |" in done.stdout
    assert "&lt;b" in done.stdout or "\\<b" in done.stdout
    assert "@all" not in done.stdout


def refused(*arguments: object) -> str:
    error = CliRunner().invoke(command, ["fleet", *map(str, arguments)]).exception
    assert type(error).__name__ in ("UsageError", "SystemExit"), error
    return str(error)


def test_what_is_no_fleet_is_a_usage_error(cli, folder, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("empty", "nowhere", "night/fleet.json"):
        for verb in ("show", "collect"):
            done = cli("fleet", verb, str(tmp_path / place))
            assert (done.returncode, done.stdout) == (2, "")
            assert len(done.stderr.splitlines()) == 1 and place in done.stderr


def test_bad_prices_are_usage_errors(folder, tmp_path) -> None:
    assert "did you mean next?" in refused("show", folder, "--price", "nex=2")
    assert "must be between" in refused("show", folder, "--price", "next=-2")
    (tmp_path / "prices.toml").write_text("[per_hour]\nnext = 0.2\nnew = 0.1\nold = 0.01\n")
    code, text = invoke("show", folder, "--prices", tmp_path / "prices.toml", "--json")
    assert code == 0 and json.loads(text)["rows"][0]["cheapest"] == ["old"]


def test_a_folder_that_cannot_be_written_is_one_line_and_no_wrong_use(folder) -> None:
    (folder / "fleet-document.json").mkdir()
    done = CliRunner().invoke(command, ["fleet", "collect", str(folder)])
    said = f"workbench: {folder}/fleet-document.json cannot be written: it is a folder\n"
    assert (done.exit_code, done.stderr) == (1, said)


def test_a_fifo_in_the_place_of_a_document_does_not_wait(cli, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert "not a regular file" in refused("show", tmp_path / "pipe.json")
    done = cli("fleet", "show", str(tmp_path))
    assert done.returncode == 1
    assert "pipe.json is not usable: it is not a regular file" in done.stdout
