"""The index of runs is always right or passed over; the journals stay the truth."""

import errno
import fcntl
import os
import random
import time
import tracemalloc
from pathlib import Path
from typing import BinaryIO
from unittest.mock import Mock

import pytest
import scenes
from builders import case, eventful, events, steady

from workbench.export.view.runs import command, moment
from workbench.files import write
from workbench.records import events as ev
from workbench.report import history, journal

FIXTURES = Path(__file__).parents[2] / "fixtures/journals"
RUN = events({case("cpu-a"): steady(1.0)})
LINES = [ev.encode(event) + b"\n" for event in RUN]


@pytest.fixture(autouse=True)
def runs() -> Path:
    journal.runs_folder().mkdir(parents=True)
    return journal.runs_folder()


def keep(runs: Path, name: str, content: bytes | None = None) -> Path:
    path = runs / f"{name}.jsonl"
    path.write_bytes(b"".join(LINES) if content is None else content)
    return path


def listed(**bounds: object) -> list[history.RunSummary]:
    return [summary for _, summary in history.matching(history.refreshed(), **bounds)]


def statuses() -> dict[str, str]:
    return {summary.id: summary.status for summary in listed()}


def index_of(runs: Path) -> Path:
    return runs.with_name(history.INDEX)


def test_a_summary_says_what_a_run_answered(runs: Path) -> None:
    keep(runs, "a", b"".join(ev.encode(event) + b"\n" for event in eventful()))
    (found,) = listed()
    assert (found.status, found.duration_s, found.command) == ("done", 9.5, "workbench")
    assert list(found.answers) == ["row", "other"]
    assert found.answers["row"] == "cuda:0 torch fp32"


def test_an_answer_is_the_pick_unless_either_device_will_do(runs: Path) -> None:
    keep(runs, "a", b"".join(ev.encode(event) + b"\n" for event in scenes.h200()))
    (found,) = listed()
    assert found.answers["training"] == "cuda:0 torch bf16 nhwc loaders=4", "one of two equals"
    assert found.answers["branching"] == "either"


@pytest.mark.parametrize(
    ("name", "status", "simulated", "answers"),
    [
        ("advise-interrupted", "cancelled", False, {"training", "realtime", "branching"}),
        ("advise-simulated-gpu", "done", True, None),
        ("run-sweep", "done", False, None),
        ("advise-crossover", "done", True, None),
    ],
)
def test_journals_of_real_runs_are_summarised(runs, name, status, simulated, answers) -> None:
    keep(runs, name, (FIXTURES / f"{name}.jsonl").read_bytes())
    (found,) = listed()
    assert (found.status, found.simulated, found.reason) == (status, simulated, None)
    assert found.answers
    assert answers is None or set(found.answers) == answers


def test_reading_the_index_takes_little_memory(runs: Path) -> None:
    keep(runs, "a")
    listed()
    tracemalloc.start()
    listed()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100 << 20, "some login nodes limit it (ulimit -v)"


def test_the_newest_comes_first_and_conditions_choose(runs: Path) -> None:
    for name in ("20260101-a", "20260103-c", "20260102-b"):
        keep(runs, name)
    assert [each.id for each in listed()] == ["20260103-c", "20260102-b", "20260101-a"]
    assert len(listed(status="incomplete")) == 3
    assert listed(since_s=4e9) == []
    assert len(listed(before_s=4e9)) == 3


def test_only_new_and_changed_journals_are_read(runs: Path, monkeypatch) -> None:
    first, _ = keep(runs, "a"), keep(runs, "b")
    listed()
    seen: list[str] = []
    real = history.summary_of
    monkeypatch.setattr(history, "summary_of", lambda path: seen.append(path.stem) or real(path))
    listed()
    assert seen == []
    finished = ev.RunFinished(at_s=9, status="done", finished_at="", duration_s=9.0, exit_code=0)
    with first.open("ab") as file:
        file.write(ev.encode(finished) + b"\n")
    keep(runs, "c")
    assert statuses() == {"a": "done", "b": "incomplete", "c": "incomplete"}
    assert sorted(seen) == ["a", "c"]
    first.unlink()
    assert set(statuses()) == {"b", "c"}


def test_what_is_no_journal_is_listed_with_the_reason(runs: Path) -> None:
    (runs / "folder.jsonl").mkdir()
    os.mkfifo(runs / "fifo.jsonl")
    (runs / "gone.jsonl").symlink_to(runs / "nowhere")
    (runs / "notes.txt").write_text("foreign")
    keep(runs, "empty", b"")
    keep(runs, "foreign", b"\x00\xff[31m\n")
    keep(runs, "early", LINES[0].replace(b"2026-11-21T00", b"0001-01-01T00"))
    keep(runs, "\x1b[31mred")
    found = {each.id: each for each in listed()}
    assert "\\x1b[31mred" in found
    assert "it is a folder" in str(found["folder"].reason)
    assert "not a regular file" in str(found["fifo"].reason)
    bad = {"folder", "fifo", "empty", "foreign"}
    assert {name for name, each in found.items() if each.status == "unreadable"} >= bad
    assert command(found["folder"]) == "folder"  # the list and the palette name it so
    assert "gone" not in found
    assert "notes" not in found
    assert all(str(each.reason).isprintable() for each in found.values())


@pytest.mark.parametrize("line", [b'{"event":"RacePlanned"}\n', b'{"event":"BlockMeasured\n'])
def test_a_run_ends_at_a_broken_line(runs: Path, line: bytes) -> None:
    whole = [ev.encode(event) + b"\n" for event in eventful()]
    keep(runs, "broken", b"".join([*whole[:-1], line, whole[-1]]))
    keep(runs, "whole", b"".join(whole))
    assert statuses() == {"broken": "incomplete", "whole": "done"}


def test_a_time_zone_days_away_hides_no_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(runs, "a")
    monkeypatch.setenv("TZ", "XYZ99:99")
    time.tzset()
    try:
        (found,) = listed()
        assert (found.status, moment(found)) == ("incomplete", "2026-11-21 00:00")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_name_that_is_no_text_is_listed(runs: Path) -> None:
    (Path(os.fsdecode(os.fsencode(runs) + b"/a\xff.jsonl"))).write_bytes(b"".join(LINES))
    assert [each.id for each in listed()] == ["a\\udcff"]


def test_a_run_under_way_is_running_and_is_not_deleted(runs: Path) -> None:
    written = journal.Journal(runs / "a.jsonl")
    for event in RUN:
        written.append(event)
    assert statuses() == {"a": "running"}
    with pytest.raises(BlockingIOError):
        history.delete(written.path)
    written.close()
    assert statuses() == {"a": "incomplete"}
    history.delete(written.path)
    assert statuses() == {}


def test_a_file_system_that_locks_only_what_is_open_for_writing_lets_go_of_a_run(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def over_nfs(file: BinaryIO, operation: int) -> None:
        if operation & fcntl.LOCK_EX and not file.writable():
            raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(history.fcntl, "flock", over_nfs)
    history.delete(keep(runs, "a"))
    assert statuses() == {}


def test_a_large_journal_is_read_without_its_blocks(runs: Path, monkeypatch) -> None:
    kinds: list[str] = []
    real = ev.decode
    monkeypatch.setattr(
        ev, "decode", lambda line: kinds.append(type(found := real(line)).__name__) or found
    )
    keep(runs, "a")
    listed()
    assert set(kinds) == {"RunStarted", "HardwareDetected", "RacePlanned"}


@pytest.mark.parametrize("hindrance", ["full", "locked", "folder"])
def test_without_a_place_for_the_index_the_list_is_whole(
    runs: Path, hindrance: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    keep(runs, "a")
    full = Mock(side_effect=OSError(28, "No space left on device"))
    if hindrance == "full":
        monkeypatch.setattr(write, "replace", full)
    elif hindrance == "locked":
        os.mkfifo(index_of(runs))
    else:
        index_of(runs).mkdir()
    assert statuses() == {"a": "incomplete"}
    assert capsys.readouterr().err.count("the index of runs cannot be kept") == 1


def test_the_index_is_as_private_as_the_journals(runs: Path) -> None:
    keep(runs, "a")
    listed()
    assert index_of(runs).stat().st_mode & 0o777 == 0o600


def test_a_lock_on_the_index_delays_nobody(runs: Path) -> None:
    keep(runs, "a")
    listed()
    with index_of(runs).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        keep(runs, "b")
        assert set(statuses()) == {"a", "b"}


def mutated(rng: random.Random, content: bytes) -> bytes:
    kind = rng.randrange(4)
    at = rng.randrange(len(content))
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    if kind == 2:
        return content + rng.randbytes(1 + at % 100)
    return content[:at] + rng.randbytes(8) + content[at + 8 :]


@pytest.mark.parametrize("times", [300, pytest.param(5000, marks=pytest.mark.campaign)])
def test_a_damaged_index_is_made_again(runs: Path, capsys, times: int) -> None:
    for name in "abc":
        keep(runs, name)
    expected = listed()
    path, rng = index_of(runs), random.Random(7)
    whole = path.read_bytes()
    for number in range(times):
        path.write_bytes(mutated(rng, whole))
        assert listed() == expected, number
        assert path.read_bytes() == whole
    assert capsys.readouterr().err == ""
