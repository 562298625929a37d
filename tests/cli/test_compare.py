"""`workbench compare`, as a user runs it."""

import json
from pathlib import Path

import msgspec
import pytest
from builders import case, report, steady
from msgspec.structs import replace

from workbench.contract import Case
from workbench.export.json import dump
from workbench.records.comparison import RunComparison

ONE, TWO = case("cpu-a"), case("cpu-b")


def document(folder: Path, name: str, times: dict[Case, float], rounds: int = 8) -> str:
    found = report({each: steady(center, rounds) for each, center in times.items()})
    found.started = replace(found.started, id=name)
    file = folder / f"{name}.json"
    file.write_text(dump(found.document()))
    return str(file)


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, str]:
    times = {"before": {ONE: 1.0}, "slower": {ONE: 1.4}, "other": {TWO: 1.0}}
    files = {name: document(tmp_path, name, each) for name, each in times.items()}
    files["short"] = document(tmp_path, "short", {ONE: 1.4}, rounds=2)
    cut = tmp_path / "cut.json"
    cut.write_text(Path(files["before"]).read_text()[:-40])
    return {**files, "cut": str(cut)}


def test_three_runs_as_json(cli, runs) -> None:
    done = cli("compare", runs["before"], runs["slower"], runs["before"], "--json")
    assert done.returncode == 2, done.stdout  # A and C are one run
    done = cli("compare", runs["before"], runs["slower"], "--json", "--fail-on", "5%")
    assert (done.returncode, done.stderr) == (4, "")
    found = msgspec.convert(json.loads(done.stdout), RunComparison)
    assert found.tool.command == "compare"
    assert [case.word for case in found.against[0].cases] == ["SLOWER"]


def test_a_journal_and_a_document_as_text_and_markdown(cli, runs, earlier_run) -> None:
    done = cli("compare", "last", str(earlier_run))
    assert done.returncode == 2 and "are the same run" in done.stderr
    done = cli("compare", runs["slower"], runs["before"], "--fail-on", "5%")
    assert done.returncode == 0 and "FASTER" in done.stdout
    done = cli("compare", runs["before"], runs["slower"], "--fail-on", "60%", "--markdown")
    assert done.returncode == 0 and "| SLOWER |" in done.stdout and "| 1.40x |" in done.stdout


def test_a_gate_that_could_judge_nothing_does_not_pass(cli, runs) -> None:
    assert cli("compare", runs["before"], runs["short"]).returncode == 0
    done = cli("compare", runs["before"], runs["short"], "--fail-on", "5%")
    assert done.returncode == 1 and "only 2 rounds in B" in done.stdout
    said = "workbench: --fail-on judged no case of B: only 2 rounds in B; measure longer\n"
    assert done.stderr == said
    assert (
        cli("compare", *map(runs.get, ("before", "short", "slower")), "--fail-on", "5%").returncode
        == 4
    )


def test_a_gate_does_not_pass_where_a_case_has_come_to_fail(cli, tmp_path: Path) -> None:
    files = [document(tmp_path, name, {ONE: 1.0, TWO: 1.0}) for name in ("before", "after")]
    after = json.loads(Path(files[1]).read_text())
    after["measurements"][1] |= {"status": "failed", "reason": {"code": "x", "message": "it died"}}
    Path(files[1]).write_text(json.dumps(after))
    done = cli("compare", *files)
    assert (done.returncode, done.stderr) == (0, "")
    said = f"such as {TWO.id}: it died"
    assert f"Failed in B: 1, {said}." in " ".join(done.stdout.split())
    done = cli("compare", *files, "--fail-on", "10%", "--json")
    assert (done.returncode, done.stderr) == (
        1,
        f"workbench: --fail-on does not pass: 1 case failed in B, {said}\n",
    )
    (versus,) = msgspec.convert(json.loads(done.stdout), RunComparison).against
    assert [*versus.failed_here] == versus.only_in_a == [TWO.id]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("before",), "name two to 26 runs"),
        (("before", "before"), "A and B are the same run, before: name two"),
        (("before", "other"), "A and B have no measured case in common"),
        (("before", "cut"), "is not a workbench document"),
        (("before", "gone"), "no such file or run: 'gone'"),
        (("before", "slower", "--fail-on", "5"), "--fail-on takes a percentage such as 2%"),
        (("before", "slower", "--fail-on", "0.0%"), "--fail-on takes a percentage such as 2%"),
        (("before", "slower", "--fail-on", "nan%"), "--fail-on takes a percentage such as 2%"),
    ],
)
def test_bad_input_is_one_line(cli, runs, arguments, expected: str) -> None:
    done = cli("compare", *(runs.get(each, each) for each in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1
