"""The page that `e` writes: into a new file of this folder, or a line that says why not."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest
import scenes
from msgspec.structs import replace
from stage import held, press, replayed, settle, settled, text

from screens.pages.palette import Entries
from workbench.export.formats import file_text
from workbench.report.run_files import open_run

SIZE = (80, 24)


async def test_e_writes_the_page_of_this_run_into_a_new_file(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    app, _ = held(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "e", "e")
        name = f"workbench-{app.session.report.started.id}"
        files = [tmp_path / f"{name}.html", tmp_path / f"{name}-2.html"]
        assert {*tmp_path.iterdir()} == {*files}
        assert [notice.message for notice in app._notifications] == [str(file) for file in files]
        for file in files:
            assert file.read_text() == file_text("html", app.session.report)


@pytest.mark.parametrize("events", [None, 3], ids=["during a race", "before the first sample"])
async def test_e_writes_nothing_while_a_run_lasts(tmp_path, monkeypatch, events) -> None:
    monkeypatch.chdir(tmp_path)
    app, _ = held(scenes.midway()[:events])
    async with settled(app, (120, 40)) as pilot:
        assert "e Export" not in text(pilot)
        await press(pilot, "e")
        assert [*tmp_path.iterdir()] == []


async def test_e_says_in_one_line_why_nothing_was_written(tmp_path, monkeypatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        await press(pilot, "e")
        (notice,) = app._notifications
        assert notice.message.endswith("cannot be written: No such file or directory")
        assert notice.severity == "error"


async def test_e_in_a_folder_that_may_not_be_searched_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    def locked(path: object, *_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        with monkeypatch.context() as patch:
            for name in ("stat", "lstat", "open"):
                patch.setattr(os, name, locked)
            app.action_export()
        await settle(pilot)
        (notice,) = app._notifications
        assert notice.message.endswith("cannot be written: Permission denied")


async def test_e_stays_in_this_folder_whatever_a_document_calls_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, *rest = scenes.h200()
    app = replayed([replace(first, id="/../../[b]\x1b" + 300 * "x"), *rest])
    async with settled(app, SIZE) as pilot:
        await press(pilot, "e")
        (file,) = tmp_path.iterdir()
        assert file.name.startswith("workbench-________b__x")


async def test_the_palette_writes_a_document_that_opens_again(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = replayed(scenes.h200())
    async with settled(app, SIZE) as pilot:
        (entry,) = (e for e in Entries(app.screen)._entries() if e.text == "Export: json")
        entry.act()
        await settle(pilot)
    (file,) = tmp_path.glob("workbench-*.json")
    read, shown = open_run(str(file)).report, app.session.report
    assert [row.verdict for row in read.rows.values()] == [
        row.verdict for row in shown.rows.values()
    ]
    assert read.started.id == shown.started.id
