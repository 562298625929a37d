"""Palette, sorting, themes, notices, small terminals, and keys pressed at random."""

import subprocess
import sys

import pytest
import scenes
import simulated_lab
from rich.color import Color as RichColor
from stage import HeldFeed, held, kept, press, replayed, settle, settled, text
from textual.color import Color
from textual.filter import dim_color
from textual.widgets import Input

from screens.app import WorkbenchApp
from screens.keys import PAGES
from screens.terminal import TerminalApp
from screens.theme import DARK, LIGHT, SIXTEEN, themes
from screens.widgets.bars import TopBars
from screens.widgets.filter import FilterBar
from screens.widgets.pane import Pane
from screens.widgets.table import Table
from workbench.files import config
from workbench.records import events as ev
from workbench.records.reason import Warning

SIZE = (120, 40)
BUILD = WorkbenchApp._build  # which other tests do without


def first_rows(app: WorkbenchApp) -> list[str]:
    return [line.key for line in app.screen.query_one(Table)._shown.lines]


async def test_a_switch_is_drawn_at_once() -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await pilot.press("1")
        assert app._batch_count == 0, "nothing holds the picture back"


async def test_a_first_visit_draws_once_and_mounts_no_input(monkeypatch) -> None:
    app, drawn = replayed(scenes.h200()), list[str]()
    real = TopBars.show
    counted = lambda bars, *args: (drawn.append(args[-1]), real(bars, *args))  # noqa: E731
    monkeypatch.setattr(TopBars, "show", counted)
    async with settled(app, SIZE) as pilot:
        drawn.clear()
        await press(pilot, "1", "2", "6")
        assert drawn == ["Hardware", "Run", "Roofline"]
        await press(pilot, "2")
        assert not app.screen.query(Input)
        await pilot.press("slash", "f", "p", "8")
        await settle(pilot)
        assert app.screen.query_one(FilterBar).value == "fp8"


async def test_hidden_screens_are_built_unless_a_run_is_in_progress(monkeypatch) -> None:
    monkeypatch.setattr(WorkbenchApp, "_build", BUILD)
    monkeypatch.setattr("screens.app.BUILD_S", 0.001)
    app, _ = held(scenes.midway())
    async with settled(app, SIZE):
        assert [*app._screen_stacks] == ["Advisor"]
    searched = list[int]()
    monkeypatch.setattr("screens.pages.model._file_lines", lambda: searched.append(1) or [])
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        while len(app._screen_stacks) < len(PAGES):
            await pilot.pause()
        await settle(pilot)
        assert not searched, "the disk is left alone until the screen is shown"
        await press(pilot, "4")
        assert searched
        (hidden,), app.session.looked_at = app._screen_stacks["Run"], "branching"
        await press(pilot, "2")
        assert app.screen is hidden and "[2 Run]" in text(pilot)
        assert "Irregular, branching tasks" in text(pilot)


def test_the_first_picture_needs_nothing_that_reads_a_machine() -> None:
    code = """import sys, screens.app, screens.pages.advisor
from workbench.export.view.answers import rest_text
from workbench.report.report import Report
report = Report()
report.status = "done"
rest_text(report)
print(*sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    late = ("workbench.machine", "workbench.advisor.evidence", "workbench.advisor.crossover")
    late += ("workbench.report.history",)
    assert not [name for name in done.stdout.split() if name.startswith(late)]


@pytest.mark.parametrize(
    ("scene", "keys"),
    [
        (scenes.h200, ()),
        (scenes.h200, ("enter",)),
        (scenes.h200, ("2",)),
        (simulated_lab.done, ()),
    ],
)
async def test_the_cursor_is_drawn_before_the_text_about_its_line(scene, keys, monkeypatch) -> None:
    app, done = replayed(scene()), list[str]()
    async with settled(app, SIZE) as pilot:
        await press(pilot, *keys)
        for name in ("_compositor_refresh", "draw_chosen"):
            real = getattr(app.screen, name)
            after = lambda real=real, name=name: (done.append(name), real())  # noqa: E731
            monkeypatch.setattr(app.screen, name, after)
        await press(pilot, "down")
        assert done[0] == "_compositor_refresh" and "draw_chosen" in done


async def test_a_text_that_becomes_higher_or_lower_needs_one_layout(monkeypatch) -> None:
    app, layouts = replayed(scenes.h200()), list[object]()
    async with settled(app, (120, 90)) as pilot:
        real, text_of = app.screen._refresh_layout, app.screen.query_one("#answer")
        counted = lambda *a, **k: (layouts.append(a), real(*a, **k))  # noqa: E731
        monkeypatch.setattr(app.screen, "_refresh_layout", counted)
        before = text_of.size.height
        await press(pilot, "down")
        assert text_of.size.height != before and len(layouts) == 1


async def test_columns_sort_by_key_and_by_click_and_the_cursor_stays_with_its_row() -> None:
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        given = first_rows(app)
        await press(pilot, "greater_than_sign")
        titles = [app.session.report.rows[name].plan.title for name in first_rows(app)]
        assert titles == sorted(titles) and "Scenario▲" in text(pilot)
        assert app.screen.query_one(Table).cursor == given[0]
        await press(pilot, "equals_sign")
        assert first_rows(app) == sorted(given, key=titles_of(app), reverse=True)
        assert "Scenario▼" in text(pilot)
        await press(pilot, "less_than_sign")
        assert first_rows(app) == given
        await press(pilot, "less_than_sign")
        assert "Pick▲" in text(pilot)
        column = text(pilot).splitlines()[3].index("Lead")
        await pilot.click("Table Titles", offset=(column, 0))
        await settle(pilot)
        assert "Lead▲" in text(pilot)
        ratios = [app.session.report.rows[name].verdict.device_ratio for name in first_rows(app)]
        leads = [max(ratio, 1 / ratio) for ratio in ratios]
        assert leads == sorted(leads)
        await pilot.click("Table Titles", offset=(column, 0))
        await settle(pilot)
        assert first_rows(app)[0] == "floating_point"


def titles_of(app: WorkbenchApp):
    return lambda name: app.session.report.rows[name].plan.title


async def test_drawn_times_sort_too() -> None:
    app = replayed(scenes.h200())
    async with settled(app, (120, 40)) as pilot:
        await press(pilot, "2", "greater_than_sign", "greater_than_sign")
        assert "Time▲" in text(pilot)
        row = app.screen.row
        behind = {name: ratio.value for name, ratio in app.session.behind(row).items()}
        shown = [line.key for line in app.screen.query_one(Table)._shown.lines]
        known = [behind[key] for key in shown if key in behind]
        assert len(known) > 2 and known == sorted(known)


async def test_every_theme_has_our_roles() -> None:
    app = replayed(scenes.h200())
    async with settled(app, (80, 24)) as pilot:
        for name in themes(app):
            app.choose_theme(name)
            await pilot.pause()
            assert {"cpu", "gpu", "rule", "cursor", "cpu-3"} <= {*app.get_css_variables()}, name
            assert "Scenario" in text(pilot)


def _contrast(one: Color, other: Color) -> float:
    def luminance(color: Color) -> float:
        parts = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color.normalized
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [DARK, LIGHT])
def test_every_text_of_our_themes_can_be_read(theme) -> None:
    """WCAG 2.2, 1.4.3: a contrast of at least 4.5."""
    texts = {name: getattr(theme, name) for name in ("primary", "warning", "error", "success")}
    texts |= {k: v for k, v in theme.variables.items() if k.startswith(("cpu", "gpu"))}
    texts["foreground"] = theme.foreground
    grounds = [theme.background, theme.variables["cursor"], theme.panel]
    for name, colour in texts.items():
        for ground in grounds:
            assert _contrast(Color.parse(colour), Color.parse(ground)) >= 4.5, (name, ground)
    for ground in grounds:
        dim = dim_color(RichColor.parse(ground), RichColor.parse(theme.foreground))
        assert _contrast(Color(*dim.get_truecolor()), Color.parse(ground)) >= 4.5, ground
    footer = theme.variables
    ground = Color.parse(footer["footer-background"])
    for part in ("footer-key-foreground", "footer-description-foreground"):
        assert _contrast(Color.parse(footer[part]), ground) >= 4.5, part


def test_sixteen_colours_beat_the_chosen_theme(monkeypatch: pytest.MonkeyPatch) -> None:
    config.assign("theme", "nord")
    monkeypatch.setenv("COLORTERM", "")
    monkeypatch.setenv("TERM", "xterm")
    app = replayed(scenes.h200())
    assert app.theme == SIXTEEN.name
    assert themes(app) == [SIXTEEN.name], "the palette offers no other"


def test_gnu_screen_gets_no_more_than_256_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(scenes.h200()).console.color_system == "truecolor"
    monkeypatch.setenv("STY", "4711.pts-0.host")
    assert replayed(scenes.h200()).console.color_system == "256"


def test_a_theme_that_does_not_exist_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    config.assign("theme", "nrod")
    assert replayed(scenes.h200()).theme == "workbench"
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{config.path()}: unknown theme 'nrod'; did you mean nord?" in said


async def test_the_next_key_goes_before_a_repaint_for_a_second_at_most(monkeypatch) -> None:
    now = [0.0]
    app = WorkbenchApp(lambda _: HeldFeed(scenes.midway()), monotonic=lambda: now[0])
    tick = app._tick
    monkeypatch.setattr(app, "_tick", lambda: None)  # the test looks by itself
    async with settled(app, SIZE) as pilot:
        await press(pilot, "j")
        app._dirty = True
        tick()
        assert app._dirty, "a key was pressed since the last look"
        tick()
        assert not app._dirty
        await press(pilot, "k")
        now[0], app._dirty = 1.5, True
        tick()
        assert not app._dirty, "the picture is old"


@pytest.mark.parametrize("key", ["question_mark", "ctrl+p"])
async def test_the_clock_goes_on_behind_the_help_and_the_palette(key: str) -> None:
    now = [0.0]
    app = WorkbenchApp(lambda _: HeldFeed(scenes.midway()), monotonic=lambda: now[0])
    async with settled(app, SIZE) as pilot:
        assert "49 s left" in text(pilot)
        await press(pilot, key)
        now[0] = 7.0
        app._tick()
        await settle(pilot)
        assert "42 s left" in text(pilot)


async def test_x_asks_once_and_forgets_the_question() -> None:
    now = [0.0]
    feed = HeldFeed(scenes.midway())
    app = WorkbenchApp(lambda _: feed, monotonic=lambda: now[0])
    async with settled(app, SIZE) as pilot:
        await press(pilot, "x")
        (notice,) = app._notifications
        assert feed.said == [] and "x again stops the run" in notice.message
        now[0] = 3.5
        await press(pilot, "x")
        assert feed.said == []
        now[0] = 6.0
        await press(pilot, "x")
        assert feed.said == ["cancel"]
        assert not app._notifications, "the question is answered"


async def test_a_warning_that_the_run_is_not_kept_is_shown_at_once() -> None:
    lost = Warning("no_journal", "this run is not kept", "set XDG_STATE_HOME")
    app, _ = held([*scenes.midway(), ev.WarningRaised(at_s=11.0, warning=lost)])
    async with settled(app, SIZE):
        assert [notice.message for notice in app._notifications] == [lost.one_line]


@pytest.mark.parametrize("long", [True, False])
async def test_the_title_follows_the_run_and_the_end_of_a_long_one_is_announced(
    long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(TerminalApp, "write_to_terminal", lambda _, text: written.append(text))
    monkeypatch.setattr("screens.app.LONG_S", 0.0 if long else 1e9)
    app, _ = held(scenes.midway())
    async with settled(app, SIZE) as pilot:
        assert written[0].startswith("\x1b[22;2t\x1b]2;workbench ") and "%\x07" in written[-1]
        await press(pilot, "x", "x")
    assert written.count("\x1b]2;workbench\x07") == 1
    assert any("\x1b]9;" in each for each in written) is long


def following(asked: list[object]) -> WorkbenchApp:
    """A replay that starts other runs, which it lists in `asked`."""

    def start(request: object) -> HeldFeed:
        asked.append(request)
        return HeldFeed(scenes.midway())

    return WorkbenchApp(start, kept=kept(scenes.h200()), monotonic=lambda: 0.0)


async def test_s_and_n_work_in_a_replay_of_an_own_run() -> None:
    asked: list[object] = []
    app = following(asked)
    async with settled(app, SIZE) as pilot:
        assert "recorded, done" in text(pilot) and "n New" in text(pilot) and not asked
        started = app.session.report.started
        command = started.tool.command
        await press(pilot, "s")
        assert asked == [command] and "racing" in text(pilot)
        assert not app.session.replay
        await press(pilot, "x", "x", "s")
        assert asked == [command, command]


async def test_m_starts_the_run_that_the_answer_proposes() -> None:
    asked: list[object] = []
    app = following(asked)
    async with settled(app, (120, 40)) as pilot:
        proposed = "workbench advise training --quick --budget 120"
        for screen in "26":  # which do not show the proposal
            await press(pilot, screen)
            assert "m Next step" not in text(pilot)
        await press(pilot, "m", "3")
        assert "m Next step" in text(pilot) and f"`{proposed}`" in text(pilot) and not asked
        await press(pilot, "m")
        assert asked == [proposed] and "racing" in text(pilot)
        assert "m Next step" not in text(pilot)


@pytest.mark.parametrize("keys", [(), ("question_mark",), ("n",)])
async def test_a_terminal_that_is_too_small_says_so_in_one_line_and_grows_back(keys) -> None:
    """Also below a page above another."""
    async with settled(replayed(scenes.h200()), (80, 24)) as pilot:
        await press(pilot, *keys)
        before = text(pilot)
        for size in ((20, 5), (30, 8)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            assert text(pilot).strip() == "needs 40x10 or more"
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert text(pilot) == before


@pytest.mark.parametrize("keys", [("question_mark",), ("question_mark", "end"), ("enter",)])
async def test_the_key_for_more_is_named_while_there_is_more(keys: tuple[str, ...]) -> None:
    """After every resize, on a page above the screen as well as on one of its own."""
    seen = set()
    async with settled(replayed(scenes.h200()), (80, 24)) as pilot:
        await press(pilot, *keys)
        for size in ((80, 24), (200, 90), (80, 24), (30, 8), (200, 90), (120, 40), (80, 24)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            if size != (30, 8):
                more = any(pane.has_more for pane in pilot.app.screen.query(Pane))
                assert ("pgdn More" in text(pilot).splitlines()[-1]) == more, size
                seen.add(more)
    assert seen == {True, False}
