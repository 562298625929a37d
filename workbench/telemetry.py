"""The machine while it is measured: readings into the run's stream, and what they say of each
contender."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import psutil

from . import events as ev
from .document import GpuReading, HostReading, Machine, Telemetry, Warning
from .machine.host import HostReader
from .machine.sampler import GpuSampler
from .measure import statistics as stats

HOST_EVERY_S = 0.5
SLOWED = 0.02  # of the time measured on a GPU
CLOCK_MOVED = 0.15  # the lowest clock under the highest, within one contender's blocks
ENOUGH_CLOCKS = 4  # readings, before their spread says anything
# Running at its power limit is a card's normal state under full load: told, but not warned of.
NORMAL = frozenset({"sw_power_cap"})


@dataclass(frozen=True)
class _Look:
    """What matters of one reading of either kind of device."""

    at_s: float  # by the run's clock
    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    slowed_s: Mapping[str, float] | None = None
    processes: frozenset[int] = frozenset()

    @classmethod
    def at_gpu(cls, at_s: float, found: GpuReading) -> _Look:
        there = frozenset(process.pid for process in found.processes or ())
        return cls(
            *(at_s, found.sm_clock_mhz, found.power_w, found.temperature_c, found.slowed_s), there
        )

    @classmethod
    def at_host(cls, at_s: float, found: HostReading) -> _Look:
        return cls(at_s, found.frequency_mhz, found.power_w, found.temperature_c)


@dataclass
class _Watched:
    """One device in the current race."""

    looks: list[_Look] = field(default_factory=list)
    blocks: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # begin, end
    known: set[int] = field(default_factory=set)  # processes already told of

    def within(self, blocks: list[tuple[float, float]]) -> Iterator[_Look]:
        for look in self.looks:
            if any(began_s < look.at_s <= ended_s for began_s, ended_s in blocks):
                yield look


class MachineTelemetry:
    """Follows the processor and the GPUs in use, by device name such as `cpu`, `cuda:0`.

    The processor is read here, between turns; the GPUs in a process of their own.
    """

    def __init__(
        self,
        sampler: GpuSampler | None,
        indices: Mapping[str, int],
        *,
        now: Callable[[], float],
        emit: Callable[[ev.AnyEvent], None],
        host: HostReader | None = None,
    ) -> None:
        self._sampler = sampler
        self._indices = indices
        self._host = host
        self._host_at_s = 0.0
        self._now = now
        self._emit = emit
        self._watched = {device: _Watched() for device in ("cpu", *indices)}

    @classmethod
    def of(
        cls,
        machine: Machine,
        devices: Collection[str],
        *,
        now: Callable[[], float],
        emit: Callable[[ev.AnyEvent], None],
    ) -> MachineTelemetry:
        """Begin to watch the processor and those of `devices` that NVML knows."""
        gpus = [g for g in machine.gpus if g.device in devices and g.index is not None]
        indices = {gpu.device: gpu.index for gpu in gpus if gpu.device and gpu.index is not None}
        if not machine.nvml.available:
            indices = {}
        sampler = GpuSampler(sorted(indices.values())) if indices else None
        telemetry = cls(sampler, indices, now=now, emit=emit, host=HostReader())
        for gpu in gpus:
            if gpu.device in indices:
                told = {process.pid for process in gpu.processes or ()}
                telemetry._watched[gpu.device].known = told
        return telemetry

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()

    def begin(self) -> None:
        """A new race: of what was read before, only the last look still matters."""
        self._read_host(self._now())
        self._read_gpus()
        for watched in self._watched.values():
            watched.looks = watched.looks[-1:]
            watched.blocks = {}

    def _read_host(self, at_s: float) -> None:
        if self._host is not None and at_s - self._host_at_s >= HOST_EVERY_S:
            host, self._host_at_s = self._host.read(), at_s
            self._watched["cpu"].looks.append(_Look.at_host(at_s, host))
            self._emit(ev.MachineRead(at_s=at_s, host=host))

    def _read_gpus(self) -> None:
        """Take in what the sampler has read since."""
        if self._sampler is None:
            return
        for pulse in self._sampler.drain():
            at_s = max(0.0, round(self._now() - (time.monotonic() - pulse.monotonic_s), 4))
            readings = {reading.index: reading for reading in pulse.gpus}
            for device, index in self._indices.items():
                if index in readings:
                    look = _Look.at_gpu(at_s, readings[index])
                    self._watched[device].looks.append(look)
            self._emit(ev.MachineRead(at_s=at_s, gpus=pulse.gpus, gap=pulse.reason))

    def measured(self, case_id: str, device: str, began_s: float, ended_s: float) -> None:
        """A block of this case ran on `device` during this time, and has just ended."""
        watched = self._watched.get(device)
        if watched is not None:
            watched.blocks.setdefault(case_id, []).append((began_s, ended_s))
        self._read_host(ended_s)  # between two turns: what it says is still of the one before
        self._read_gpus()

    def of_case(self, case_id: str, device: str) -> Telemetry | None:
        """How the device was in the blocks of this case; None if no reading fell into them."""
        watched = self._watched.get(device)
        blocks = watched.blocks.get(case_id) if watched else None
        within = list(watched.within(blocks)) if watched and blocks else []
        if not watched or not blocks or not within:
            return None
        begin, end = blocks[0][0], blocks[-1][1]
        powers = [look.power_w for look in within if look.power_w is not None]
        heats = [look.temperature_c for look in within if look.temperature_c is not None]
        clocks = [look.clock_mhz for look in within if look.clock_mhz is not None]
        before = [look for look in watched.looks if look.at_s <= begin]
        after = [look for look in watched.looks if look.at_s > end]
        return Telemetry(
            readings=len(within),
            clock_before_mhz=before[-1].clock_mhz if before else None,
            clock_mhz=stats.median(clocks) if clocks else None,
            clock_after_mhz=after[0].clock_mhz if after else None,
            power_w=sum(powers) / len(powers) if powers else None,
            temperature_c=max(heats, default=None),
            slowed=_slowed(watched),
        )

    def warnings(self, subject: str, own: Collection[int]) -> list[Warning]:
        """What was wrong with the devices during the race for `subject`."""
        found = []
        for device, watched in self._watched.items():
            found += [*_throttled(device, watched), *_moved(device, watched)]
            found += _intruders(device, watched, own)
        return [Warning(code, message, remedy, subject) for code, message, remedy in found]


def _slowed(watched: _Watched) -> dict[str, float]:
    """By cause, the share of the race's time on this GPU; from the driver's own counters."""
    counted = [look.slowed_s for look in watched.looks if look.slowed_s]
    busy_s = sum(end - begin for blocks in watched.blocks.values() for begin, end in blocks)
    if len(counted) < 2 or not busy_s:
        return {}
    first, last = counted[0], counted[-1]
    shares = {cause: (last[cause] - first.get(cause, last[cause])) / busy_s for cause in last}
    return {cause: min(1.0, share) for cause, share in shares.items() if share > 0}


def _throttled(device: str, watched: _Watched) -> Iterator[tuple[str, str, str]]:
    for cause, share in _slowed(watched).items():
        if share >= SLOWED and cause not in NORMAL:
            words = cause.replace("_", " ")
            message = f"{device} was held back for {share:.0%} of its time ({words})"
            remedy = "cool it better or check its power supply: `nvidia-smi -q -d PERFORMANCE`"
            yield "gpu_throttled", message, remedy


def _moved(device: str, watched: _Watched) -> Iterator[tuple[str, str, str]]:
    for blocks in watched.blocks.values():
        clocks = [look.clock_mhz for look in watched.within(blocks) if look.clock_mhz]
        if len(clocks) >= ENOUGH_CLOCKS and min(clocks) < (1 - CLOCK_MOVED) * max(clocks):
            span = f"{min(clocks):.0f} to {max(clocks):.0f} MHz"
            message = f"the clock of {device} moved from {span} while it was measured"
            yield "clock_moved", message, "let it cool, or give it a larger --budget"
            return


def _intruders(
    device: str, watched: _Watched, own: Collection[int]
) -> Iterator[tuple[str, str, str]]:
    """Processes that came during the race.

    In a container NVML may give the host's numbers, under which our own workers look foreign:
    only a number that is a process here counts.
    """
    seen = {pid for look in watched.looks for pid in look.processes}
    new = {pid for pid in seen - watched.known - set(own) if psutil.pid_exists(pid)}
    watched.known |= new
    if new:
        count = "another program" if len(new) == 1 else f"{len(new)} other programs"
        message = f"{count} came to work on {device} while it was measured"
        yield "busy_gpu", message, "see whose with `nvidia-smi`; wait, and run it again"
