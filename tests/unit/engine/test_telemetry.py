"""What the readings of a GPU say of those who were measured on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders import context, machine
from fakes import CPU_A, ManualClock

from workbench.engine import telemetry as module
from workbench.engine.blocks import BlockRunner
from workbench.engine.schedule import PreparedCase
from workbench.engine.telemetry import MachineTelemetry
from workbench.machine.nvidia.nvml import GpuSample
from workbench.pool.answers import Block
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.records.machine import Gpu, GpuProcess, GpuReading, HostReading, Nvml, Pcie
from workbench.records.reason import Reason
from workbench.report.report import Report

CASE = "w/cuda:0/torch/fp32"
SLOW = ["clock_moved", "clock_low"]
SET = ["applications_clocks_setting"]  # by `nvidia-smi -ac`


class Script:
    """A sampler whose readings a test lays down, each at a time of the host's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[GpuSample] = []

    def read(self, at_s: float, **values: Any) -> None:
        self._waiting.append(GpuSample(at_s, [GpuReading(0, **values)]))

    def fail(self) -> None:
        self._waiting.append(GpuSample(100.0, [], Reason("nvml_crashed", "it died")))

    def drain(self) -> Iterator[GpuSample]:
        while self._waiting:
            yield self._waiting.pop(0)

    def close(self) -> None:
        pass


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def hosts_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))


@pytest.fixture
def emitted() -> list[ev.AnyEvent]:
    return []


@pytest.fixture
def script() -> Script:
    return Script(Clock())


@pytest.fixture
def telemetry(
    script: Script, emitted: list[ev.AnyEvent], monkeypatch: pytest.MonkeyPatch
) -> MachineTelemetry:
    monkeypatch.setattr(module, "GpuSampler", lambda _indices, vendor: script)
    monkeypatch.setattr(module, "HostReader", lambda: None)
    watching = MachineTelemetry(script._clock, emitted.append)
    watching.watch(msgspec.structs.replace(machine("cuda:0"), nvml=Nvml(True)), ["cuda:0"])
    return watching


def codes(telemetry: MachineTelemetry) -> list[str]:
    return [w.code for w in telemetry.warnings("row", [os.getpid()])]


def test_a_candidate_is_told_by_the_readings_within_its_blocks(telemetry, script, emitted) -> None:
    script.read(10.0, sm_clock_mhz=345.0)
    telemetry.begin()
    for at_s, clock, power, heat in (
        (11.5, 1900.0, 500.0, 60.0),
        (12.5, 345.0, 90.0, 80.0),  # between its blocks
        (13.5, 1980.0, 700.0, 65.0),
        (14.5, 1200.0, 120.0, 50.0),  # after them
    ):
        script.read(at_s, sm_clock_mhz=clock, power_w=power, temperature_c=heat)
    telemetry.measured(CASE, "cuda:0", 11.0, 12.0)
    telemetry.measured(CASE, "cuda:0", 13.0, 14.0)
    found = telemetry.of_case(CASE, "cuda:0")
    assert (found.readings, found.power_w, found.temperature_c) == (2, 600.0, 65.0)
    assert found.clock_before_mhz == 345.0
    assert found.clock_mhz == 1940.0
    assert found.clock_after_mhz == 1200.0
    assert codes(telemetry) == []
    assert [event.at_s for event in emitted] == [10.0, 11.5, 12.5, 13.5, 14.5]


@pytest.fixture
def _short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Energy counts in windows of half a second too."""
    monkeypatch.setattr(module, "LEAST_COUNTED_S", 0.5)


@pytest.mark.usefixtures("_short_windows")
def test_readings_of_a_pause_belong_to_no_block(telemetry, script, emitted) -> None:
    """The run's clock stands still for 60 s after the first block; the host's goes on."""
    telemetry.begin()
    read = {"power_over_s": 1.0, "energy_j": 0.0}
    for at_s, clock, power in ((11.0, 1900.0, 600.0), (12.0, 1980.0, 620.0), (72.5, 345.0, 90.0)):
        script.read(at_s, sm_clock_mhz=clock, power_w=power, **read)
        read["energy_j"] += 610.0
    script._clock.now_s = 40.0
    telemetry.measured(CASE, "cuda:0", 10.0, 12.0)
    telemetry.measured(CASE, "cuda:0", 72.1, 74.0)
    found = telemetry.of_case(CASE, "cuda:0")
    assert (found.readings, found.power_w, found.counted_power_w) == (3, 610.0, 610.0)
    assert emitted[-1].at_s == 12.5


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_what_no_reading_belongs_to_has_none(telemetry: MachineTelemetry, device: str) -> None:
    telemetry.begin()
    telemetry.measured(CASE, device, 11.0, 12.0)
    assert telemetry.of_case(CASE, device) is None


def test_a_gpu_held_back_by_heat_is_reported_with_its_share_and_a_power_cap_is_only_recorded(
    telemetry: MachineTelemetry, script: Script
) -> None:
    script.read(10.0, slowed_s={"sw_power_cap": 5.0, "hw_thermal_slowdown": 1.0})
    telemetry.begin()
    script.read(20.0, slowed_s={"sw_power_cap": 6.0, "hw_thermal_slowdown": 1.5})
    telemetry.measured(CASE, "cuda:0", 18.0, 20.0)
    found = telemetry.of_case(CASE, "cuda:0")
    assert found.slowed == {"sw_power_cap": 0.5, "hw_thermal_slowdown": 0.25}
    [warning] = telemetry.warnings("row", [])
    assert (warning.code, warning.subject) == ("gpu_throttled", "row")
    assert "25%" in warning.message and "thermal" in warning.message


def test_on_a_gpu_that_others_use_the_time_held_back_is_a_share_of_the_whole_race(
    telemetry: MachineTelemetry, script: Script
) -> None:
    watched = telemetry._watched["cuda:0"]
    watched.card = msgspec.structs.replace(watched.card, processes=[GpuProcess(7, None)])
    script.read(10.0, slowed_s={"sw_thermal_slowdown": 1.0})
    telemetry.begin()
    script.read(20.0, slowed_s={"sw_thermal_slowdown": 6.0})
    telemetry.measured(CASE, "cuda:0", 18.0, 20.0)
    [warning] = telemetry.warnings("row", [])
    assert "50%" in warning.message


@pytest.mark.parametrize(
    ("clocks", "expected"),
    [([1980.0, 1975.0, 1900.0, 1980.0], []), ([1980.0, 1900.0, 1500.0, 1200.0], ["clock_moved"])],
)
def test_a_clock_that_moves_while_one_candidate_is_measured(
    telemetry: MachineTelemetry, script: Script, clocks: list[float], expected: list[str]
) -> None:
    telemetry.begin()
    for position, clock in enumerate(clocks):
        script.read(10.0 + position, sm_clock_mhz=clock)
    telemetry.measured(CASE, "cuda:0", 9.0, 20.0)
    assert codes(telemetry) == expected


@pytest.mark.parametrize(
    ("causes", "limit_w", "expected"),
    [
        (["sw_power_cap"], 70.0, []),
        (["sw_power_cap"], 50.0, ["clock_low"]),
        (["sw_power_cap", "sw_thermal_slowdown"], 70.0, ["gpu_throttled", *SLOW]),
        ([], 70.0, SLOW),
    ],
)
def test_a_clock_that_only_the_power_limit_moved_is_a_healthy_cards(
    telemetry: MachineTelemetry, script: Script, causes, limit_w, expected
) -> None:
    card = Gpu(*(0, "cuda:0", None, None, "Test"), max_sm_clock_mhz=4000.0, power_default_w=70.0)
    telemetry._watched["cuda:0"].card = msgspec.structs.replace(card, power_limit_w=limit_w)
    telemetry.begin()
    for position, clock in enumerate([1980.0, 1900.0, 1500.0, 1500.0]):
        slowed = {"sw_power_cap": 7.0, "sw_thermal_slowdown": 3.0}
        slowed |= {cause: slowed[cause] + position for cause in causes}
        script.read(10.0 + position, sm_clock_mhz=clock, slowed_s=slowed)
    telemetry.measured(CASE, "cuda:0", 9.0, 14.0)
    assert codes(telemetry) == expected


@pytest.mark.parametrize(
    ("shown", "slowed_s", "expected"),
    [
        (["sw_power_cap"], None, []),
        (["sw_power_cap"], {"sw_power_cap": 7.0}, ["clock_moved"]),  # the counter stands still
        (["sw_thermal_slowdown"], None, ["gpu_throttled", "clock_moved"]),
        ([], None, ["clock_moved"]),
    ],
)
def test_without_counters_the_readings_show_what_moved_the_clock(
    telemetry, script, shown, slowed_s, expected
) -> None:
    telemetry.begin()
    for position, clock in enumerate([1980.0, 1900.0, 1500.0, 1500.0]):
        state = {"clock_event_reasons": shown, "slowed_s": slowed_s}
        script.read(10.0 + position, sm_clock_mhz=clock, **state)
    telemetry.measured(CASE, "cuda:0", 9.0, 14.0)
    assert codes(telemetry) == expected


@pytest.mark.parametrize(
    ("shown", "expected"),
    [(["hw_power_brake_slowdown"], ["gpu_throttled"]), (["hw_slowdown", "gpu_idle"], [])],
)
def test_causes_in_hardware_are_seen_in_the_readings(telemetry, script, shown, expected) -> None:
    telemetry.begin()
    for position in range(8):
        script.read(10.0 + position, clock_event_reasons=shown if position % 4 == 0 else [])
    telemetry.measured(CASE, "cuda:0", 9.0, 19.0)
    assert codes(telemetry) == expected


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ({"sm_clock_mhz": 1900.0, "pcie_generation": 5, "pcie_width": 16}, []),
        ({"sm_clock_mhz": 800.0}, ["clock_low"]),
        ({"sm_clock_mhz": 1500.0}, []),
        ({"sm_clock_mhz": 1500.0, "clock_event_reasons": SET}, ["clock_low"]),
        ({"sm_clock_mhz": 1965.0, "clock_event_reasons": SET}, []),
        ({"pcie_generation": 3, "pcie_width": 16}, ["pcie_slow"]),
        ({"pcie_generation": 5, "pcie_width": 8}, ["pcie_slow"]),
        ({}, []),
    ],
)
def test_clock_and_link_that_stay_low_under_load(telemetry, script, reading, expected) -> None:
    telemetry._watched["cuda:0"].card = Gpu(
        *(0, "cuda:0", None, None, "Test"), max_sm_clock_mhz=1980.0, pcie=Pcie(1, 16, 5, 16, 5)
    )
    telemetry.begin()
    for position in range(4):
        script.read(10.0 + position, **reading)
    script.read(50.0, sm_clock_mhz=345.0, pcie_generation=1)  # idle again
    telemetry.measured(CASE, "cuda:0", 9.0, 20.0)
    assert codes(telemetry) == expected


@pytest.mark.parametrize("blocks", [4, 6])
def test_an_energy_counter_counts_from_five_seconds_on(blocks, telemetry, script) -> None:
    telemetry.begin()
    for number in range(blocks + 1):
        script.read(10.0 + number, energy_j=350.0 * number)
    telemetry.measured(CASE, "cuda:0", 10.0, 10.0 + blocks)
    found = telemetry.of_case(CASE, "cuda:0")
    assert (found.counted_power_w is not None) == (blocks == 6)


@pytest.mark.usefixtures("_short_windows")
def test_energy_is_a_cases_own_only_where_nothing_else_ran_between_two_looks(
    telemetry: MachineTelemetry, script: Script
) -> None:
    telemetry.begin()
    for at_s, energy_j in ((10.0, 0.0), (10.5, 300.0), (11.0, 350.0), (11.5, 640.0)):
        script.read(at_s, energy_j=energy_j)
    telemetry.measured(CASE, "cuda:0", 9.9, 10.5)
    telemetry.measured("another", "cuda:0", 10.5, 10.8)
    telemetry.measured(CASE, "cuda:0", 10.98, 11.6)
    found, other = (telemetry.of_case(case, "cuda:0") for case in (CASE, "another"))
    assert found.counted_power_w == pytest.approx((300 + 290) / 1.0, rel=1e-3)
    assert other is None or other.counted_power_w is None


@pytest.mark.usefixtures("_short_windows")
def test_the_lead_in_of_a_turn_is_the_same_work(telemetry, script) -> None:
    """Turns of 0.05 s of lead-in and 0.2 s of samples, one after the other, as of one candidate."""
    telemetry.begin()
    for number in range(5):
        script.read(10.0 + number / 2, energy_j=350.0 * number, sm_clock_mhz=1980.0)
    script.read(10.51, sm_clock_mhz=345.0)  # while a lead-in raises the clock
    for number in range(8):
        ended_s = 10.25 * (1 + number / 41)  # every 0.25 s
        telemetry.measured(CASE, "cuda:0", ended_s - 0.195, ended_s, turn_s=0.245)
    found = telemetry.of_case(CASE, "cuda:0")
    assert found.counted_power_w == pytest.approx(700.0, rel=1e-3)
    assert found.clock_mhz == 1980.0


def test_a_turn_is_placed_by_its_workers_clock(emitted: list[ev.AnyEvent]) -> None:
    """However long the engine takes to hear of it."""
    noted: list[tuple[float, float, float]] = []

    class Noting:
        def measured(self, _case: str, _device: str, *when: float, turn_s: float) -> None:
            noted.append((*when, turn_s))

    shared = context(None, ManualClock(), Report(), emitted.append)
    made = replace(shared, telemetry=Noting())
    plan = SimpleNamespace(scenario=SimpleNamespace(id="row"))
    runner = BlockRunner(SimpleNamespace(plan=plan, context=made), None)
    heard = Block([1e-3], [], None, None, {}, False, 46.0, 46.5, 47.0)
    prepared = PreparedCase(CPU_A, WorkerKey("cpu", "torch"), 1e-3, 1)
    runner._report(prepared, 0, [1e-3], heard)
    assert noted == [(46.5, 47.0, 1.0)]


@pytest.mark.usefixtures("_short_windows")
def test_power_and_energy_of_a_whole_gpu_are_not_those_of_its_instance(
    script: Script, emitted: list[ev.AnyEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GpuSampler", lambda _indices, vendor: script)
    found = machine("cuda:0")
    for uuid, expected in ((f"MIG-{'1' * 32}", None), ("GPU-0", 700.0)):
        [card] = [msgspec.structs.replace(g, index=0, uuid=uuid) for g in found.gpus]
        divided = msgspec.structs.replace(found, gpus=[card], nvml=Nvml(True))
        watching = MachineTelemetry(script._clock, emitted.append)
        watching.watch(divided, ["cuda:0"])
        watching.begin()
        for number in range(3):
            reading = {"energy_j": 350.0 * number, "power_w": 700.0, "power_over_s": 0.0}
            script.read(10.0 + number / 2, sm_clock_mhz=1980.0, **reading)
        watching.measured(CASE, "cuda:0", 9.0, 12.0)
        seen = watching.of_case(CASE, "cuda:0")
        assert seen.clock_mhz == 1980.0
        for watts in (seen.power_w, seen.counted_power_w):
            assert watts == (expected and pytest.approx(expected, rel=1e-3))
        [last] = [e.gpus[0] for e in emitted if isinstance(e, ev.MachineRead) and e.gpus][-1:]
        assert (last.power_w, last.energy_j) == (expected, expected and 700.0)
        assert ("whole GPU" in last.unavailable.get("energy_j", "")) == (expected is None)


def test_a_mean_power_is_a_cases_own_only_where_the_case_ran_all_that_time(
    telemetry: MachineTelemetry, script: Script
) -> None:
    telemetry.begin()
    script.read(10.2, power_w=200.0, power_over_s=1.0)  # of 0.2 s at 600 W and 0.8 s at 100 W
    telemetry.measured(CASE, "cuda:0", 10.0, 10.2)
    found = telemetry.of_case(CASE, "cuda:0")
    assert (found.readings, found.power_w) == (1, None)
    script.read(10.82, power_w=130.0, power_over_s=0.1)  # perhaps still of the idle card
    script.read(10.92, power_w=600.0, power_over_s=0.1)
    script.read(12.0, power_w=610.0, power_over_s=1.0)
    telemetry.measured(CASE, "cuda:0", 10.8, 12.0)
    found = telemetry.of_case(CASE, "cuda:0")
    assert found.power_w == 605.0


def test_a_process_that_comes_is_told_once_and_our_own_never(telemetry, script) -> None:
    nobody = 2**22 + 1  # above the kernel's largest process id: the host's number, in a container
    telemetry.begin()
    there = [GpuProcess(pid, None) for pid in (os.getpid(), os.getppid(), nobody)]
    script.read(11.0, processes=there)
    telemetry.measured(CASE, "cuda:0", 10.0, 12.0)
    assert codes(telemetry) == ["busy_gpu"]
    telemetry.begin()
    script.read(13.0, processes=there)
    telemetry.measured(CASE, "cuda:0", 12.5, 14.0)
    assert codes(telemetry) == []


def test_a_race_begins_afresh_but_for_the_last_look(telemetry, script) -> None:
    script.read(10.0, slowed_s={"hw_thermal_slowdown": 0.0})
    script.read(11.0, slowed_s={"hw_thermal_slowdown": 9.0})
    telemetry.begin()
    script.read(12.0, slowed_s={"hw_thermal_slowdown": 9.0})
    telemetry.measured(CASE, "cuda:0", 11.0, 12.0)
    assert codes(telemetry) == []


def test_the_processor_is_read_after_a_block_and_no_more_than_twice_a_second(
    emitted: list[ev.AnyEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Host:
        def read(self) -> HostReading:
            return HostReading(frequency_mhz=2500.0, temperature_c=55.0, power_w=80.0)

    monkeypatch.setattr(module, "HostReader", Host)
    telemetry = MachineTelemetry(Clock(), emitted.append)
    telemetry.watch(machine(), [])
    telemetry.begin()
    for end_s in (100.2, 100.4, 100.6, 100.8, 101.2):
        telemetry.measured("w/cpu/torch/fp32/t2", "cpu", end_s - 0.2, end_s)
    assert [event.at_s for event in emitted] == [100.0, 100.6, 101.2]
    found = telemetry.of_case("w/cpu/torch/fp32/t2", "cpu")
    assert (found.readings, found.clock_mhz, found.temperature_c) == (2, 2500.0, 55.0)
    assert (found.power_w, found.clock_before_mhz, found.clock_after_mhz) == (80.0, 2500.0, None)


def test_a_gap_is_an_event_with_its_reason(telemetry, script, emitted) -> None:
    script.fail()
    telemetry.begin()
    [event] = emitted
    assert event.gap == Reason("nvml_crashed", "it died") and event.gpus == []


def test_process_ids_of_another_namespace_are_no_intruders(telemetry, script) -> None:
    """The host's numbers, in a container: one of them exists here by coincidence."""
    telemetry.begin()
    script.read(11.0, processes=[GpuProcess(pid, None) for pid in (os.getppid(), 2**22 + 1)])
    telemetry.measured(CASE, "cuda:0", 10.0, 12.0)
    assert codes(telemetry) == []


@pytest.mark.parametrize(
    ("name", "mode", "expected"),
    [
        ("Test", "passthrough", []),
        ("Test", "none", ["pcie_slow"]),
        ("Test Laptop GPU", "none", []),
        ("NVIDIA GH200 480GB", "none", []),
    ],
)
def test_the_link_of_a_virtual_machine_or_a_card_without_a_slot_is_not_judged(
    telemetry: MachineTelemetry, script: Script, name: str, mode: str, expected: list[str]
) -> None:
    telemetry._watched["cuda:0"].card = Gpu(
        *(0, "cuda:0", None, None, name), pcie=Pcie(1, 16, 5, 16, 5), virtualization=mode
    )
    telemetry.begin()
    for position in range(4):
        script.read(10.0 + position, pcie_generation=1, pcie_width=16)
    telemetry.measured(CASE, "cuda:0", 9.0, 20.0)
    assert codes(telemetry) == expected
