"""Pictures of simulated runs at the two sizes that must be right.

After a wanted change: `make snapshots`, and look at every picture.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import own_runs
import pytest
import scenes
import simulated_lab
from stage import held, replayed
from textual.app import App

from screens.state.event_source import EventSourceError
from workbench.records import events as ev

Make = Callable[[], App[Any]]
Scene = Callable[[], Sequence[ev.AnyEvent]]

SMALL, LARGE, WIDE = (80, 24), (120, 40), (200, 60)
BOTH, ONLY_SMALL, ONLY_WIDE = (SMALL, LARGE), (SMALL,), (WIDE,)
MOSTLY_SMALL = (SMALL, None)  # `make snapshots` has the large one too
DIED = EventSourceError(
    "the engine was killed by signal 9 before the run was finished",
    "what was measured is kept: `workbench open last`; s tries again",
    ["Traceback (most recent call last):", '  File "engine.py", line 184', "MemoryError"],
)
TO_MATMUL = "n down down down enter"
FP32 = "down right right space"  # FP64 comes first


def done(scene: Scene, *, replay: bool = False) -> Make:
    return lambda: replayed(scene(), replay=replay)


def going(scene: Scene, failure: EventSourceError | None = None) -> Make:
    return lambda: held(scene(), failure)[0]


PICTURES: dict[str, tuple[Make, str, Sequence[tuple[int, int] | None]]] = {
    "advisor_with_every_kind_of_answer": (done(scenes.h200), "", BOTH),
    "advisor_without_a_gpu": (done(scenes.cpu_only), "end", MOSTLY_SMALL),
    "advisor_during_the_fifth_row": (going(scenes.midway), "down down down down", MOSTLY_SMALL),
    "advisor_of_a_simulated_gpu": (done(scenes.simulated, replay=True), "end", MOSTLY_SMALL),
    "advisor_of_a_cancelled_run": (done(scenes.cancelled), "down down", MOSTLY_SMALL),
    "advisor_filtered": (done(scenes.h200), "slash t r a", ONLY_SMALL),
    "advisor_in_sixteen_colours": (done(scenes.h200), "end", ONLY_SMALL),
    "advisor_with_crossover_costs_and_elsewhere": (done(scenes.crossing), "", BOTH),
    "advisor_of_a_model": (done(simulated_lab.done), "3", MOSTLY_SMALL),
    "advisor_of_a_dead_engine": (going(scenes.midway, DIED), "", MOSTLY_SMALL),
    "help_uncoloured": (done(scenes.h200), "question_mark", ONLY_SMALL),
    "run_with_a_skip_and_a_failure": (going(scenes.midway), "2", BOTH),
    "run_with_loss_curves": (going(scenes.training_midway), "2", BOTH),
    "run_with_99th_percentiles": (done(scenes.h200), "2 right", MOSTLY_SMALL),
    "run_paused": (going(scenes.midway), "2 space", ONLY_SMALL),
    "run_with_the_curves_of_a_sweep": (done(scenes.sweep), "left_square_bracket down down", BOTH),
    "run_with_growing_curves": (going(lambda: scenes.sweep_at(512)), "", MOSTLY_SMALL),
    "run_with_curves_in_sixteen_colours": (done(scenes.sweep), "", ONLY_SMALL),
    "run_with_a_search_for_the_largest_batch": (going(scenes.largest_batch), "", MOSTLY_SMALL),
    "form": (done(scenes.h200), f"{TO_MATMUL} 6 4 . . 5 1 2 {FP32}", BOTH),
    "form_with_a_mistake": (done(scenes.h200), f"{TO_MATMUL} 6 4 . . 5 1 x {FP32}", MOSTLY_SMALL),
    "form_uncoloured": (done(scenes.h200), f"{TO_MATMUL} 6 4 up up", ONLY_SMALL),
    "details_with_a_profile": (done(scenes.profiled), "enter", BOTH),
    "details_of_the_pick": (done(scenes.h200), "enter", MOSTLY_SMALL),
    "details_with_the_curves_of_a_crossover": (
        done(scenes.crossing),
        "enter pagedown pagedown pagedown pagedown",
        MOSTLY_SMALL,
    ),
    "details_of_a_failure": (done(scenes.h200), "down down down down enter end", MOSTLY_SMALL),
    "details_of_a_variant": (done(simulated_lab.done), "enter pagedown", ONLY_SMALL),
    "model_with_what_to_ship": (done(simulated_lab.done), "", BOTH),
    "model_side_by_side": (done(simulated_lab.done), "", ONLY_WIDE),
    "model_uncoloured": (done(simulated_lab.done), "", ONLY_SMALL),
    "model_with_a_variant_too_far_off": (done(simulated_lab.done), "up pagedown", MOSTLY_SMALL),
    "model_during_its_race": (going(simulated_lab.midway), "down", MOSTLY_SMALL),
    "model_while_variants_are_built": (going(simulated_lab.building), "", ONLY_SMALL),
    "model_of_own_code": (done(own_runs.net), "", BOTH),
    "model_of_a_script": (done(own_runs.script), "", MOSTLY_SMALL),
    "model_while_own_code_races": (going(own_runs.net_racing), "", ONLY_SMALL),
    "hardware_with_a_hidden_card": (done(scenes.h200), "1", BOTH),
    "hardware_at_its_end": (done(scenes.h200), "1 end", ONLY_SMALL),
    "hardware_without_a_gpu": (done(scenes.cpu_only), "1 end", MOSTLY_SMALL),
    "hardware_with_a_gpu_and_a_cpu_build": (going(scenes.warned), "1", MOSTLY_SMALL),
    "hardware_during_detection": (going(lambda: scenes.h200()[:1]), "1", ONLY_SMALL),
}


def sized() -> Iterator[Any]:
    for name, (_, _, sizes) in PICTURES.items():
        for size in sizes:
            width, height = size or LARGE
            marks = () if size else pytest.mark.sizes
            yield pytest.param(name, (width, height), id=f"{name}-{width}x{height}", marks=marks)


@pytest.mark.parametrize(("name", "size"), sized())
def test_a_screen_is_as_it_was(name: str, pictured, monkeypatch, request) -> None:
    make, keys, _ = PICTURES[name]
    if name.startswith("form"):
        request.getfixturevalue("few_workloads")
    if name.endswith("uncoloured"):
        monkeypatch.setenv("NO_COLOR", "1")
    if name.endswith("in_sixteen_colours"):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("COLORTERM")
    assert pictured(make(), *keys.split())
