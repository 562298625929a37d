"""Walking the rows: one is chosen on all screens, and its details are its own."""

import dataclasses

import scenes
from stage import Feed, HeldFeed, click_on, held, press, replayed, settle, settled, text
from textual.events import MouseScrollDown, MouseScrollUp

from screens.app import WorkbenchApp
from screens.pages.advisor import AdvisorScreen
from screens.pages.detail import DetailScreen
from screens.widgets.table import Table
from workbench.export.view.events import LogLine
from workbench.planning.request import Request
from workbench.records import events as ev

SIZE = (80, 24)


async def test_enter_on_the_run_screen_opens_the_same_row() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, "2", "right_square_bracket", "enter")
        assert "Real-time inference, small device ─" in text(pilot)
        assert "[2 Run]" in text(pilot)


async def test_brackets_walk_the_rows_and_escape_follows_the_live_one() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "2")
        assert "Heavy convolution layers   [ 5 of 6 ]" in text(pilot)
        assert "live" in text(pilot)
        await press(pilot, "left_square_bracket", "left")
        assert "Extensive floating-point computation   [ 3 of 6 ]" in text(pilot)
        assert "esc: back to the live row" in text(pilot)
        await press(pilot, "escape")
        assert "5 of 6" in text(pilot)
        await press(pilot, "right", "right_square_bracket")
        assert "6 of 6" in text(pilot)


async def test_a_click_on_a_bracket_of_the_title_walks_the_rows() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "2")
        await click_on(pilot, " ]   ")
        assert "[ 6 of 6 ]" in text(pilot)
        await click_on(pilot, " [ 6")
        assert "[ 5 of 6 ]" in text(pilot)


async def test_a_second_run_is_followed_whatever_was_looked_at_before() -> None:
    feeds = [HeldFeed(scenes.midway()), HeldFeed(scenes.midway())]
    app = WorkbenchApp(lambda _: feeds.pop(0), monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        await press(pilot, "up", "2", "left_square_bracket", "x", "x", "s")
        assert "Heavy convolution layers   [ 5 of 6 ]" in text(pilot)
        assert "esc Back" not in text(pilot)
        await press(pilot, "3")
        assert app.screen.query_one(Table).cursor == "convolution"


async def test_a_run_that_is_stopped_stays_at_its_row_on_every_screen() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "2", "x", "x")
        assert not app.session.going and "[ 5 of 6 ]" in text(pilot)
        await press(pilot, "3")
        assert app.screen.query_one(Table).cursor == "convolution"


async def test_screens_agree_on_the_row_of_a_plain_run_before_one_is_chosen() -> None:
    app = replayed(scenes.sweep())
    async with settled(app, SIZE) as pilot:
        raced = app.screen.row.plan.scenario
        await press(pilot, "3")
        assert app.screen.query_one(Table).cursor == raced


async def test_every_screen_shows_the_row_that_was_chosen_on_another() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        first = pilot.app.screen.query_one(Table).cursor
        await press(pilot, "2")
        assert pilot.app.screen.row.plan.scenario == first
        await press(pilot, "3", "down", "down")
        chosen = pilot.app.screen.query_one(Table).cursor
        assert chosen != first
        for key in ("2", "6"):
            await press(pilot, key)
            assert pilot.app.screen.row.plan.scenario == chosen
        await press(pilot, "right_square_bracket")
        walked = pilot.app.screen.row.plan.scenario
        await press(pilot, "3")
        assert pilot.app.screen.query_one(Table).cursor == walked != chosen


async def test_escape_clears_a_kept_filter_and_keeps_the_place() -> None:
    async with settled(replayed(scenes.h200()), (120, 40)) as pilot:
        await press(pilot, "down", "down", "slash", *"floating", "enter", "escape")
        assert "prototyping" in text(pilot)
        assert pilot.app.screen.query_one(Table).cursor == "floating_point"
        await press(pilot, "2", "slash", *"numpy", "enter", "escape")
        assert "cuda:0 torch tf32" in text(pilot) and "[ 3 of 6 ]" in text(pilot)
        assert "esc Back" in text(pilot)
        await press(pilot, "escape")
        assert "[ 1 of 6 ]" in text(pilot)


async def test_back_is_offered_only_where_it_leads_somewhere() -> None:
    async with settled(replayed(scenes.h200()), (120, 40)) as pilot:
        for keys, is_offered in ((("2",), False), (("right",), True), (("left", "left"), False)):
            await press(pilot, *keys)
            assert ("esc Back" in text(pilot)) == is_offered


async def test_escape_from_the_details_leads_to_the_row_that_they_show() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, "enter", "right_square_bracket", "escape")
        assert pilot.app.screen.query_one(Table).cursor == "realtime"
        assert "Real-time inference, small device ─" in text(pilot)


async def test_the_key_of_a_screen_leads_back_from_its_details() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, DetailScreen)
        await press(pilot, "3")
        assert isinstance(pilot.app.screen, AdvisorScreen)


async def test_details_are_of_their_own_row_where_another_has_the_same_case() -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "enter")
        screen, known = app.screen, app.session.report.candidates
        (at,) = [c for c in screen.row.candidates if c.case.id == screen.query_one(Table).cursor]
        known[at.case.id] = dataclasses.replace(at, scenario="another")
        assert screen.chosen is at


async def test_the_log_is_of_the_row_that_is_looked_at() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, (80, 40)) as pilot:
        await press(pilot, "2")
        assert "race        Heavy convolution" in text(pilot)
        await press(pilot, "right_square_bracket")
        assert "answer      Irregular, branching tasks" in text(pilot)
        assert "race        Heavy convolution" not in text(pilot)
        await press(pilot, "escape")
        assert "race        Heavy convolution" in text(pilot)


async def test_page_keys_scroll_the_log_of_a_run() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "2")
        ends = app.session.log[0], app.session.log[-1]
        first, last = (f"{each.at_s:6.1f} s  {each.word}" for each in ends)
        assert last in text(pilot) and "pgdn" not in text(pilot)
        pages = 0
        while first not in text(pilot):
            pages += 1
            assert pages < 30
            await press(pilot, "pageup")
        assert "pgdn" in text(pilot)
        await press(pilot, *["pagedown"] * pages)
        assert last in text(pilot) and "pgdn" not in text(pilot)


async def test_the_wheel_scrolls_the_log_that_follows_the_run_again_from_its_end() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "2")
        seen = [text(pilot)]
        for kind in (MouseScrollUp, MouseScrollDown, MouseScrollDown):
            await pilot._post_mouse_events([kind], "#log", offset=(5, 2))
            await settle(pilot)
            seen.append(text(pilot))
        end, back, *again = seen
        assert back != end and again == [end, end]


async def test_page_keys_leave_out_no_entry_of_the_log_however_many_lines_it_takes() -> None:
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        app.session.log.clear()
        app.session.log.extend(LogLine(n, "word", "long " * 4 * (n % 9)) for n in range(40))
        await press(pilot, "2")
        for key in ("pageup", "pagedown"):
            seen = text(pilot)
            for _ in range(20):
                await press(pilot, key)
                seen += text(pilot)
            assert [n for n in range(40) if f"{n:6.1f} s  word" not in seen] == []


async def test_brackets_wait_in_the_details_of_a_row_that_another_run_has_not_announced() -> None:
    planned = [n for n, e in enumerate(scenes.midway()) if isinstance(e, ev.RacePlanned)]
    feeds = [Feed(scenes.h200()), HeldFeed(scenes.midway()[: planned[2]])]
    app = WorkbenchApp(lambda _: feeds.pop(0), monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        await press(pilot, "end", "enter", "s")
        assert isinstance(app.screen, DetailScreen)
        assert len(app.session.report.rows) == 2 and app.screen.row is None
        before = text(pilot)
        assert "Planning the races" in before
        for key in ("left_square_bracket", "right_square_bracket"):
            await press(pilot, key)
            assert text(pilot) == before


async def test_a_row_is_shown_on_the_advisor_that_was_never_open() -> None:
    request = Request(workloads=("matmul",))
    app = WorkbenchApp(lambda _: Feed(scenes.sweep()), request, monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        assert [*app._screen_stacks] == ["Run"]
        for name in ("matmul[n=512]", "matmul[n=64]"):  # the second time it is
            app.show_row(name)
            await settle(pilot)
            assert isinstance(app.screen, AdvisorScreen)
            assert app.screen.query_one(Table).cursor == name
            await press(pilot, "2")
            assert app.screen.row.plan.scenario == name


async def test_a_row_is_shown_though_a_filter_has_hidden_it() -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "slash", *"conv", "enter")
        app.show_row("branching")  # as the palette does
        await settle(pilot)
        assert app.screen.query_one(Table).cursor == "branching"
        assert "Irregular, branching tasks ─" in text(pilot)
