"""A narrow screen leaves out what matters least, and cuts no sentence before its point."""

from collections.abc import Callable
from pathlib import Path

import pytest
import scenes
from stage import Feed, loaded, opened, press, replayed, settled, text

from screens.app import WorkbenchApp
from screens.state.session import Session
from workbench.export.view.glossary import words_on
from workbench.export.view.tables import VARIES
from workbench.records.verdict import CONFIDENCES
from workbench.report.report import Report
from workbench.report.run_files import OpenedRun

SMALL = (60, 20)


SECOND = ("right_square_bracket",)  # leads to the second row


async def shown(scene: Callable[[], list], *keys: str, size: tuple[int, int] = SMALL) -> list[str]:
    async with settled(replayed(scene()), size) as pilot:
        await press(pilot, *keys)
        await loaded(pilot)
        return text(pilot).splitlines()


def in_one(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


async def test_the_key_for_more_text_stays_longer_than_the_one_that_copies() -> None:
    for keys in ((), ("enter",)):
        bar = (await shown(scenes.h200, *keys))[-1]
        assert "pgdn More" in bar and "Copy" not in bar
    assert "c Copy" in (await shown(scenes.h200, size=(100, 24)))[-1]


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_the_end_of_a_run_is_said_without_a_cut(width: int) -> None:
    (line,) = [x for x in await shown(scenes.h200, size=(width, 24)) if "GPU in 4 of 6" in x]
    assert "either in 1 of 6." in line and "…" not in line and "n: " in line


async def test_medians_are_shown_while_no_99th_percentile_is_known() -> None:
    lines = await shown(scenes.h200, "2")
    (head,) = [line for line in lines if line.startswith(" Candidate")]
    assert "Median" in head and "p99" not in head
    assert any(
        "p99" in line and "Median" in line
        for line in await shown(scenes.h200, "2", *SECOND, size=(120, 40))
    )


async def test_the_end_of_a_long_table_is_in_view_and_a_cut_log_has_one_ellipsis() -> None:
    lines = await shown(scenes.h200, "2", "end")
    assert any(line.startswith("▌cuda:0 torch fp16 nhwc loaders=4") for line in lines)
    assert any(line.endswith("…") for line in lines)
    assert not any("……" in line for line in lines)


async def test_the_ratio_to_the_best_stays_where_its_plot_has_no_room() -> None:
    lines = await shown(scenes.cpu_only, "2")
    assert ["Candidate", "Time", "Median", "State"] in [line.split() for line in lines]
    assert any("cpu torch bf16 t2" in line and " 1.25x " in line for line in lines)


async def test_where_the_lead_changes_is_wrapped_where_there_is_room() -> None:
    said = in_one(await shown(scenes.sweep))
    assert "overtakes cpu numpy fp32 t16 between n 64 and 128" in said
    assert "overtakes cpu torch bf16 t16 between n 128 and 256" in said


async def test_the_roofline_counts_the_candidates_that_it_does_not_draw() -> None:
    said = in_one(await shown(scenes.h200, "6", *SECOND))
    assert "10 more have no known ceiling or rate" in said
    assert "under the measured ceilings ─" in said
    assert "2 more have" in in_one(await shown(scenes.cpu_only, "6", *SECOND))
    lines = await shown(scenes.h200, "6", *SECOND, size=(80, 24))
    assert any(line.endswith("4.7% of 2.00 TFLOP/s (compute)") for line in lines)


async def test_no_filter_is_offered_for_no_runs(tmp_path: Path) -> None:
    lines = await shown(scenes.h200, "5")
    assert "No run is kept yet" in in_one(lines) and "Filter" not in lines[-1]


async def test_a_folder_without_a_model_says_so_in_full(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = await shown(scenes.h200, "4")
    assert any("two levels below" in line for line in lines)
    said = in_one(lines)
    assert "n starts a run of any ONNX file" in said and "file below" not in said


async def test_the_help_names_our_own_keys_and_the_short_words_of_the_tables() -> None:
    said = in_one(await shown(scenes.h200, "2", "question_mark", size=(200, 70)))
    assert "ctrl+z" in said and "command prompt" not in said
    assert "ort onnxruntime" in said and "p99 99th percentile" in said and "warm its times" in said
    assert "curve symbols" in said
    assert "curve symbols" not in in_one(await shown(scenes.h200, "question_mark", size=(200, 70)))


def test_the_help_explains_every_word_of_confidence() -> None:
    assert dict(words_on("Advisor")).keys() >= {*CONFIDENCES, VARIES, "alone"}
    for page in ("Model", "Runs"):
        assert dict(words_on(page)).keys() >= {*CONFIDENCES}


async def test_a_temperature_has_its_unit() -> None:
    assert "612 W, 58 °C" in in_one(await shown(scenes.h200, "enter", size=(120, 40)))


async def test_the_form_shows_the_titles_in_full_at_120_columns() -> None:
    lines = in_one(await shown(scenes.h200, "n", size=(120, 40)))
    assert "Conv net inference, one picture at a time" in lines
    assert "Handwritten digits, time to accuracy" in lines


async def test_the_log_begins_with_the_last_entry_or_is_left_out_with_its_title() -> None:
    *_, title, last, _ = await shown(scenes.h200, "2", size=(80, 27))
    assert title.startswith(" Log ") and " s  answer " in last and last.endswith("…")
    assert not any(
        line.startswith(" Log ") for line in await shown(scenes.h200, "2", size=(80, 26))
    )
    assert "no events: the row has not begun" in in_one(await shown(scenes.midway, "2"))
    document = Session.of(OpenedRun(Report.of(scenes.h200()), []))
    app = WorkbenchApp(lambda _: Feed([]), kept=document, starts=False)
    async with settled(app, (80, 40)) as pilot:
        await press(pilot, "2")
        assert "Candidate " in text(pilot) and " Log " not in text(pilot)


async def test_a_command_that_takes_several_lines_is_shown_whole() -> None:
    async with opened("advise-command").run_test() as pilot:
        for key in "4", "3":
            await press(pilot, key)
            assert "count=100000' --over size=512,4096 --budget 5" in in_one([text(pilot)])


async def test_the_smallest_form_has_room_for_choices_and_texts() -> None:
    async with settled(replayed(scenes.h200()), (40, 10)) as pilot:
        await press(pilot, "n", "home", "down")
        assert "▌your own co… " in text(pilot)
        await press(pilot, "enter")
        assert "kind      (x) torch" in text(pilot)
        await press(pilot, "down", *"own:build")
        assert "code      own:build" in text(pilot)
