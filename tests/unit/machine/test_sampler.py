"""The process that looks at the GPUs, against the C stub: readings, faults, gaps."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from stub_driver import StubDriver
from support import until

from workbench.machine.nvidia import probe_client
from workbench.machine.nvidia.nvml import GpuSample
from workbench.machine.nvidia.probe_client import GpuSampler
from workbench.records.machine import GpuReading


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_client, "EVERY_S", 0.01)


def samples(
    stub: StubDriver, *indices: int, library: str = "nvml", **settings: str
) -> Iterator[GpuSample]:
    """Every sample until the sampler gives up, or 30 s have passed."""
    with stub.loaded(library, **settings), closing(GpuSampler(indices, every_s=0.01)) as watching:
        found, end = list[GpuSample](), time.monotonic() + 30
        more = lambda: found.extend(watching.drain()) or found or watching._over  # noqa: E731
        while until(more, end - time.monotonic()):
            yield from found
            if watching._over:
                return
            found.clear()


def first(stub: StubDriver, **settings: str) -> GpuReading:
    return next(samples(stub, 0, **settings)).gpus[0]


def test_a_look_at_a_healthy_gpu_is_complete(stub: StubDriver) -> None:
    reading = first(stub)
    assert (reading.index, reading.unavailable) == (0, {})
    assert (reading.power_w, reading.temperature_c, reading.sm_clock_mhz) == (76.5, 32.0, 345.0)
    assert (reading.utilization_percent, reading.memory_used_bytes) == (37.0, 512)
    assert reading.clock_event_reasons == ["gpu_idle", "sw_power_cap", "bit_0x800"]
    assert (reading.energy_j, reading.fan_percent) == (6.5, 30.0)
    assert reading.slowed_s == {"sw_power_cap": 0.0, "sw_thermal_slowdown": 0.0}
    assert [p.pid for p in reading.processes or ()] == [4711, 4712]


@pytest.mark.parametrize(
    ("settings", "power_w", "over_s"),
    [
        ({"NVML_STUB_INSTANT_MW": "612000"}, 612.0, 0.1),
        ({}, 76.5, 1.0),
        ({"NVML_STUB_MAJOR": "8"}, 76.5, 0.1),  # GA100
        ({"NVML_STUB": "nvmlDeviceGetCudaComputeCapability=3"}, 76.5, 1.0),
        ({"NVML_STUB": "nvmlDeviceGetPowerUsage=3"}, None, None),
    ],
)
def test_power_is_of_this_moment_where_the_driver_has_that_and_else_says_over_how_long(
    stub: StubDriver, settings: dict[str, str], power_w: float | None, over_s: float | None
) -> None:
    reading = first(stub, **settings)
    assert (reading.power_w, reading.power_over_s) == (power_w, over_s)
    assert ("power_w" in reading.unavailable) == (power_w is None)


def test_counters_grow_and_the_slow_reading_is_rarer(stub: StubDriver) -> None:
    looks = samples(stub, 0, NVML_STUB_SLOWED_NS="20000000")
    seen = [next(looks) for _ in range(5)]
    slowed = [p.gpus[0].slowed_s or {} for p in seen]
    assert [s["sw_thermal_slowdown"] for s in slowed] == pytest.approx(
        [0.02, 0.04, 0.06, 0.08, 0.1]
    )
    assert [p.gpus[0].processes is None for p in seen] == [False, True, True, True, False]
    assert [p.monotonic_s for p in seen] == sorted(p.monotonic_s for p in seen)


def test_only_the_gpus_asked_for_are_read(stub: StubDriver) -> None:
    look = next(samples(stub, 5, 2, NVML_STUB_GPUS="8"))
    assert [gpu.index for gpu in look.gpus] == [5, 2]


def test_an_old_driver_gives_what_it_has(stub: StubDriver) -> None:
    reading = next(samples(stub, 0, library="old_nvml")).gpus[0]
    assert (reading.temperature_c, reading.energy_j, reading.slowed_s) == (31.0, None, None)
    assert set(reading.unavailable) == {"energy_j", "slowed_s"}


def test_a_reading_that_fails_later_is_a_reason_and_the_others_go_on(stub: StubDriver) -> None:
    looks = samples(stub, 0, NVML_STUB="nvmlDeviceGetPowerUsage@0+2=15")
    readings = [next(looks).gpus[0] for _ in range(3)]
    assert [r.power_w for r in readings] == [76.5, 76.5, None]
    assert "fallen off the bus" in readings[-1].unavailable["power_w"]
    assert readings[-1].temperature_c == 32.0


def test_a_gpu_that_cannot_be_opened_says_so(stub: StubDriver) -> None:
    bad, good = next(
        samples(stub, 0, 1, NVML_STUB_GPUS="2", NVML_STUB="nvmlDeviceGetHandleByIndex_v2@0=15")
    ).gpus[::-1]
    assert good.power_w == 76.5
    assert bad.power_w is None and "fallen off the bus" in bad.unavailable["*"]


def test_a_crash_is_a_gap_and_the_readings_go_on_a_few_times(stub: StubDriver) -> None:
    looks = list(samples(stub, 0, NVML_STUB="nvmlDeviceGetPowerUsage@0+1=segv"))
    gaps = [look.reason for look in looks if look.reason is not None]
    assert [gap.code for gap in gaps] == ["nvml_crashed"] * (probe_client.MOST_RESTARTS + 1)
    assert "SIGSEGV" in gaps[0].message
    assert len(looks) == 2 * len(gaps)  # each process gave one look before it died


def test_a_driver_that_refuses_is_not_asked_again(stub: StubDriver) -> None:
    [refusal] = samples(stub, 0, NVML_STUB="nvmlInitWithFlags=18")
    assert refusal.reason.code == "version_mismatch"


def test_a_call_that_hangs_is_a_gap(stub: StubDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_client, "SILENT_S", 1.0)
    monkeypatch.setattr(probe_client, "MOST_RESTARTS", 0)
    *looks, gap = samples(stub, 0, NVML_STUB="nvmlDeviceGetClockInfo@0+1=hang")
    assert len(looks) == 1 and looks[0].gpus
    assert gap.reason.code == "nvml_hung"
