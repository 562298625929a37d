"""The list of kept runs, as text and as JSON."""

from __future__ import annotations

import fcntl
from pathlib import Path

import msgspec
import pytest
from builders import case, eventful, events, steady
from click.testing import CliRunner

from workbench.cli import history
from workbench.cli.main import cli
from workbench.records import events as ev
from workbench.report import journal

RUN = events({case("cpu-a"): steady(1.0)})


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = journal.runs_folder()
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(b"".join(ev.encode(event) + b"\n" for event in RUN))
    return folder


def test_a_run_under_way_is_listed_as_running_only(runs: Path) -> None:
    kept = runs / "a.jsonl"
    kept.write_bytes(kept.read_bytes().splitlines(keepends=True)[0])
    with kept.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [ids("running"), ids("incomplete")] == [["a"], []]
    assert [ids("running"), ids("incomplete")] == [[], ["a"]]


def ids(status: str) -> list[str]:
    done = CliRunner().invoke(cli, ["runs", "--status", status, "--json"])
    return [run["id"] for run in msgspec.json.decode(done.stdout)["runs"]]


def test_what_is_pruned_is_listed_as_json_where_json_is_asked_for(runs: Path) -> None:
    done = CliRunner().invoke(cli, ["runs", "--prune", "--keep", "0", "--yes", "--json"])
    assert done.exit_code == 0
    assert [run["id"] for run in msgspec.json.decode(done.stdout)["runs"]] == ["a"]
    assert not list(runs.iterdir())


def test_the_list_says_how_certain_the_answers_are(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = iter(("open", "sure"))
    rated = [
        msgspec.structs.replace(
            event, verdict=msgspec.structs.replace(event.verdict, confidence=next(words))
        )
        if isinstance(event, ev.VerdictReached)
        else event
        for event in eventful()
    ]
    (runs / "b.jsonl").write_bytes(b"".join(ev.encode(event) + b"\n" for event in rated))
    monkeypatch.setattr(history, "terminal_width", lambda: 80)
    listed = CliRunner().invoke(cli, ["runs"]).stdout.splitlines()
    assert listed[0].split()[-1] == "Answers"
    assert [line.partition("done")[2].strip() for line in listed[1:]] == ["1 open, 1 sure", ""]


def test_a_text_that_is_no_text_matches_nothing() -> None:
    done = CliRunner().invoke(cli, ["runs", "\udcff"])
    assert done.exit_code == 0, done.exception
    assert "none matches" in done.stderr
