"""The list of kept runs, as text and as JSON."""

import fcntl
import json
from pathlib import Path

import msgspec
import pytest
from builders import case, eventful, events, steady
from click.testing import CliRunner
from msgspec.structs import replace

from screens.state.event_source import EngineSource
from workbench import __version__
from workbench.cli import headless, history, launch
from workbench.cli.main import cli
from workbench.files import config as choices
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.records.document import Tool
from workbench.report import journal
from workbench.report.run_files import open_run

FIXTURES = Path(__file__).parents[2] / "fixtures/journals"
RUN = events({case("cpu-a"): steady(1.0)})


@pytest.fixture(autouse=True)
def runs() -> Path:
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


def test_open_shows_the_last_run_unless_another_one_is_named() -> None:
    shown = [CliRunner().invoke(cli, ["open", *run, "--where"]) for run in ([], ["last"])]
    assert [done.exit_code for done in shown] == [0, 0]
    assert shown[0].stdout == shown[1].stdout


def ids(status: str) -> list[str]:
    done = CliRunner().invoke(cli, ["runs", "--status", status, "--json"])
    return [run["id"] for run in msgspec.json.decode(done.stdout)["runs"]]


def test_what_is_pruned_is_listed_as_json_where_json_is_asked_for(runs: Path) -> None:
    done = CliRunner().invoke(cli, ["runs", "--prune", "--keep", "0", "--yes", "--json"])
    assert done.exit_code == 0
    assert [run["id"] for run in msgspec.json.decode(done.stdout)["runs"]] == ["a"]
    assert not list(runs.iterdir())


def test_the_list_says_how_certain_the_answers_are(runs: Path, monkeypatch) -> None:
    words = iter(("open", "sure"))
    rated = [
        replace(event, verdict=replace(event.verdict, confidence=next(words)))
        if isinstance(event, ev.VerdictReached)
        else event
        for event in eventful()
    ]
    (runs / "b.jsonl").write_bytes(b"".join(ev.encode(event) + b"\n" for event in rated))
    monkeypatch.setattr(history, "terminal_width", lambda: 80)
    listed = CliRunner().invoke(cli, ["runs"]).stdout.splitlines()
    assert listed[0].split()[-1] == "Answers"
    assert [line.partition("done")[2].strip() for line in listed[1:]] == ["1 open, 1 sure", ""]


def test_a_long_command_is_cut_in_ascii(runs: Path, monkeypatch) -> None:
    first = replace(RUN[0], tool=Tool("workbench", "0", "workbench advise" + " realtime" * 9))
    (runs / "b.jsonl").write_bytes(ev.encode(first) + b"\n")
    monkeypatch.setattr(history, "terminal_width", lambda: 70)
    listed = CliRunner().invoke(cli, ["runs"]).stdout
    assert "~" in listed and listed.isascii()


def test_a_text_that_is_no_text_matches_nothing() -> None:
    done = CliRunner().invoke(cli, ["runs", "\udcff"])
    assert done.exit_code == 0, done.exception
    assert "none matches" in done.stderr


def test_the_rest_of_a_run_has_its_share_of_the_time_and_a_default_budget_may_be_extended(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_run(str(FIXTURES / "advise-interrupted.jsonl"))
    asked: list[Request] = []
    monkeypatch.setattr(headless, "run_headless", lambda request, *_, **_of: asked.append(request))
    choices.path().parent.mkdir(parents=True)
    choices.path().write_text("budget = 30\n")
    rows = "workbench advise training realtime branching --quick"
    for command in (rows, f"{rows} --budget 20"):
        tool = Tool("workbench", __version__, command)
        first = replace(source.events[0], tool=tool)
        lines = [ev.encode(event) + b"\n" for event in (first, *source.events[1:])]
        (runs / "b.jsonl").write_bytes(b"".join(lines))
        done = CliRunner().invoke(cli, ["resume", "b"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert [request.budget for request in asked] == [12, 12]  # one of three rows
    assert [request.extension_s for request in asked] == [20, 0]


def test_in_a_terminal_a_run_is_resumed_on_the_screens(runs: Path, monkeypatch) -> None:
    source = open_run(str(FIXTURES / "advise-interrupted.jsonl"))
    tool = Tool("workbench", __version__, "workbench advise training realtime branching --quick")
    first = replace(source.events[0], tool=tool, id="b")
    lines = [ev.encode(event) + b"\n" for event in (first, *source.events[1:])]
    (runs / "b.jsonl").write_bytes(b"".join(lines))
    asked: list[Request] = []
    started: list[list[str]] = []
    monkeypatch.setattr(launch, "in_terminal", lambda: True)
    monkeypatch.setattr(launch, "show_live", lambda request, *_, **_of: asked.append(request))
    monkeypatch.setattr(EngineSource, "__init__", lambda _, command: started.append(command))
    done = CliRunner().invoke(cli, ["resume", "b"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    launch._engine(asked[0])
    assert started[0][-4:] == ["resume", "b", "--jsonl", "--control"]


def test_a_run_that_ended_without_a_row_does_not_lack_nothing(runs: Path, capfd) -> None:
    empty = [event for event in RUN if not isinstance(event, (ev.BlockMeasured, ev.CasePrepared))]
    finished = ev.RunFinished(
        at_s=1.0, status="done", finished_at="2026-11-21T00:00:10Z", duration_s=1.0, exit_code=3
    )
    for events_of, name in ((empty, "b"), (RUN, "c")):
        lines = [ev.encode(event) + b"\n" for event in (*events_of, finished)]
        (runs / f"{name}.jsonl").write_bytes(b"".join(lines))
    done = CliRunner().invoke(cli, ["resume", "b"])
    assert done.exit_code == 1
    assert "nothing was measured for row; measure it: workbench advise row\n" in done.stderr
    assert "is complete" not in done.stderr and "no row left to resume" in done.stderr
    done = CliRunner().invoke(cli, ["resume", "c"])
    assert (done.exit_code, "is complete" in done.stderr) == (3, True)
    with pytest.raises(SystemExit, match="3"):
        cli.main(["resume", "c", "--json"], standalone_mode=False)
    assert json.loads(capfd.readouterr().out)["run"]["status"] == "done"
    with pytest.raises(SystemExit, match="3"):
        cli.main(["resume", "c", "--jsonl"], standalone_mode=False)
    last = capfd.readouterr().out.splitlines()[-1]
    assert json.loads(last)["event"] == "RunFinished"


def test_a_run_under_way_is_not_called_one_without_complete_rows(runs: Path) -> None:
    started = replace(RUN[0], id="b")
    with (runs / "b.jsonl").open("xb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(ev.encode(started) + b"\n")
        held.flush()
        error = CliRunner().invoke(cli, ["resume", "b"]).exception
    assert str(error) == "run b is still under way"
