"""The Model screen: what it shows at each stage of `advise --model`, and what its keys do."""

from collections.abc import Sequence
from pathlib import Path

import own_runs
import pytest
import recorded_model
import scenes
import simulated_lab
from msgspec.structs import replace
from stage import (
    JOURNALS,
    HeldFeed,
    at_both_sizes,
    held,
    opened,
    press,
    replayed,
    settle,
    settled,
    text,
)
from textual.pilot import Pilot

from screens.app import WorkbenchApp
from screens.pages.detail import DetailScreen
from screens.state.session import Session
from screens.widgets.table import Table
from workbench.export.json import dump
from workbench.planning.questions import ModelQuestion
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.records.model import Saved
from workbench.records.reason import Reason
from workbench.report.report import Report
from workbench.report.run_files import open_run, read_journal

SIZE = (80, 24)
DONE = simulated_lab.done()
ADVISED = next(n for n, event in enumerate(DONE) if isinstance(event, ev.ModelAdvised))


async def read_on(pilot: Pilot[None], keys: int = 12) -> str:
    """All that scrolling down shows, one screen after another."""
    shown = [text(pilot)]
    for _ in range(keys):
        await press(pilot, "pagedown")
        shown.append(text(pilot))
    return "\n".join(shown)


async def test_another_run_is_shown_from_its_beginning() -> None:
    app = opened("advise-model")
    async with settled(app, (80, 24)) as pilot:
        await press(pilot, "pagedown")
        assert "ship        small.onnx" not in text(pilot)
        app.show_run(Session.of(read_journal(JOURNALS / "advise-model.jsonl")))
        await settle(pilot)
        assert "ship        small.onnx" in text(pilot)


async def test_a_run_of_a_model_opens_on_its_screen() -> None:
    async with settled(replayed(DONE), SIZE) as pilot:
        assert "[4 Model]" in text(pilot)
        assert "ship        int8-static-u8s8-channel with 2 threads: 1.92x" in text(pilot)
        await press(pilot, "3")
        assert "[3 Advisor]" in text(pilot)
        assert "Usual" not in text(pilot)
        await press(pilot, "4")
        assert "[4 Model]" in text(pilot)


async def test_a_wide_screen_plots_error_over_time() -> None:
    async with settled(replayed(DONE), (160, 64)) as pilot:
        shown = text(pilot)
        assert "Error over the time of a run" in shown
        assert "1% |" in shown
        legend = next(line for line in shown.splitlines() if "○ within its limit" in line)
        assert "◆ selected" in legend and "● pick" not in legend, "the cursor is on the pick"
        await press(pilot, "down")
        assert "● pick" in text(pilot)
        await pilot.resize_terminal(120, 64)
        await settle(pilot)
        assert "Error over the time" not in await read_on(pilot)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models at several depths, in which the screens run."""
    for name in ("b.onnx", "models/a.onnx", "1/2/3/deep.onnx", ".hidden/c.onnx", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(2048))
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def listed(pilot: Pilot[None]) -> str:
    """The Model screen when the thread that looks for files is done."""
    await settle(pilot)
    await press(pilot, "4")
    while any(each.is_running and each.group != "source" for each in pilot.app.workers):
        await pilot.pause(0.01)
    await settle(pilot)
    return text(pilot)


@at_both_sizes
def test_the_picker(snap_compare, folder: Path, size: tuple[int, int]) -> None:
    assert snap_compare(replayed(scenes.h200()), terminal_size=size, run_before=listed)


async def test_other_runs_offer_the_models_of_the_folder_and_the_form_races_one(folder) -> None:
    asked: list[Request] = []

    def start(request: Request) -> HeldFeed:
        asked.append(request)
        return HeldFeed([*scenes.h200()] if len(asked) == 1 else [])

    app = WorkbenchApp(start, monotonic=lambda: 0.0)
    async with app.run_test(size=SIZE) as pilot:
        shown = await listed(pilot)
        assert "b.onnx" in shown and "models/a.onnx" in shown and "2 KiB" in shown
        assert "deep.onnx" not in shown and "c.onnx" not in shown and "notes" not in shown
        assert "enter Open" in shown
        await press(pilot, "down", "enter")
        assert "workbench advise --model models/a.onnx" in text(pilot)
        await press(pilot, "enter", "enter")
        assert asked[1].question == ModelQuestion("models/a.onnx")
        assert "[4 Model]" in text(pilot) and "reading it, making inputs" in text(pilot)


async def test_no_model_is_offered_during_a_run(folder: Path) -> None:
    app, feed = held(scenes.midway())
    async with app.run_test(size=SIZE) as pilot:
        assert "b.onnx" not in await listed(pilot)
        assert "when no other run is in progress" in text(pilot)
        await press(pilot, "enter", "x", "x")
        assert feed.closed and "b.onnx" in await listed(pilot)


async def test_what_cannot_be_looked_at_is_no_model_and_a_new_one_appears(folder: Path) -> None:
    (folder / "endless.onnx").symlink_to("x" * 255)
    (folder / "toolong.onnx").symlink_to("x" * 300)
    (folder / "folder.onnx").mkdir()
    async with replayed(scenes.h200()).run_test(size=SIZE) as pilot:
        shown = await listed(pilot)
        assert "b.onnx" in shown and "toolong" not in shown and "folder.onnx" not in shown
        assert "c Copy" not in shown, "no row is chosen here"
        (folder / "new.onnx").touch()
        await press(pilot, "3")
        assert "c Copy" in text(pilot)
        assert "new.onnx" in await listed(pilot)


async def test_the_screen_is_there_before_the_engine_says_a_word() -> None:
    request = Request(question=ModelQuestion("folder/net.onnx"))
    feed = HeldFeed(DONE[:2])
    app = WorkbenchApp(lambda _: feed, request, monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        assert "[4 Model]" in text(pilot)
        assert "net.onnx" in text(pilot)
        assert "folder" not in text(pilot)
        assert "reading it, making inputs" in text(pilot)
        await press(pilot, "c")  # there is nothing to copy yet
        assert app.clipboard == ""


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (simulated_lab.inspected(), "choosing its candidates"),
        (
            [*simulated_lab.midway(), ev.ModelBuilding(at_s=20.0, recipe="int8-dynamic")],
            "building int8-dynamic",
        ),
        (
            [*simulated_lab.midway(), ev.ModelBuilding(at_s=20.0, recipe="int8", search=True)],
            "searching the nodes of int8 to leave in FP32",
        ),
        (simulated_lab.midway(), "racing, 6 of 8 candidates left"),
        (DONE[:ADVISED], "profiling, to explain the result"),
        (DONE[:-1], "finishing"),
    ],
)
async def test_the_stage_of_the_lab_is_told(events: Sequence[ev.AnyEvent], expected: str) -> None:
    async with settled(held(events)[0], SIZE) as pilot:
        assert expected in text(pilot)


async def test_a_candidate_that_joins_has_its_line() -> None:
    joined = next(
        n
        for n, event in enumerate(DONE)
        if isinstance(event, ev.CasesJoined) and recorded_model.MIXED in event.cases
    )
    async with settled(held(DONE[:joined])[0], SIZE) as pilot:
        table = text(pilot).split("So far")[0]
        assert "mixed" not in table
    async with settled(held(DONE[: joined + 1])[0], SIZE) as pilot:
        table = text(pilot).split("So far")[0]
        assert "-mixed" in table


async def test_the_cursor_starts_on_the_pick_and_why_follows_it() -> None:
    async with settled(replayed(DONE), (120, 60)) as pilot:
        shown = text(pilot)
        assert "Why int8-static-u8s8-channel t2" in shown
        assert shown.count("Why ") == 1
        await press(pilot, "end")
        shown = text(pilot)
        assert "Why int8-dynamic t2" in shown
        assert "ConvInteger" in shown
        assert "quantise, dequantise" in shown
        await press(pilot, "up")
        assert "Why fp32 t1" in text(pilot)


async def test_the_cursor_stays_where_it_was_moved_when_the_verdict_comes() -> None:
    decided = next(n for n, event in enumerate(DONE) if isinstance(event, ev.VerdictReached))
    app, feed = held(DONE[:decided])
    async with settled(app, SIZE) as pilot:
        await press(pilot, "end")
        for event in DONE[decided:]:
            feed._more.put_nowait(event)
        await settle(pilot)
        assert "Why int8-dynamic" in await read_on(pilot, 3)


async def test_everything_can_be_read_by_keyboard_in_a_small_terminal() -> None:
    async with settled(replayed(DONE), SIZE) as pilot:
        drawn = await read_on(pilot)
    for wanted in (
        "Where the time of one run goes",
        "import onnxruntime as ort",
        "outputs = session.run(None, feeds)",
        "features  error 0.64%, cosine 0.99998",
        "could not be made",
        "other calibrations",
        "$ workbench advise --model mobilenet_v2.onnx",
    ):
        assert wanted in drawn


async def test_c_copies_the_code_as_it_stands() -> None:
    app = replayed(DONE)
    async with settled(app, SIZE) as pilot:
        await press(pilot, "c")
        code = Report.of(DONE).model.advice.snippet
        assert app.clipboard == code
        (notice,) = app._notifications
        assert notice.message == "the code on this screen"


async def test_before_there_is_code_c_copies_the_command() -> None:
    app, _ = held(simulated_lab.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "c")
        assert app.clipboard.startswith("workbench advise --model mobilenet_v2.onnx")


async def test_enter_shows_the_details_of_a_form() -> None:
    app = replayed(DONE)
    async with settled(app, (120, 60)) as pilot:
        await press(pilot, "enter")
        assert isinstance(app.screen, DetailScreen)
        shown = text(pilot)
        assert "logits: error 0.91%, cosine 0.99996, top-1 87.5%" in shown
        assert "Conv takes 1.51 ms a run instead of 3.70 ms" in shown
        assert "0.0091 / 1" not in shown  # the check itself has no limit
        await press(pilot, "escape")
        assert "[4 Model]" in text(pilot)


async def test_a_failed_form_and_a_file_that_was_not_written_are_told() -> None:
    reason = recorded_model.BUILT[2].reason
    events = []
    for event in DONE:
        if isinstance(event, ev.ModelAdvised):
            saved = Saved("best.onnx", None, None, reason)
            advice = replace(event.advice, saved=saved)
            event = replace(event, advice=advice)
        if isinstance(event, ev.CaseFinished) and event.case == recorded_model.MIXED.id:
            event = replace(event, status="failed", reason=reason)
        events.append(event)
    async with settled(replayed(events), (120, 60)) as pilot:
        assert "best.onnx was not written: ONNX Runtime cannot run it" in text(pilot)
        await press(pilot, "down")
        assert "Failed: ONNX Runtime cannot run it" in text(pilot)


async def test_a_model_that_could_not_be_read_says_why() -> None:
    crashed = Reason("worker_died", "the worker was killed by signal 11", "report the model")
    events: list[ev.AnyEvent] = [e for e in DONE[:9] if not isinstance(e, ev.ModelInspected)]
    events = [e for e in events if not isinstance(e, (ev.ModelBuilt, ev.RaceStarted))]
    plan = next(e for e in events if isinstance(e, ev.RacePlanned))
    for case in plan.cases:
        events.append(
            ev.CaseFinished(
                at_s=11.0, case=case.id, scenario="model", status="failed", reason=crashed
            )
        )
    async with settled(replayed(events), SIZE) as pilot:
        assert "[4 Model]" in text(pilot)
        assert "killed by signal 11" in text(pilot)


async def test_an_opened_document_shows_the_same(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(dump(Report.of(DONE).document()))
    async with settled(replayed(DONE), (120, 60)) as pilot:
        live = text(pilot).splitlines()[2:]
    app = WorkbenchApp(lambda _: HeldFeed([]), kept=Session.of(open_run(str(file))))
    async with settled(app, (120, 60)) as pilot:
        assert text(pilot).splitlines()[2:] == live


async def test_a_narrow_terminal_keeps_form_gain_error_and_state() -> None:
    async with settled(replayed(DONE), (60, 20)) as pilot:
        head = next(line for line in text(pilot).splitlines() if line.startswith(" Variant"))
        assert head.split() == ["Variant", "Run", "Gain", "Error", "State"]


async def test_own_code_opens_on_this_screen_with_answer_and_code() -> None:
    app = replayed(own_runs.net())
    async with settled(app, SIZE) as pilot:
        shown = text(pilot)
        assert "[4 Model]" in shown
        assert "run it      on the CPU with BF16 autocast, channels_last and 2 threads" in shown
        await press(pilot, "c")
        assert app.clipboard.endswith("    output = model(*inputs)")
        drawn = await read_on(pilot, 6)
    for wanted in (
        "The race at batch 8",
        "Not tried",
        "ONNX Runtime does not optimise",
        "$ workbench",
    ):
        assert wanted in drawn


async def test_the_table_has_the_keyboard_again_in_a_second_run() -> None:
    feeds = [HeldFeed(own_runs.net()), HeldFeed(own_runs.net())]
    app = WorkbenchApp(lambda _: feeds.pop(0), monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        await press(pilot, "s")
        await settle(pilot)
        table = app.screen.query_one(Table)
        before = table.cursor
        await press(pilot, "up")
        assert app.screen.focused is table
        assert table.cursor != before


async def test_a_candidate_above_its_limit_says_so() -> None:
    async with settled(replayed(own_runs.net()), (120, 60)) as pilot:
        await press(pilot, "up")
        assert "Why cpu onnxruntime int8-static-u8s8 t2" in text(pilot)
        assert "Its error is above the limit." in text(pilot)


async def test_code_that_raised_says_so_on_this_screen() -> None:
    async with settled(replayed(own_runs.raised()), SIZE) as pilot:
        assert "[4 Model]" in text(pilot)
        assert "done  no pick" in text(pilot)
        assert "net:build: ValueError: no weights" in text(pilot)
        await press(pilot, "3")
        assert "net:build: ValueError:" in text(pilot)
        assert "weights (net.py:12)." in text(pilot)
