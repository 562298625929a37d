"""`workbench export`: where the files go, and the one line for each bad request."""

from pathlib import Path
from unittest.mock import Mock

import builders
import pytest
import scenes
from click.testing import CliRunner

from workbench.cli.main import cli, main
from workbench.planning.usage import UsageError
from workbench.records.events import encode


@pytest.fixture
def run(tmp_path: Path) -> Path:
    file = tmp_path / "run.jsonl"
    file.write_bytes(b"".join(encode(event) + b"\n" for event in scenes.cpu_only()))
    return file


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(cli, ["export", *map(str, arguments)])
    assert isinstance(result.exception, UsageError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_several_files_at_once(run: Path, tmp_path: Path) -> None:
    page, plots, gauges = tmp_path / "a.html", tmp_path / "plots", tmp_path / "b.prom"
    options = ["--html", page, "--svg", plots, "--openmetrics", gauges]
    result = CliRunner().invoke(cli, ["export", *map(str, [run, *options])])
    assert result.exit_code == 0, result.exception
    assert page.read_text().startswith("<!doctype html>")
    assert gauges.read_text().endswith("# EOF\n")
    assert [file.name for file in sorted(plots.iterdir())][:2] == ["plot-01.svg", "plot-02.svg"]


@pytest.mark.parametrize("form", ["--html", "--markdown", "--csv", "--openmetrics"])
def test_stdout_without_a_file(form: str, run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for options in ([form], [form, "-"]):
        cli.main(["export", str(run), *options], standalone_mode=False)
        assert len(capfd.readouterr().out) > 1000


def test_bad_requests_are_one_line(run: Path, tmp_path: Path) -> None:
    assert "choose from --svg DIR, --" in refused(run)
    choices = "--html, --markdown, --csv, --openmetrics; one may go without FILE"
    assert choices in refused(run, "--csv", "--html")
    assert "No such file" in refused(run, "--html", tmp_path / "missing" / "a.html")
    assert "it is a folder" in refused(run, "--csv", tmp_path)
    (tmp_path / "link").symlink_to("a")
    same = "--html and --csv lead to one file"
    assert same in refused(run, "--html", tmp_path / "a", "--csv", tmp_path / "link")
    content = run.read_bytes()
    assert f"RUN and --html lead to one file: {run}" in refused(run, "--html", run)
    assert run.read_bytes() == content
    assert "name a new folder" in refused(run, "--svg", tmp_path)
    (tmp_path / "readonly").write_text("")
    assert "name a new folder" in refused(run, "--svg", tmp_path / "readonly")


def test_a_run_without_measurements_leaves_no_file(tmp_path: Path) -> None:
    empty, page = tmp_path / "empty.jsonl", tmp_path / "a.html"
    empty.write_bytes(encode(builders.eventful()[0]) + b"\n")
    assert "has no measurements" in refused(empty, "--html", page)
    assert not page.exists()


def test_plots_that_cannot_all_be_written_leave_no_folder(run, tmp_path, monkeypatch) -> None:
    plots, full = tmp_path / "plots", OSError(28, "No space left on device")
    monkeypatch.setattr("workbench.cli.history.replace", Mock(side_effect=[None, full]))
    done = CliRunner().invoke(cli, ["export", str(run), "--svg", str(plots)])
    assert done.exception is full
    assert not plots.exists()


@pytest.mark.parametrize(("option", "name"), [("--csv", "a.csv"), ("--svg", "plots")])
def test_a_file_on_a_full_disk_is_named(option, name, run, tmp_path, monkeypatch, capsys) -> None:
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("os.fsync", full)
    monkeypatch.setattr("workbench.cli.main.let_go", lambda _: None)  # keeps pytest's stdout
    with pytest.raises(SystemExit) as ended:
        main(["export", str(run), option, str(tmp_path / name)])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith(f"workbench: {tmp_path / name}")
    assert said.endswith("cannot be written: No space left on device; write it elsewhere\n")
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]
