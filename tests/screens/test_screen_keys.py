"""Every key does what the footer says, in every state of a run."""

from collections.abc import Callable

import pytest
import scenes
from stage import Feed, HeldFeed, held, press, replayed, settle, settled, text

from screens.app import WorkbenchApp
from screens.pages.detail import DetailScreen
from screens.pages.help import HelpScreen
from screens.state.event_source import EventSourceError
from screens.widgets.table import Table
from workbench.planning.questions import ModelQuestion
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.text import units

SIZE = (80, 24)


async def test_one_two_three_switch_screens_and_the_tabs_say_which() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        assert "[3 Advisor]" in text(pilot)
        await press(pilot, "1")
        assert "[1 Hardware]" in text(pilot)
        assert "AMD EPYC 9654 96-Core Processor" in text(pilot)
        await press(pilot, "2")
        assert "[2 Run]" in text(pilot)
        assert "Candidate" in text(pilot)
        await press(pilot, "3")
        assert "  Conf" in text(pilot)


async def test_a_click_on_a_tab_switches_too() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await pilot.click("#tabs", offset=(13, 0))
        await settle(pilot)
        assert "[1 Hardware]" in text(pilot)


@pytest.mark.parametrize("part", ["?", "Help"])
async def test_a_click_on_the_key_bar_presses_the_key(part: str) -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        column = text(pilot).splitlines()[-1].index(part)
        await pilot.click(offset=(column, SIZE[1] - 1))
        await settle(pilot)
        assert isinstance(app.screen, HelpScreen)


async def test_a_double_click_opens_a_line_and_selects_no_text() -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        table = app.screen
        await pilot.click("Table Lines", offset=(5, 2), times=2)
        await settle(pilot)
        assert isinstance(app.screen, DetailScreen)
        assert not table.selections


async def test_s_starts_a_run_only_when_none_is_going() -> None:
    feeds: list[HeldFeed] = []

    def factory(_: Request) -> HeldFeed:
        feeds.append(HeldFeed(scenes.midway()))
        return feeds[-1]

    app = WorkbenchApp(factory, monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        assert app.session.report.current_row == "convolution"
        await press(pilot, "s")
        assert len(feeds) == 1
        await press(pilot, "x", "x", "s")
        assert len(feeds) == 2
        assert app.session.phase == "running"


async def test_space_pauses_and_resumes_and_the_footer_says_which() -> None:
    app, feed = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        assert "space Pause" in text(pilot)
        await press(pilot, "space")
        assert feed.said == ["pause"]
        assert "paused" in text(pilot)
        assert "space Resume" in text(pilot)
        await press(pilot, "space")
        assert feed.said == ["pause", "resume"]
        assert "racing" in text(pilot)


async def test_x_stops_the_run_and_keeps_what_was_measured() -> None:
    app, feed = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "x", "x")
        assert feed.said == ["cancel"]
        assert "cancelled" in text(pilot)
        answered = app.session.report.rows["branching"].verdict
        assert units.ratio(max(answered.device_ratio, 1 / answered.device_ratio)) in text(pilot)
        assert feed.closed
        await press(pilot, "q")
    assert app.return_code == 130


async def test_c_copies_the_command_of_the_chosen_row_and_shows_it() -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "down", "down", "c")
        assert app.clipboard == "workbench advise floating_point --quick --budget 60"
        notices = [notice.message for notice in app._notifications]
        assert notices == [app.clipboard]
        await press(pilot, "2", "right_square_bracket", "c")
        assert app.clipboard == "workbench advise prototyping --quick --budget 60"


async def test_a_row_without_a_verdict_still_has_a_command() -> None:
    app, _ = held(scenes.training_midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "c")
        assert app.clipboard == "workbench run train_cnn --mode plain"


async def test_enter_opens_the_details_of_the_pick_and_escape_leads_back() -> None:
    async with settled(replayed(scenes.h200()), (120, 60)) as pilot:
        await press(pilot, "enter")
        shown = text(pilot)
        for part in ("Check / limit", "race        decided after", "pick", "compile 610 ms"):
            assert part in shown, part
        await press(pilot, "escape")
        assert "  Conf" in text(pilot)


async def test_details_of_a_failed_candidate_name_reason_and_remedy() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, *["down"] * 4, "enter", "end")
        assert "killed by SIGKILL" in text(pilot)
        assert "remedy" in text(pilot)


async def test_slash_filters_rows_enter_keeps_and_escape_clears() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, "slash", *"conv")
        assert "convolution " in text(pilot)
        assert "prototyping" not in text(pilot)
        assert "enter Keep  esc Clear filter" in text(pilot)
        await press(pilot, "enter", "enter")
        assert "Heavy convolution layers ─" in text(pilot)
        await press(pilot, "escape", "escape")
        assert "prototyping" in text(pilot)


async def test_a_filter_that_matches_nothing_says_so() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, "2", "slash", *"quantum")
        assert "nothing matches the filter" in text(pilot)
        await press(pilot, "escape")
        assert "cpu torch bf16 nhwc t16" in text(pilot)


async def test_letters_typed_into_the_filter_are_no_commands() -> None:
    app, feed = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "slash", "x", "q", "s")
        assert feed.said == []
        assert app.is_running


@pytest.mark.parametrize(
    ("request_", "mode"),
    [
        (Request(), "Advisor"),
        (Request(scenarios=("realtime",)), "Advisor"),
        (Request(workloads=("matmul",)), "Run"),
        (Request(question=ModelQuestion("m.onnx")), "Model"),
    ],
)
async def test_a_run_begins_on_its_own_screen(request_: Request, mode: str) -> None:
    app = WorkbenchApp(lambda _: HeldFeed([]), request_, monotonic=lambda: 0.0)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert app.current_mode == mode
        assert len(app._screen_stacks) == 1  # no other was shown before


async def test_the_help_has_the_keys_of_the_screen_that_it_was_asked_on() -> None:
    app = replayed(scenes.h200())
    async with settled(app, (120, 60)) as pilot:
        await press(pilot, "question_mark")
        assert "mark a run as A" not in text(pilot)
        await press(pilot, "escape", "5", "question_mark")
        assert "mark a run as A" in text(pilot)
        await press(pilot, "escape", "1", "question_mark")
        assert "copy the command" not in text(pilot), "there is no row"
        await press(pilot, "escape", "6", "question_mark")
        assert "pgdn" not in text(pilot).partition(" Words ")[0], "no text scrolls there"
        await press(pilot, "escape", "2", "enter", "question_mark")
        assert "back to the previous screen" in text(pilot)
        assert "back from an opened run" not in text(pilot), "the details close first"


@pytest.mark.parametrize("key", ["escape", "q", "question_mark", "enter"])
async def test_question_mark_helps_and_these_keys_close_the_help(key: str) -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "question_mark")
        assert isinstance(app.screen, HelpScreen) and "filter the table" in text(pilot)
        await press(pilot, key)
        assert not isinstance(app.screen, HelpScreen) and not app._exit


async def test_ctrl_q_stops_the_run_and_quits() -> None:
    app, feed = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        await pilot.press("ctrl+q")
    assert feed.said == ["cancel"] and app.return_code == 130


async def test_page_keys_scroll_the_text_below_the_table() -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, "enter")
        assert "decided after" not in text(pilot)
        pages = 0
        while "decided after" not in text(pilot):
            pages += 1
            assert pages < 10
            await press(pilot, "pagedown")
        await press(pilot, *["pageup"] * pages)
        assert "decided after" not in text(pilot)


async def test_the_filter_finds_words_of_the_table_and_the_titles_of_its_short_names() -> None:
    async with settled(replayed(scenes.h200()), (120, 40)) as pilot:
        await press(pilot, "slash", *"pytorch")
        assert "nothing matches" not in text(pilot)
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, "slash", *"irregular")
        assert "branching " in text(pilot) and "training " not in text(pilot)


async def test_the_table_names_a_scenario_alike_before_and_after_its_answer() -> None:
    for events in ([e for e in scenes.h200() if e.at_s < 1.0], scenes.h200()):
        async with settled(held(events)[0], SIZE) as pilot:
            assert "branching  " in text(pilot), events[-1]


async def test_a_dead_engine_shows_its_last_words_and_s_tries_again() -> None:
    failures: list[EventSourceError | None] = [
        EventSourceError(
            "the engine was killed by signal 9", "try again", ["Traceback", "MemoryError"]
        ),
        None,
    ]
    app = WorkbenchApp(lambda _: HeldFeed(scenes.midway(), failures.pop(0)), monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        for part in ("engine died", "killed by signal 9", "try again", "MemoryError"):
            assert part in text(pilot), part
        assert text(pilot).count("killed by signal 9") == 1
        assert app.session.exit_code == 1
        await press(pilot, "s")
        assert "MemoryError" not in text(pilot)
        assert app.session.phase == "running"


async def test_an_event_that_does_not_fit_ends_the_run_not_the_app() -> None:
    events = [event for event in scenes.h200() if not isinstance(event, ev.RacePlanned)]
    app = replayed(events)
    async with settled(app, SIZE) as pilot:
        assert "does not fit the run" in text(pilot)
        assert app.is_running


async def test_a_replay_offers_no_start_and_says_that_it_is_recorded() -> None:
    app = replayed(scenes.h200(), replay=True)
    async with settled(app, SIZE) as pilot:
        assert "recorded, done" in text(pilot)
        assert "s Start" not in text(pilot) and "another run" not in text(pilot)
        await press(pilot, "s", "q")
    assert app.return_code == 0


async def test_a_plain_run_opens_on_the_race_and_owes_no_verdict() -> None:
    async with settled(replayed(scenes.training_midway(), replay=True), (120, 40)) as pilot:
        assert "[2 Run]" in text(pilot)
        await press(pilot, "3")
        assert "fastest: cuda:0 torch" in text(pilot)
        assert "$ workbench run train_cnn" in text(pilot)


@pytest.mark.parametrize("events", [scenes.cpu_only, scenes.h200, scenes.simulated])
async def test_no_width_cuts_a_verdict(events: Callable[[], list[ev.AnyEvent]]) -> None:
    app = WorkbenchApp(lambda _: Feed(events()), monotonic=lambda: 0.0)
    async with app.run_test(size=(60, 24)) as pilot:
        for width in (60, 72, 80, 100, 120, 200):
            await pilot.resize_terminal(width, 24)
            await settle(pilot)
            for row in app.session.report.rows.values():
                word = {"cpu": "CPU", "gpu": "GPU"}.get(row.verdict.choice, row.verdict.choice)
                marks = [" sim"] if row.verdict.basis == "simulated" else []
                starts = f"{row.plan.title[:12]}", f"{row.plan.scenario} "
                lines = [line.lstrip(" ▌") for line in text(pilot).splitlines() if "──" not in line]
                line = next(line for line in lines if line.startswith(starts))
                assert word + "".join(marks) in line, (width, line)
                assert f" {row.verdict.confidence} " in line, (width, line)


async def test_without_a_gpu_the_table_tells_how_far_each_pick_is_ahead() -> None:
    app = replayed(scenes.cpu_only())
    async with settled(app, SIZE) as pilot:
        assert "no GPU" not in text(pilot).split("Scenario")[1]
        verdicts = [row.verdict for row in app.session.report.rows.values() if row.verdict]
        for width in (60, 80, 100):
            await pilot.resize_terminal(width, 24)
            await settle(pilot)
            for verdict in verdicts:
                lines = [line for line in text(pilot).splitlines() if "──" not in line]
                names = verdict.title[:12], f"{verdict.scenario} "
                line = next(li for li in lines if li.lstrip(" ▌").startswith(names))
                interval = verdict.pick_ratio_ci95 if width > 80 else None
                lead = "  ".join(filter(None, units.ratio_parts(verdict.pick_ratio, interval)))
                assert lead in line
                assert (verdict.pick or "").split("/")[2].replace("onnxruntime", "ort") in line


async def test_the_footer_names_the_keys_that_work() -> None:
    """From the first moment of a start, in the details, over the help, and while there is more."""
    feeds = [HeldFeed([]), HeldFeed(scenes.midway())]
    app = WorkbenchApp(lambda _: feeds.pop(0), monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        assert text(pilot).splitlines()[-1].startswith(" 1-6 Screens  space Pause  x Stop")
        await press(pilot, "x", "x", "s")  # the rows of the new run come before the next key
        await press(pilot, "down", "enter")
        footer = text(pilot).splitlines()[-1]
        assert footer.startswith(" pgdn More  esc Back  [ ] Row  c Copy")
        await press(pilot, *["pagedown"] * 40)
        assert "pgdn" not in text(pilot).splitlines()[-1], "all was read"
        await press(pilot, "question_mark")
        assert text(pilot).splitlines()[-1] == " pgdn More  esc Close"


async def test_a_case_that_is_being_loaded_says_so() -> None:
    events: list[ev.AnyEvent] = []
    for event in scenes.training_midway():
        events.append(event)
        if isinstance(event, ev.RaceStarted):
            break
    first = next(event for event in events if isinstance(event, ev.RacePlanned)).cases[0].id
    app, _ = held([*events, ev.CasePreparing(at_s=1.0, case=first)])
    async with settled(app, SIZE) as pilot:
        await press(pilot, "2")
        assert "> loading" in text(pilot)
        assert "> ready" not in text(pilot)


@pytest.mark.parametrize(
    ("there", "back"), [("j", "k"), ("G", "g"), ("end", "home"), ("down", "up")]
)
async def test_letters_move_the_cursor_as_the_arrows_do(there: str, back: str) -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        table = pilot.app.screen.query_one(Table)
        first = table.cursor
        await press(pilot, there)
        assert table.cursor != first
        await press(pilot, back)
        assert table.cursor == first


@pytest.mark.parametrize(
    ("screen", "down", "up"),
    [
        *(("enter", *keys) for keys in (("ctrl+d", "ctrl+u"), ("pagedown", "pageup"))),
        *(("1", *keys) for keys in (("j", "k"), ("G", "g"))),
        ("question_mark", "ctrl+d", "ctrl+u"),
    ],
)
async def test_the_text_of_a_screen_scrolls(screen: str, down: str, up: str) -> None:
    async with settled(replayed(scenes.h200()), SIZE) as pilot:
        await press(pilot, screen)
        before = text(pilot)
        await press(pilot, down)
        assert text(pilot) != before
        await press(pilot, up)
        assert text(pilot) == before
