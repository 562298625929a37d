"""Pictures of simulated runs at the two sizes that must be right.

After a wanted change: `make snapshots`, and look at every picture.
"""

from collections.abc import Callable
from typing import Any

import own_runs
import pytest
import scenes
import simulated_lab
from stage import held, press, replayed, settle
from textual.app import App
from textual.pilot import Pilot

from screens.state.event_source import EventSourceError

SMALL, LARGE = pytest.param((80, 24), id="80x24"), pytest.param((120, 40), id="120x40")
LARGE_TOO = pytest.param((120, 40), id="120x40", marks=pytest.mark.sizes)
Picture = Callable[..., bool]

at_both_sizes = pytest.mark.parametrize("size", [SMALL, LARGE])
mostly_small = pytest.mark.parametrize("size", [SMALL, LARGE_TOO])  # `make snapshots` has both
when_small = pytest.mark.parametrize("size", [SMALL])


@pytest.fixture
def pictured(snap_compare: Picture, size: tuple[int, int]) -> Callable[..., bool]:
    """`pictured(app, *keys)`: the screen after all events and these keys is as it was."""

    def compare(app: App[Any], *keys: str) -> bool:
        async def before(pilot: Pilot[Any]) -> None:
            await settle(pilot)
            await press(pilot, *keys)

        return snap_compare(app, terminal_size=size, run_before=before)

    return compare


@at_both_sizes
def test_the_advisor_answers_every_kind_of_scenario_on_a_machine_with_an_h200(pictured) -> None:
    assert pictured(replayed(scenes.h200()))


@mostly_small
def test_the_advisor_says_that_there_is_no_gpu_and_still_picks(pictured: Picture) -> None:
    assert pictured(replayed(scenes.cpu_only()), "end")


@mostly_small
def test_the_advisor_fills_up_while_the_fifth_row_is_raced(pictured: Picture) -> None:
    assert pictured(held(scenes.midway())[0], "down", "down", "down", "down")


@mostly_small
def test_the_advisor_marks_a_simulated_gpu_and_an_unstable_row(pictured: Picture) -> None:
    assert pictured(replayed(scenes.simulated(), replay=True), "end")


@mostly_small
def test_the_advisor_keeps_what_a_cancelled_run_measured(pictured: Picture) -> None:
    assert pictured(replayed(scenes.cancelled()), "down", "down")


@when_small
def test_the_advisor_narrowed_down_by_a_filter(pictured: Picture) -> None:
    assert pictured(replayed(scenes.h200()), "slash", *"tra")


@when_small
def test_the_advisor_in_sixteen_colours(pictured: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")
    assert pictured(replayed(scenes.h200()), "end")


@when_small
def test_the_help_over_an_uncoloured_terminal(pictured: Picture, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert pictured(replayed(scenes.h200()), "question_mark")


@at_both_sizes
def test_the_run_screen_shows_the_race_a_skip_and_a_failure(pictured: Picture) -> None:
    assert pictured(held(scenes.midway())[0], "2")


@at_both_sizes
def test_the_run_screen_draws_loss_curves_while_training_is_raced(pictured: Picture) -> None:
    assert pictured(held(scenes.training_midway())[0], "2")


@mostly_small
def test_the_run_screen_counts_the_99th_percentile_where_latency_is_asked(pictured) -> None:
    assert pictured(replayed(scenes.h200()), "2", "right")


@when_small
def test_the_run_screen_when_paused(pictured: Picture) -> None:
    assert pictured(held(scenes.midway())[0], "2", "space")


@at_both_sizes
def test_the_run_screen_draws_the_curves_of_a_sweep(pictured: Picture) -> None:
    assert pictured(replayed(scenes.sweep()), "left_square_bracket", "down", "down")


@mostly_small
def test_the_curves_grow_while_a_sweep_is_raced(pictured: Picture) -> None:
    assert pictured(held(scenes.sweep_at(512))[0])


@when_small
def test_the_curves_of_a_sweep_in_sixteen_colours(pictured: Picture, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")
    assert pictured(replayed(scenes.sweep()))


FP32 = ("down", "f", "f", "space")  # FP64 comes first


@at_both_sizes
def test_the_form_for_a_new_run(pictured: Picture, few_workloads: None) -> None:
    app = replayed(scenes.h200())
    assert pictured(app, "n", "down", "down", "down", "enter", *"64..512", *FP32)


@mostly_small
def test_the_form_names_what_is_wrong(pictured: Picture, few_workloads: None) -> None:
    app = replayed(scenes.h200())
    assert pictured(app, "n", "down", "down", "down", "enter", *"64..51x", *FP32)


@when_small
def test_the_form_in_an_uncoloured_terminal(pictured, few_workloads, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert pictured(
        replayed(scenes.h200()), "n", "down", "down", "down", "enter", *"64", "up", "up"
    )


@at_both_sizes
def test_the_details_of_a_candidate_with_a_profile(pictured: Picture) -> None:
    assert pictured(replayed(scenes.profiled()), "enter")


@mostly_small
def test_a_search_for_the_largest_batch(pictured: Picture) -> None:
    assert pictured(held(scenes.largest_batch())[0])


@mostly_small
def test_the_details_of_a_row_with_its_pick(pictured: Picture) -> None:
    assert pictured(replayed(scenes.h200()), "enter")


@at_both_sizes
def test_the_advisor_knows_the_crossover_the_costs_and_a_device_elsewhere(pictured) -> None:
    assert pictured(replayed(scenes.crossing()))


@mostly_small
def test_the_details_of_a_crossover_scrolled_to_its_curves(pictured: Picture) -> None:
    assert pictured(replayed(scenes.crossing()), "enter", *["pagedown"] * 4)


@mostly_small
def test_the_details_of_a_candidate_that_failed(pictured: Picture) -> None:
    assert pictured(replayed(scenes.h200()), *["down"] * 4, "enter", "end")


@at_both_sizes
def test_the_model_screen_says_what_to_ship_and_why(pictured: Picture) -> None:
    assert pictured(replayed(simulated_lab.done()))


@mostly_small
def test_the_model_screen_of_a_form_that_is_too_far_off_scrolled_down(pictured: Picture) -> None:
    assert pictured(replayed(simulated_lab.done()), "up", "pagedown")


@mostly_small
def test_the_model_screen_while_the_forms_race(pictured: Picture) -> None:
    assert pictured(held(simulated_lab.midway())[0], "down")


@when_small
def test_the_model_screen_while_forms_are_made(pictured: Picture) -> None:
    assert pictured(held(simulated_lab.building())[0])


@when_small
def test_the_model_screen_in_an_uncoloured_terminal(pictured: Picture, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert pictured(replayed(simulated_lab.done()))


@pytest.mark.parametrize("size", [pytest.param((200, 60), id="200x60")])
def test_the_model_screen_side_by_side_where_there_is_room(pictured: Picture) -> None:
    assert pictured(replayed(simulated_lab.done()))


@mostly_small
def test_the_advisor_of_a_model(pictured: Picture) -> None:
    assert pictured(replayed(simulated_lab.done()), "3")


@when_small
def test_the_details_of_a_model_form(pictured: Picture) -> None:
    assert pictured(replayed(simulated_lab.done()), "enter", "pagedown")


@at_both_sizes
def test_the_model_screen_says_where_and_how_to_run_own_code(pictured: Picture) -> None:
    assert pictured(replayed(own_runs.net()))


@mostly_small
def test_the_model_screen_of_a_script_with_its_modules(pictured: Picture) -> None:
    assert pictured(replayed(own_runs.script()))


@when_small
def test_the_model_screen_while_own_code_races(pictured: Picture) -> None:
    assert pictured(held(own_runs.net_racing())[0])


@at_both_sizes
def test_the_hardware_screen_of_a_gpu_server_with_a_hidden_card(pictured: Picture) -> None:
    assert pictured(replayed(scenes.h200()), "1")


@when_small
def test_the_hardware_screen_scrolled_to_its_end(pictured: Picture) -> None:
    assert pictured(replayed(scenes.h200()), "1", "end")


@mostly_small
def test_the_hardware_screen_says_why_there_is_no_gpu(pictured: Picture) -> None:
    assert pictured(replayed(scenes.cpu_only()), "1", "end")


@mostly_small
def test_the_hardware_screen_warns_of_a_gpu_beside_a_cpu_build(pictured: Picture) -> None:
    assert pictured(held(scenes.warned())[0], "1")


@when_small
def test_the_hardware_screen_while_it_is_being_detected(pictured: Picture) -> None:
    assert pictured(held(scenes.h200()[:1])[0], "1")


@mostly_small
def test_a_dead_engine_with_its_last_words(pictured: Picture) -> None:
    failure = EventSourceError(
        "the engine was killed by signal 9 before the run was finished",
        "what was measured is kept: `workbench open last`; s tries again",
        ["Traceback (most recent call last):", '  File "engine.py", line 184', "MemoryError"],
    )
    assert pictured(held(scenes.midway(), failure)[0])
