"""The reports of a first hour, the table of docs/cuda.md and the recordings that it leaves."""

import json
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import first_hour_outputs as outputs
import pytest
from first_hour_outputs import changed

from benchmarks.first_hour.__main__ import PAGE, REPORTS, main
from benchmarks.first_hour.evidence import Evidence
from benchmarks.first_hour.judge import (
    ALL_HELD,
    NOT_TRIED,
    NOTHING_TRIED,
    REFUTED,
    exit_code,
    judge,
    report,
)
from benchmarks.first_hour.pages import BEGIN, PROVEN, UNPROVEN, markdown, page, reports


def test_the_page_is_what_the_generator_writes() -> None:
    text = PAGE.read_text()
    assert text == page(text, reports(REPORTS))
    assert text.splitlines()[0] == (PROVEN if reports(REPORTS) else UNPROVEN)


def test_a_report_becomes_a_column_of_the_page(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    assert reports(kept) == {}
    assert page(PAGE.read_text(), {}).startswith(UNPROVEN)
    outputs.write(tmp_path, changed=changed("products", "7/burst", 400.0))
    seen = Evidence(tmp_path)
    written = report(seen, judge(seen))
    (kept / "h200.json").write_text(json.dumps(written))
    text = page(PAGE.read_text(), reports(kept))
    assert text.splitlines()[0] == PROVEN
    assert "| NVIDIA H200, 2026-11-23 |" in text
    line = next(line for line in text.splitlines() if "| products fp32 burst |" in line)
    assert line.endswith("| refuted: 400 |")
    assert page(text, reports(kept)) == text
    older = written | {"at": "2026-01-01", "findings": []}
    (kept / "z.json").write_text(json.dumps(older))
    assert page(text, reports(kept)) == text


def test_text_of_others_cannot_leave_its_cell(tmp_path: Path) -> None:
    outputs.write(tmp_path, changed=changed("table", "verdicts/0/choice", "a | b\n| \x1b[2J c"))
    seen = Evidence(tmp_path)
    found = judge(seen)
    text = markdown(report(seen, found), found)
    (line,) = (line for line in text.splitlines() if line.startswith("| row training |"))
    assert "a \\| b" in line and "\x1b" not in text
    assert len(re.findall(r"(?<!\\)\|", line)) == 6


def test_recordings_are_kept_byte_for_byte(tmp_path: Path, monkeypatch, capsys) -> None:
    into = tmp_path / "recordings"
    into.mkdir()
    outputs.write(tmp_path, changed={"thorough": "damaged"})
    monkeypatch.setattr("benchmarks.first_hour.__main__.RECORDINGS", into)
    main(["--into", str(tmp_path), "--keep"])
    names = sorted(str(path.relative_to(into)) for path in into.rglob("*.json"))
    assert names == ["first-hour/h200.json", "h200-16-ceilings.json", "h200-16-default.json"]
    assert (into / "h200-16-default.json").read_bytes() == (tmp_path / "table.json").read_bytes()
    printed = capsys.readouterr()
    assert "- `h200-16-default.json`: `workbench --json`, NVIDIA H200, 2026-11-23" in printed.out
    assert "not kept: thorough.json is damaged" in printed.err


def test_a_first_hour_that_confirms_everything_ends_well(tmp_path: Path) -> None:
    outputs.write(tmp_path)
    held = [each for each in judge(Evidence(tmp_path)) if each.word != REFUTED]
    assert exit_code(held) == ALL_HELD
    assert exit_code([each for each in held if each.word == NOT_TRIED]) == NOTHING_TRIED


def test_it_says_which_packages_are_missing(capsys: pytest.CaptureFixture, monkeypatch) -> None:
    def version(name: str) -> str:
        if name in ("msgspec", "textual"):
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr("benchmarks.first_hour.__main__.version", version)
    assert main(["--missing"]) == 0
    assert capsys.readouterr().out == "msgspec textual\n"


def test_the_page_has_its_markers() -> None:
    assert PAGE.read_text().count(BEGIN) == 1
