"""The live view of the machine, from given snapshots."""

import math
import threading
from collections.abc import Callable, Iterator

import machines
import scenes
from stage import HeldFeed, at_both_sizes, held, press, settle, settled, text
from textual.pilot import Pilot

from screens.app import WorkbenchApp
from screens.state.event_source import WatchSource
from workbench.export.view.machine import clock_events
from workbench.machine.snapshots import Snapshot
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.records.machine import GpuReading, HostReading, Machine, Software
from workbench.records.reason import Reason
from workbench.report.report import Report


def course(machine: Machine, count: int, *, lost: bool) -> Iterator[Snapshot]:
    """A GPU that goes to work, and one reading that is not given."""
    for number in range(count):
        wave = 0.5 + 0.5 * math.sin(number / 9)
        host = HostReading(
            100 * wave, 2400 + 900 * wave, None, None, 2**34, {"power_w": "only root may read it"}
        )
        gpus = [
            GpuReading(
                index=gpu.index,
                utilization_percent=97 * wave,
                memory_used_bytes=(gpu.memory_total_bytes or 0) // 4,
                power_w=90 + 560 * wave,
                temperature_c=34 + 30 * wave,
                sm_clock_mhz=345 + 1600 * wave,
                clock_event_reasons=["sw_power_cap"] if wave > 0.9 else ["gpu_idle"],
            )
            for gpu in machine.gpus
            if gpu.index is not None
        ]
        yield Snapshot("2026-11-21T12:00:00.000Z", host, gpus)
    for _ in range(3 if lost else 0):
        gap = Reason("nvml_crashed", "the process that asks NVML died of SIGSEGV")
        yield Snapshot("2026-11-21T12:02:00.000Z", host, [], gap)


class Watch:
    """The screens on these readings, and a run that they may start."""

    def __init__(
        self, found: tuple[Machine, Software], count: int = 90, *, lost: bool = False
    ) -> None:
        self.started: list[Request | Report] = []
        self.feed, self.is_read = HeldFeed(scenes.midway()), threading.Event()

        def readings(wait: Callable[[float], object]) -> Iterator[Snapshot]:
            yield from course(found[0], count, lost=lost)
            self.is_read.set()
            wait(60.0)

        known = ev.HardwareDetected(at_s=0.0, machine=found[0], software=found[1])
        source = WatchSource([known], readings)
        self.app = WorkbenchApp(self.start, watched=source, monotonic=lambda: 0.0)

    def start(self, asked: Request | Report) -> HeldFeed:
        self.started.append(asked)
        return self.feed

    async def read(self, pilot: Pilot[None]) -> str:
        """The screen after the last reading."""
        while not self.is_read.is_set():
            await pilot.pause(0.01)
        await settle(pilot)
        return text(pilot)


@at_both_sizes
def test_the_watch_of_a_machine_with_a_gpu(snap_compare, size) -> None:
    watch = Watch(machines.gpu_server())
    assert snap_compare(watch.app, terminal_size=size, run_before=watch.read)


def test_clock_events_are_shown_in_words() -> None:
    shown = clock_events(["gpu_idle", "sw_power_cap"])
    assert shown.plain == "gpu idle, sw power cap"


async def test_a_gap_takes_the_place_of_readings_that_would_be_old() -> None:
    watch = Watch(machines.gpu_server(), 3, lost=True)
    async with watch.app.run_test(size=(120, 60)) as pilot:
        shown = await watch.read(pilot)
        assert "died of SIGSEGV" in shown and "clock" in shown
        assert watch.app.session.report.gpus == {}
        assert sum("SIGSEGV" in str(line) for line in watch.app.session.log) == 1


async def test_without_a_gpu_it_says_why() -> None:
    watch = Watch(machines.cpu_server(), 2)
    async with watch.app.run_test(size=(120, 60)) as pilot:
        shown = await watch.read(pilot)
        assert "watching" in shown and "No GPU was found" in shown and "busy" in shown


async def test_a_run_of_its_own_shows_courses_while_it_lasts() -> None:
    reading = ev.MachineRead(at_s=1.0, host=HostReading(40.0, 2000.0, None, None, 2**30, {}))
    app, feed = held([*scenes.midway(), reading, reading])
    async with settled(app, (120, 60)) as pilot:
        await press(pilot, "1")
        assert "busy" in text(pilot) and "▄▄" in text(pilot)
        await press(pilot, "x", "x")
        assert feed.closed and "▄▄" not in text(pilot)


async def test_s_starts_the_default_run_and_ends_the_watch() -> None:
    watch = Watch(machines.cpu_server(), 1)
    async with watch.app.run_test(size=(120, 60)) as pilot:
        await watch.read(pilot)
        await press(pilot, "s", "3")
        assert len(watch.started) == 1 and watch.app.session.phase == "running"
        await press(pilot, "q", "q")
    assert watch.feed.said == ["cancel"]


async def test_quitting_wakes_the_thread_that_waits_for_the_next_snapshot() -> None:
    watch = Watch(machines.cpu_server(), 1)
    async with watch.app.run_test() as pilot:
        await watch.read(pilot)
        await press(pilot, "q")
    assert watch.app.return_code == 0
