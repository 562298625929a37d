"""The Advisor screen from the first frame to the end of a run."""

import scenes
from msgspec.structs import replace
from simulated_run import run
from stage import HeldFeed, held, opened, press, replayed, settle, settled, text

from screens.app import WorkbenchApp
from screens.state.event_source import EventSourceError
from screens.widgets.table import Table
from workbench.planning import scenarios
from workbench.planning.announcing import planned
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.report.candidate import Row

SIZE = (120, 40)
MIDWAY = "convolution"  # the row that is raced in `scenes.midway`


def cursor(app: WorkbenchApp) -> str | None:
    return app.screen.query_one(Table).cursor


async def test_the_rows_stand_there_before_the_engine_has_planned_them() -> None:
    request = Request()
    preview = [Row(planned(row, request, 0.0)) for row in resolve(request, scenarios.load())]
    app = WorkbenchApp(lambda _: HeldFeed([]), request, preview=preview, monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        shown = text(pilot)
        assert all(row.plan.title in shown for row in preview) and len(preview) == 6
        assert preview[0].plan.question in shown
        await press(pilot, "enter")  # there are no details yet
        assert text(pilot) == shown
        assert not app.session.report.rows


async def test_the_cursor_follows_the_race_until_the_user_moves_it() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        assert cursor(app) == MIDWAY
        await press(pilot, "home")
        first = cursor(app)
        assert first == next(iter(app.session.report.rows)) != MIDWAY
        app.repaint()
        await settle(pilot)
        assert cursor(app) == first
        await press(pilot, "escape")
        assert cursor(app) == MIDWAY


async def test_the_race_is_followed_again_after_another_screen_released_the_row() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "home")
        assert cursor(app) != MIDWAY
        await press(pilot, "2", "escape", "3")
        assert cursor(app) == MIDWAY


async def test_what_is_not_reached_is_awaited_no_longer() -> None:
    for failure, here in ((None, "..."), (EventSourceError("killed", "try again"), "-")):
        app, _ = held(scenes.midway(), failure)
        async with settled(app, SIZE) as pilot:
            (line,) = [x for x in text(pilot).splitlines() if x.startswith(" Budget-conscious")]
            assert line.split()[2:4] == ["CPU", here], "usual, here"


async def test_a_low_terminal_shows_the_candidates_of_the_row_that_is_raced() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, (80, 24)) as pilot:
        assert "Candidate " in text(pilot) and "●" in text(pilot)
        await press(pilot, "down")  # an answered row
        assert "Candidate " not in text(pilot)


async def test_a_low_terminal_shows_what_was_measured_before_the_engine_died() -> None:
    app, _ = held(scenes.midway(), EventSourceError("killed", "try again"))
    async with settled(app, (80, 24)) as pilot:
        await press(pilot, "down", "down", "down", "down")
        assert "Candidate " in text(pilot) and "5.03x" in text(pilot)


async def test_a_wide_terminal_shows_the_race_left_of_the_answer() -> None:
    async with settled(replayed(scenes.h200()), (200, 60)) as pilot:
        lines = text(pilot).splitlines()
    (titles,) = [line for line in lines if "Candidate " in line]
    assert titles.startswith(" Candidate ")
    below = lines[lines.index(titles) :]
    assert any(line.startswith(" cuda:0 torch bf16 nhwc loaders=8 ") for line in below)
    assert any(
        line.startswith(" 30 samples of cuda:0 torch bf16 nhwc loaders=4 ") for line in below
    )


async def test_a_single_answer_is_not_counted() -> None:
    request = Request(scenarios=("realtime",), quick=True, budget_s=60)
    async with settled(replayed(run(request, scenes.GPU_SERVER)), SIZE) as pilot:
        shown = text(pilot)
    assert "1 of 1 scenario answered" in shown and " in 1 of 1" not in shown
    assert "\n n: another run" in shown


async def test_an_answer_without_a_rating_counts_alike_in_both_lines() -> None:
    async with opened("advise-simulated-gpu").run_test(size=SIZE) as pilot:
        await settle(pilot)
        assert "1 of 3 scenarios answered" in text(pilot)
        assert "unknown in 2 of 3; GPU in 1 of 3." in text(pilot)


async def test_a_finished_run_says_its_result_and_what_comes_next() -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        assert "GPU in 4 of 6; CPU in 1 of 6; either in 1 of 6.  n: another run" in text(pilot)
        assert cursor(app) == next(iter(app.session.report.rows))
    app = replayed(scenes.cpu_only())
    async with settled(app, (80, 24)) as pilot:
        line = "No GPU was found: the CPU runs every scenario.  n: another run   e: export"
        assert line in text(pilot)
        row = next(iter(app.session.report.rows.values()))
        row.verdict = replace(row.verdict, confidence="open")
        app.repaint()
        await settle(pilot)
        assert "every scenario.  n: another run" in text(pilot)
        await pilot.resize_terminal(120, 40)
        await settle(pilot)
        assert "every scenario; other processes used 1.9 of 2 cores while it ran.  n: " in text(
            pilot
        )
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        assert "another run" not in text(pilot)
