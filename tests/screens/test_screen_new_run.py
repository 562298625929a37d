"""The form for a new run: keys alone fill it in, and what it starts is what it shows."""

from pathlib import Path

import pytest
import scenes
from new_run import SIZE, choose, finished, tick, walk_to
from stage import click_on, press, replayed, settle, settled, text
from textual.events import Key, Paste

from screens.pages.new_run import NewRunScreen
from screens.state.run_form import OWN, RunForm
from screens.widgets.chips import Chips
from screens.widgets.table import Table
from workbench.planning import scenarios
from workbench.planning.request import Request


async def test_a_wrong_value_is_named_kept_and_corrected_and_then_it_starts() -> None:
    app, started = finished()
    async with settled(app, SIZE) as pilot:
        await choose(pilot, "matmul")
        assert "A GPU is built for dense arithmetic" in text(pilot)
        await press(pilot, "enter", *"64..51x")
        assert "! n takes whole numbers such as 64 or 64,100 or 64..4096" in text(pilot)
        assert " ! n           64..51x" in text(pilot)
        await press(pilot, "down")
        await tick(pilot, "fp32")
        await press(pilot, "enter")
        assert isinstance(app.screen, NewRunScreen), "a wrong form starts nothing"
        assert " n: " in text(pilot) and "64..51x" in text(pilot), "it leads to the field"
        await press(pilot, "end", "backspace", "2")
        assert " ! " not in text(pilot)
        assert "$ workbench run matmul --precision fp32 --set n=64..512" in text(pilot)
        assert "4 rows, up to 2 candidates in each" in text(pilot)
        assert len(started) == 1
        await press(pilot, "enter")
        assert started[1:] == [["run", "matmul", "--precision", "fp32", "--set", "n=64..512"]]
        assert "[2 Run]" in text(pilot)


async def test_choices_show_their_cursor_while_they_have_the_focus() -> None:
    app, _ = finished()
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await choose(pilot, "matmul")
        await walk_to(pilot, "backend")
        chips = app.screen.focused
        assert isinstance(chips, Chips)

        def has_cursor() -> bool:
            return any("$cursor" in str(span.style) for span in chips.render().spans)

        assert has_cursor()
        await press(pilot, "tab")
        assert not has_cursor()


async def test_the_end_of_a_pasted_path_is_in_view() -> None:
    app, _ = finished()
    async with settled(app, (60, 20)) as pilot:
        await choose(pilot, OWN)
        await press(pilot, "tab", "tab")
        app.screen.post_message(Paste("/home/user/a/long/path/to/my/train.py"))
        await settle(pilot)
        (field,) = (line for line in text(pilot).splitlines() if " ! code " in line)
        assert field.endswith("/to/my/train.py")


@pytest.mark.campaign
async def test_a_broken_workload_of_the_users_own_is_named_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train_cnn.py").write_text("import nothing_of_that_name\n")
    monkeypatch.setenv("WORKBENCH_WORKLOADS", str(tmp_path))
    async with settled(replayed(scenes.cpu_only()), (120, 40)) as pilot:
        await press(pilot, "n")
        assert "train_cnn.py cannot be used" in text(pilot)
        await press(pilot, "escape")
        monkeypatch.setenv("WORKBENCH_WORKLOADS", str(tmp_path / "gone"))
        await press(pilot, "n")
        assert any("gone" in str(each.message) for each in pilot.app._notifications)


async def test_every_option_of_the_form_reaches_the_engine() -> None:
    app, started = finished(Request(seed=7, strict=True))
    async with settled(app, SIZE) as pilot:
        await choose(pilot, "train_cnn")
        values = {"image": "32,64", "batch": "8..32", "precision": ("fp32", "bf16")}
        values |= {"backend": ("torch",), "device": ("cpu",), "threads": "1,2"}
        values |= {"effort": ("quick",), "budget": "30"}
        for label, value in values.items():
            await walk_to(pilot, label)
            await (press(pilot, *value) if isinstance(value, str) else tick(pilot, *value))
        assert "(x) quick" in text(pilot)
        await press(pilot, "enter")
    assert started[1] == [
        *["run", "train_cnn", "--quick", "--budget", "30"],
        *["--device", "cpu", "--backend", "torch", "--precision", "fp32", "--precision", "bf16"],
        *["--set", "image=32,64", "--threads", "1,2", "--batch", "8,16,32", "--seed", "7"],
    ]


async def test_keys_that_come_all_at_once_go_where_they_belong() -> None:
    app, started = finished()
    async with settled(app, SIZE) as pilot:
        await press(pilot, "n")
        chosen = ["right", "right", "space"]
        keys = [*"matmul", "enter", *"64", "down", *chosen, "tab", *chosen]
        for key in (*keys, "down", "down", *"12"):
            app.post_message(Key(key, key if len(key) == 1 else " " if key == "space" else None))
        await settle(pilot)
        shown = "matmul --backend torch --precision fp32 --set n=64 --threads 12"
        assert shown in " ".join(text(pilot).split())
        for key in ("x", "enter"):
            app.post_message(Key(key, key if key == "x" else None))
        await settle(pilot)
    assert len(started) == 1, "`12x` is no number: what was typed before enter counts"


async def test_lines_that_were_just_shown_have_their_place_in_the_order_of_fields() -> None:
    app, _ = finished()
    async with settled(app, SIZE) as pilot:
        await press(pilot, "n")
        for key in ("down", "enter", "tab", "shift+tab"):
            app.post_message(Key(key, None))
        await settle(pilot)
        assert "kind: what the code is" in text(pilot)


async def test_letters_find_an_entry_by_its_name_or_title_and_escape_shows_all_again() -> None:
    app, _ = finished()
    async with settled(app, SIZE) as pilot:
        await press(pilot, "n", *"norm")
        assert "none: esc shows all" in text(pilot)
        await press(pilot, *["backspace"] * 3, "o")
        await press(pilot, "backspace", "backspace", *"layers")
        entries = app.screen.query_one(Table)
        assert (entries.cursor, "/layers" in text(pilot)) == ("conv_layers", True)
        assert "bandwidth" not in text(pilot)
        await press(pilot, "escape")
        assert (entries.cursor, "bandwidth" in text(pilot)) == ("conv_layers", True)
        await press(pilot, *"mat")
        assert entries.cursor == "matmul", "not gemm, the matrix product of any shape"
        await press(pilot, "escape", "escape")
        assert not isinstance(app.screen, NewRunScreen)


async def test_choices_are_ticked_by_space_and_click_and_none_means_the_default() -> None:
    app, _ = finished()
    async with settled(app, SIZE) as pilot:
        await choose(pilot, "matmul")
        await press(pilot, "enter", "down")
        assert "← → Option  space Tick" in text(pilot)
        await tick(pilot, "fp32", "bf16")
        assert "[ ] all  [ ] fp64  [x] fp32" in text(pilot)
        assert "--precision fp32 --precision bf16" in text(pilot)
        await tick(pilot, "fp32", "bf16")
        assert "[x] all  [ ] fp64  [ ] fp32" in text(pilot)
        await click_on(pilot, "[ ] numpy")
        assert "--backend numpy" in text(pilot)
        await tick(pilot, "all")
        assert "--backend" not in text(pilot)


async def test_one_choice_excludes_the_others_where_only_one_can_be() -> None:
    app, _ = finished()
    async with settled(app, (80, 32)) as pilot:
        await choose(pilot, OWN)
        await press(pilot, "enter")
        assert "  over" not in text(pilot)
        assert "← → Option" in text(pilot) and "space Tick" not in text(pilot)
        await tick(pilot, "function", "command")
        assert "( ) torch  ( ) function  (x) command" in text(pilot)
        assert "  over" in text(pilot)
        await tick(pilot, "model")
        assert "( ) energy" in text(pilot), "an objective of models"


async def test_enter_starts_with_the_single_choice_under_the_cursor() -> None:
    app, started = finished()
    async with settled(app, (80, 32)) as pilot:
        await press(pilot, "n", "enter")
        await walk_to(pilot, "effort")
        await press(pilot, "right", "right", "left", "enter")
        await press(pilot, "n", "enter")
        await walk_to(pilot, "effort")
        await press(pilot, "left", "enter")
    assert started == [["advise"], ["advise", "--quick"], ["advise"]]


async def test_code_that_is_not_named_yet_is_no_mistake_until_it_is_to_start() -> None:
    app, started = finished()
    async with settled(app, (80, 32)) as pilot:
        await choose(pilot, OWN)
        await press(pilot, "enter")
        assert "--torch takes package.module:build" in text(pilot) and "! " not in text(pilot)
        await press(pilot, "enter")
        assert "! --torch takes package.module" in text(pilot)
        assert " ! code\n" in text(pilot) and " code: " in text(pilot)
    assert len(started) == 1


async def test_code_that_is_typed_just_before_enter_counts() -> None:
    app, started = finished()
    async with settled(app, (80, 32)) as pilot:
        await choose(pilot, OWN)
        await press(pilot, "enter", "tab")
        app.screen.focused.value = "torch.nn:Identity"
        await app.screen.focused.action_submit()  # before a check
        await settle(pilot)
    assert started[1:] == [["advise", "--torch", "torch.nn:Identity"]]


async def test_the_rows_of_the_table_are_chosen_and_open_on_the_advisor() -> None:
    app, started = finished()
    async with settled(app, SIZE) as pilot:
        await press(pilot, "2", "n")
        assert "The scenarios of the advisor" in text(pilot)
        await press(pilot, "enter")
        await tick(pilot, "realtime")
        await press(pilot, "enter")
        assert "[3 Advisor]" in text(pilot)
    assert started == [["advise"], ["advise", "realtime"]]


async def test_too_little_time_for_the_candidates_is_said_with_the_time_that_would_do() -> None:
    app, _ = finished(Request(budget_s=5.0))
    async with settled(app, SIZE) as pilot:
        await press(pilot, "n")
        shown = " ".join(text(pilot).split())
        assert "! 6 rows, up to 6 candidates in each, about 0.24 s per candidate: some may" in shown
        assert "no turn; 20 s would be enough" in shown


async def test_letters_that_come_together_are_checked_once(monkeypatch) -> None:
    app, _ = finished()
    async with settled(app, SIZE) as pilot:
        await choose(pilot, "matmul")
        await press(pilot, "enter")
        checks, check = list[RunForm](), RunForm.check
        monkeypatch.setattr(RunForm, "check", lambda form: checks.append(form) or check(form))
        for typed in ("6", "64", "64,", "64,512"):
            app.screen.focused.value = typed
        await settle(pilot)
        assert "--set n=64,512" in text(pilot) and len(checks) == 1


async def test_a_click_ticks_quick_and_the_key_bar_starts() -> None:
    app, started = finished()
    async with settled(app, (80, 32)) as pilot:
        await press(pilot, "n", "enter")
        await click_on(pilot, "( ) quick")
        assert "$ workbench advise --quick" in text(pilot)
        await press(pilot, "up")
        await click_on(pilot, "Start")
    assert started == [["advise"], ["advise", "--quick"]]


async def test_the_form_survives_every_size_and_shows_the_field_that_is_typed_into() -> None:
    app, _ = finished()
    async with settled(app, SIZE) as pilot:
        await choose(pilot, "matmul")
        await press(pilot, "enter")
        before = text(pilot).splitlines()[-6:]
        for size in ((20, 8), SIZE, (60, 20), SIZE):
            await pilot.resize_terminal(*size)
            await settle(pilot)
        assert text(pilot).splitlines()[-6:] == before
        assert "matmul" in text(pilot)
        await press(pilot, *["tab"] * 6)
        await pilot.resize_terminal(60, 14)
        await settle(pilot)
        focused = app.screen.focused
        assert app.screen.query_one("#fields").region.contains_region(focused.region)


async def test_a_long_error_is_cut_with_an_ellipsis() -> None:
    app, _ = finished(Request(scenarios=("realtine",)))
    async with settled(app, SIZE) as pilot:
        await press(pilot, "n", "enter")
        last = list(scenarios.load())[-1]
        shown = " ".join(text(pilot).split())
        assert "did you mean realtime?" in shown
        assert f"[ ] {last} [x] realtine" in shown
        await pilot.resize_terminal(60, 16)
        await settle(pilot)
        assert "…" in text(pilot)


async def test_question_mark_explains_the_form_and_escape_returns_to_it() -> None:
    app, _ = finished()
    async with settled(app, (120, 60)) as pilot:
        await press(pilot, "n", "question_mark")
        assert "find an entry by name or title" in text(pilot)
        assert "images in the channels_last layout" in text(pilot)
        await press(pilot, "escape")
        assert isinstance(app.screen, NewRunScreen)
