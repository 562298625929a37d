"""`workbench runs` and `workbench resume`, by the real command line."""

import json
from pathlib import Path

import pytest
from support import budget, printed

from workbench.records import events as ev
from workbench.report.run_files import read_journal


def copies(earlier_run: Path, count: int) -> None:
    for number in range(count):
        earlier_run.with_name(f"20250101-00000{number}-old0.jsonl").write_bytes(
            earlier_run.read_bytes()
        )


def test_runs_are_listed_as_text_and_json(cli, earlier_run: Path) -> None:
    (earlier_run.parent / "folder.jsonl").mkdir()
    done = cli("runs")
    assert done.returncode == 0, done.stderr
    head, first, second = done.stdout.splitlines()
    assert head.split()[:2] == ["Run", "Started"]
    assert "unreadable" in first
    assert second.startswith(earlier_run.stem)
    document = json.loads(cli("runs", "--json", "--last", "1", "--status", "done").stdout)
    assert [run["id"] for run in document["runs"]] == [earlier_run.stem]
    assert document["runs"][0]["answers"]
    assert cli("runs", "--last", "1").stderr == "there are older ones: --last N shows more\n"
    for words in (earlier_run.stem, "done sure"):
        _, found = cli("runs", words).stdout.splitlines()
        assert found.startswith(earlier_run.stem), words
    none = cli("runs", "no such text", "--json")
    assert none.stdout.count("started_at") == 0
    assert none.stderr == "no run is kept, or none matches\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("runs", "--keep", "3"), "need --prune"),
        (("runs", "--prune"), "need --prune"),
        (("runs", "--prune", "--keep", "3", "--last", "2"), "--last limits the list"),
        (("runs", "--since", "yesterday"), "--since takes 2026-11-20, or an age"),
        (("runs", "--since", "2026-13-01"), "--since takes 2026-11-20, or an age"),
        (("runs", "--status", "fine"), "'done'"),
        (("resume", "nothing"), "no such file or run"),
        (("resume", __file__), "resume takes the id of a kept run, not a file"),
    ],
)
def test_bad_input_is_one_line(cli, arguments: tuple[str, ...], expected: str) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_pruning_says_what_it_would_delete_and_deletes_with_yes(cli, earlier_run: Path) -> None:
    copies(earlier_run, 3)
    (earlier_run.parent / "folder.jsonl").mkdir()
    done = cli("runs", "--prune", "--keep", "2")
    assert "this would delete 2 runs" in done.stderr
    assert len(list(cli.runs.glob("*.jsonl"))) == 5
    done = cli("runs", "--prune", "--keep", "2", "--yes")
    assert (done.returncode, "deleted 2 runs" in done.stderr) == (0, True)
    left = {path.stem for path in cli.runs.glob("*.jsonl")}
    assert left == {earlier_run.stem, "20250101-000002-old0", "folder"}
    done = cli("runs", "--prune", "--keep", "2", "--yes")
    assert (done.returncode, "nothing is deleted" in done.stderr) == (0, True)


def cut_after(source: Path, row: str) -> Path:
    """A copy of a journal that ends with the last event on `row`'s race."""
    lines = source.read_bytes().splitlines(keepends=True)
    ends = [n for n, line in enumerate(lines) if isinstance(ev.decode(line), ev.RaceStarted)]
    cut = source.with_name(f"{source.stem[:-4]}zzzz.jsonl")  # later than its source
    cut.write_bytes(b"".join(lines[: ends[1] + 1]).replace(source.stem.encode(), cut.stem.encode()))
    return cut


def test_a_cut_run_is_resumed_with_the_rows_that_it_lacks(cli) -> None:
    sizes = ("run", "spin", "--set", "ms=1,2", "--precision", "fp32", "--device", "cpu")
    done = cli(*sizes, *budget(4), "--json")
    whole = printed(done)
    (source,) = cli.runs.glob("*.jsonl")
    assert cli("resume", "last").returncode == 0
    cut = cut_after(source, "spin")
    done = cli("resume", "last", "--json")
    document = printed(done)
    assert document["run"]["resumes"] == cut.stem
    ((row, origin),) = document["run"]["carried"].items()
    assert origin == cut.stem
    assert document["tool"]["command"] == whole["tool"]["command"]
    before = {m["scenario"]: m["samples_s"] for m in whole["measurements"]}
    after = {m["scenario"]: m["samples_s"] for m in document["measurements"]}
    assert list(after) == list(before)
    assert after[row] == before[row]
    (other,) = set(after) - {row}
    assert after[other]
    assert after[other] != before[other]
    kept = cli.runs / f"{document['run']['id']}.jsonl"
    report, carried = read_journal(kept).report, read_journal(cut).report
    assert report.document().run.carried == {row: cut.stem}
    assert report.rows[row].plan.reproduce == carried.rows[row].plan.reproduce
    assert f"run {cut.stem}: {row}" in cli("open", document["run"]["id"], "--plain").stdout
    content = cut.read_bytes()
    for old, new in (
        (b'"model":"', b'"model":"Other '),
        (b'"prices":{}', b'"prices":{"cpu":2.0}'),
        (b'"limits":{}', b'"limits":{"max_error":0.5}'),
    ):
        cut.write_bytes(content.replace(old, new))
        refused = cli("resume", cut.stem)
        assert refused.returncode == 2
        said = "cannot be resumed: the machine, its software or the rows have changed"
        assert said in refused.stderr


def test_a_complete_run_lacks_nothing_and_another_version_is_refused(cli, earlier_run) -> None:
    done = cli("resume", "last")
    assert (done.returncode, "is complete" in done.stderr) == (0, True), done.stderr
    lines = earlier_run.read_bytes().splitlines(keepends=True)
    starts = [n for n, line in enumerate(lines) if line.startswith(b'{"event":"RaceStarted"')]
    earlier_run.write_bytes(b"".join(lines[: starts[0] + 1]))
    done = cli("resume", "last")
    assert done.returncode == 2
    assert "cannot be resumed" in done.stderr
    assert "run it again: workbench" in done.stderr
