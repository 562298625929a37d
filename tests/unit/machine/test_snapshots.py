"""Looks at the machine, one after the other, and the line of each."""

from collections.abc import Iterator
from itertools import islice

import msgspec
import pytest
from builders import machine

from workbench.export.watch import header, line
from workbench.machine import snapshots
from workbench.machine.host import readings
from workbench.machine.nvidia.nvml import GpuSample
from workbench.machine.nvidia.probe_client import SILENT_S
from workbench.machine.snapshots import Snapshot
from workbench.records.machine import GpuReading, HostReading
from workbench.records.reason import Reason

LOST = Reason("nvml_crashed", "the process that asks NVML died of SIGSEGV")


class Sampler:
    """Gives one batch of samples for each snapshot."""

    batches: list[list[GpuSample]]
    closed = False

    asked_s: float

    def __init__(self, indices: list[int], *, every_s: float, vendor: str) -> None:
        Sampler.asked_s = every_s

    def drain(self) -> Iterator[GpuSample]:
        yield from self.batches.pop(0)

    def close(self) -> None:
        Sampler.closed = True


def test_a_look_has_the_latest_of_each_gpu_and_a_gap_ends_old_readings(monkeypatch) -> None:
    early, late = GpuReading(0, power_w=100.0), GpuReading(0, power_w=200.0)
    Sampler.batches = [
        [GpuSample(1.0, [early]), GpuSample(2.0, [late])],
        [],
        [GpuSample(3.0, [], LOST)],
        [],
        [GpuSample(4.0, [late])],
    ]
    monkeypatch.setattr(snapshots, "GpuSampler", Sampler)
    slept: list[float] = []
    stream = snapshots.snapshots(machine("cuda:0"), every_s=2.0, sleep=slept.append)
    first, second, third, fourth, fifth = islice(stream, 5)
    assert first.gpus == second.gpus == [late]
    assert (third.gpus, third.gap) == (fourth.gpus, fourth.gap) == ([], LOST)
    assert (fifth.gpus, fifth.gap) == ([late], None)
    assert slept == [snapshots.FIRST_S, 2.0, 2.0, 2.0, 2.0]
    stream.close()
    assert Sampler.closed


def test_readings_do_not_outlive_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    Sampler.batches = [[GpuSample(1.0, [GpuReading(0)])], *[[] for _ in range(9)]]
    Sampler.batches.append([GpuSample(2.0, [GpuReading(0)])])
    monkeypatch.setattr(snapshots, "GpuSampler", Sampler)
    stream = snapshots.snapshots(machine("cuda:0"), every_s=2.0, sleep=lambda _: None)
    looks = list(islice(stream, 11))
    assert [bool(look.gpus) for look in looks] == [True] * 6 + [False] * 4 + [True]
    assert [look.gap and look.gap.code for look in looks[5:]] == [None, *["nvml_hung"] * 4, None]


def test_gpus_are_read_often_enough_for_silence_to_mean_something(monkeypatch) -> None:
    Sampler.batches = [[GpuSample(1.0, [])]]
    monkeypatch.setattr(snapshots, "GpuSampler", Sampler)
    next(snapshots.snapshots(machine("cuda:0"), every_s=3600.0, sleep=lambda _: None))
    assert Sampler.asked_s < SILENT_S


def test_a_long_pause_leaves_no_readings_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = GpuReading(0, power_w=100.0), GpuReading(0, power_w=300.0)
    Sampler.batches = [[], [GpuSample(1.0, [first])], [], [], [], [GpuSample(2.0, [last])]]
    monkeypatch.setattr(snapshots, "GpuSampler", Sampler)
    slept: list[float] = []
    stream = snapshots.snapshots(machine("cuda:0"), every_s=17.0, sleep=slept.append)
    assert next(stream).gpus == [first], "it waits for NVML to start"
    assert next(stream).gpus == [last]
    assert slept == [*[snapshots.FIRST_S] * 2, 5.0, 5.0, 5.0, 2.0] and Sampler.batches == []


def test_a_driver_that_does_not_start_is_not_waited_for_without_end(monkeypatch) -> None:
    Sampler.batches = [[] for _ in range(1000)]
    monkeypatch.setattr(snapshots, "GpuSampler", Sampler)
    slept: list[float] = []
    look = next(snapshots.snapshots(machine("cuda:0"), every_s=1.0, sleep=slept.append))
    assert look.gpus == [] and sum(slept) < 2 * snapshots.NVML_STARTS_S


def test_the_power_of_the_processor_is_known_after_a_pause_in_which_its_counter_began_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(readings.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(readings, "package_energy_j", lambda _: ([400.0 * now_s % 65_536.0], ""))
    looks = islice(snapshots.snapshots(machine(), every_s=300.0, sleep=sleep), 4)
    assert [look.host.power_w for look in looks] == pytest.approx([400.0] * 4)


def test_without_a_gpu_the_processor_is_watched_alone() -> None:
    [look] = islice(snapshots.snapshots(machine(), every_s=0.5, sleep=lambda _: None), 1)
    assert look.gpus == [] and look.gap is None
    assert look.time.endswith("Z") and isinstance(look.host, HostReading)
    msgspec.json.decode(msgspec.json.encode(look), type=Snapshot)


def test_a_line_tells_what_is_known() -> None:
    host = HostReading(37.2, 2500.0, None, None, 2**30)
    gpu = GpuReading(
        *(0, 98.0, 2**31, 650.0, 61.0, 1980.0), clock_event_reasons=["gpu_idle", "sw_power_cap"]
    )
    look = Snapshot("2026-11-21T12:00:01.250Z", host, [gpu])
    assert line(look) == (
        "12:00:01Z  cpu 37%, 2500 MHz, 1 GiB free"
        " | gpu 0 98%, 1980 MHz, 650 W, 61 C, 2 GiB used, sw power cap"
    )
    lost = Snapshot(look.time, host, [GpuReading(5, unavailable={"*": "off the bus"})])
    assert line(lost).endswith(" | gpu 5 n/a (off the bus)")
    gone = Snapshot("2026-11-21T12:00:02.250Z", HostReading(), [], LOST)
    assert line(gone) == f"12:00:02Z  cpu n/a | GPUs: {LOST.message}"


def test_the_header_names_what_is_watched() -> None:
    assert header(machine("cuda:0")) == ["cpu: Test CPU, 8 cores", "gpu 0 (cuda:0): Test GPU"]
