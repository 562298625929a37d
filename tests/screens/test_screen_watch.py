"""The live view of the machine, from given snapshots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import machines
import pytest
from textual.pilot import Pilot

from screens.watch import WatchApp
from workbench.machine.snapshots import Snapshot
from workbench.records.machine import GpuReading, HostReading, Machine
from workbench.records.reason import Reason

SIZES = [pytest.param((80, 24), id="80x24"), pytest.param((120, 40), id="120x40")]


def course(machine: Machine, count: int = 90, *, lost: bool = False) -> Iterator[Snapshot]:
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
    if lost:
        gap = Reason("nvml_crashed", "the process that asks NVML died of SIGSEGV")
        yield Snapshot("2026-11-21T12:02:00.000Z", host, [], gap)


async def drawn(app: WatchApp, pilot: Pilot[None]) -> str:
    while not app.finished:
        await pilot.pause(0.01)
    await pilot.pause()
    return str(app.query_one("#readings").render())


@pytest.mark.parametrize("size", SIZES)
def test_the_watch_of_a_machine_with_a_gpu(
    snap_compare: Callable[..., bool], size: tuple[int, int]
) -> None:
    machine = machines.gpu_server()[0]
    app = WatchApp(machine, course(machine))

    async def before(pilot: Pilot[None]) -> None:
        await drawn(app, pilot)

    assert snap_compare(app, terminal_size=size, run_before=before)


async def test_a_gap_takes_the_place_of_readings_that_would_be_old() -> None:
    machine = machines.gpu_server()[0]
    app = WatchApp(machine, course(machine, 3, lost=True))
    async with app.run_test(size=(100, 30)) as pilot:
        text = await drawn(app, pilot)
    assert "died of SIGSEGV" in text and "SM clock" not in text


async def test_without_a_gpu_it_says_why() -> None:
    machine = machines.cpu_server()[0]
    app = WatchApp(machine, course(machine, 2))
    async with app.run_test(size=(100, 30)) as pilot:
        text = await drawn(app, pilot)
    assert "No GPU to watch" in text and "busy" in text


async def test_quitting_wakes_the_thread_that_waits_for_the_next_snapshot() -> None:
    machine = machines.cpu_server()[0]
    woken: list[bool] = []
    app = WatchApp(machine, course(machine, 1), stop=lambda: woken.append(True))
    async with app.run_test() as pilot:
        await drawn(app, pilot)
        await pilot.press("q")
    assert woken and app.return_code == 0
