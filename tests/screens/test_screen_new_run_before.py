"""The form for a new run and what was there before it: runs, devices and files of the user."""

import machines
import pytest
import scenes
from new_run import SIZE, choose, finished, tick
from stage import Feed, HeldFeed, held, kept, press, replayed, settle, settled, text

from screens.app import WorkbenchApp
from screens.pages.new_run import NewRunScreen
from screens.state.event_source import WatchSource
from screens.state.run_form import OWN
from workbench import catalog
from workbench.planning.questions import OwnQuestion
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.report.report import Report


async def test_the_form_begins_with_the_run_before_and_escape_leaves_it_as_it_was() -> None:
    before = Request(workloads=("matmul",), settings=("n=256",), devices=("cpu",), budget_s=9.5)
    app, started = finished(before)
    async with settled(app, SIZE) as pilot:
        await press(pilot, "n")
        assert "$ workbench run matmul --budget 9.5 --device cpu --set n=256" in text(pilot)
        await press(pilot, "enter", *"0", "escape")
        assert not isinstance(app.screen, NewRunScreen)
        await press(pilot, "s")
    assert started == [before.arguments(), before.arguments()]


async def test_what_was_typed_stays_while_other_workloads_are_looked_at() -> None:
    app, _ = finished()
    async with settled(app, SIZE) as pilot:
        await choose(pilot, "matmul")
        await press(pilot, "enter", *"128", "shift+tab", "down")
        assert "--set" not in text(pilot)
        await press(pilot, "up")
        assert "--set n=128" in text(pilot)


async def test_a_device_that_is_not_here_is_noticed_once_the_machine_is_known() -> None:
    app, _ = finished(Request(devices=("cuda:0",)))
    async with settled(app, SIZE) as pilot:
        await choose(pilot, "matmul")
        assert "[ ] all  [ ] cpu  [x] cuda:0" in text(pilot)
        assert "! no device cuda:0 here. Choices: cpu" in text(pilot)
        await press(pilot, "enter", *["down"] * 3)
        await tick(pilot, "cuda:0")
        assert "no device" not in text(pilot)


async def test_it_is_offered_neither_during_a_run_nor_in_a_replay() -> None:
    for app in (held(scenes.midway())[0], replayed(scenes.h200(), replay=True)):
        async with settled(app, SIZE) as pilot:
            assert "n New" not in text(pilot)
            await press(pilot, "n")
            assert not isinstance(app.screen, NewRunScreen)


async def test_a_new_run_closes_the_details_of_the_old_one() -> None:
    feeds = [Feed(scenes.cpu_only()), HeldFeed(scenes.midway()[:1])]
    app = WorkbenchApp(lambda _: feeds.pop(0), monotonic=lambda: 0.0)
    async with settled(app, SIZE) as pilot:
        await press(pilot, "enter", "2", "enter")
        await choose(pilot, "launch")
        await press(pilot, "enter", "enter")
        assert "[2 Run]" in text(pilot)
        assert "Planning the races" in text(pilot)


async def test_a_workload_that_cannot_be_used_says_why(tmp_path_factory, monkeypatch) -> None:
    folder = tmp_path_factory.mktemp("mine")
    (folder / "aaa_mine.py").write_text("raise RuntimeError('not today')\n")
    monkeypatch.setenv(catalog.ENV, str(folder))
    app, started = finished()
    async with settled(app, (120, 40)) as pilot:
        await choose(pilot, "aaa_mine")
        assert "cannot be used: RuntimeError: not today" in text(pilot)
        await press(pilot, "enter", "enter")
        assert isinstance(app.screen, NewRunScreen)
    assert len(started) == 1


async def test_ones_own_code_is_raced_on_the_model_screen() -> None:
    feeds: list[Request] = []

    def feed(asked: Request) -> HeldFeed:
        feeds.append(asked)
        return HeldFeed([] if len(feeds) > 1 else scenes.cpu_only())

    app = WorkbenchApp(feed, monotonic=lambda: 0.0)
    async with settled(app, (80, 32)) as pilot:
        await choose(pilot, OWN)
        assert "--torch takes package.module:build" in text(pilot)
        assert "! " not in text(pilot)
        await press(pilot, "enter")
        await tick(pilot, "function")
        await press(pilot, "tab", *"torch.nn:Identity")
        assert "$ workbench advise --function torch.nn:Identity" in text(pilot)
        await press(pilot, "enter")
        assert "[4 Model]" in text(pilot)
        assert app.session.subject == "torch.nn:Identity"
    assert feeds[1:] == [Request(question=OwnQuestion("function", "torch.nn:Identity"))]


@pytest.mark.parametrize("opens", [True, False], ids=["another is opened", "none is opened"])
@pytest.mark.parametrize("raced", ["live", "watched", "recorded"])
async def test_the_form_offers_what_is_here_whatever_an_old_run_had(raced, opens) -> None:
    watched: WatchSource | None = None
    if raced == "watched":
        machine, software = machines.cpu_server()
        known = ev.HardwareDetected(at_s=0.0, machine=machine, software=software)
        watched = WatchSource([known], lambda wait: iter(lambda: wait(60.0), 0))
    app = WorkbenchApp(
        lambda _: Feed(scenes.cpu_only()),
        kept=kept(scenes.h200()) if raced == "recorded" else None,
        watched=watched,
        monotonic=lambda: 0.0,
    )
    async with settled(app, SIZE) as pilot:
        if opens:
            app.show_run(kept(scenes.h200()))
            await settle(pilot)
            assert app.session is not app.raced and app.session.replay
        await choose(pilot, "matmul")
        unknown = raced == "recorded"  # nothing was detected here
        line = next(line for line in text(pilot).splitlines() if " device " in line)
        assert line.endswith("[x] all  [ ] cpu" + "  [ ] gpu" * unknown)
        here, form = Report.of(scenes.cpu_only()), app.screen._form
        assert form.machine == (None if unknown else here.machine)
        assert (form.installed is None) == unknown
