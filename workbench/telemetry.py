"""The GPUs while they are measured: readings into the run's stream, and what they say of each
contender."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import psutil

from . import events as ev
from .document import GpuReading, Machine, Telemetry, Warning
from .machine.sampler import GpuSampler
from .measure import statistics as stats

SLOWED = 0.02  # of the time measured on a GPU
CLOCK_MOVED = 0.15  # the lowest clock under the highest, within one contender's blocks
ENOUGH_CLOCKS = 4  # readings, before their spread says anything
# Running at its power limit is a card's normal state under full load: told, but not warned of.
NORMAL = frozenset({"sw_power_cap"})


@dataclass
class _Watched:
    """One GPU in the current race."""

    index: int
    readings: list[tuple[float, GpuReading]] = field(default_factory=list)  # by the run's clock
    blocks: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # begin, end
    known: set[int] = field(default_factory=set)  # processes already told of


class GpuTelemetry:
    """Follows the GPUs in use, by device name such as `cuda:0`; nothing where NVML sees none."""

    def __init__(
        self,
        sampler: GpuSampler | None,
        indices: Mapping[str, int],
        *,
        now: Callable[[], float],
        emit: Callable[[ev.AnyEvent], None],
    ) -> None:
        self._sampler = sampler
        self._now = now
        self._emit = emit
        self._watched = {device: _Watched(index) for device, index in indices.items()}

    @classmethod
    def of(
        cls,
        machine: Machine,
        devices: Collection[str],
        *,
        now: Callable[[], float],
        emit: Callable[[ev.AnyEvent], None],
    ) -> GpuTelemetry:
        """Begin to watch those of `devices` that NVML knows."""
        gpus = [g for g in machine.gpus if g.device in devices and g.index is not None]
        indices = {gpu.device: gpu.index for gpu in gpus if gpu.device and gpu.index is not None}
        usable = indices and machine.nvml.available
        sampler = GpuSampler(sorted(indices.values())) if usable else None
        telemetry = cls(sampler, indices if usable else {}, now=now, emit=emit)
        for gpu in gpus:
            if gpu.device in telemetry._watched:
                told = {process.pid for process in gpu.processes or ()}
                telemetry._watched[gpu.device].known = told
        return telemetry

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()

    def begin(self) -> None:
        """A new race: of what was read before, only the last look still matters."""
        self.drain()
        for watched in self._watched.values():
            watched.readings = watched.readings[-1:]
            watched.blocks = {}

    def drain(self) -> None:
        """Take in what was read since; called between turns, never within one."""
        if self._sampler is None:
            return
        for pulse in self._sampler.drain():
            at_s = max(0.0, round(self._now() - (time.monotonic() - pulse.monotonic_s), 4))
            for watched in self._watched.values():
                watched.readings += [(at_s, r) for r in pulse.gpus if r.index == watched.index]
            self._emit(ev.GpusRead(at_s=at_s, gpus=pulse.gpus, gap=pulse.reason))

    def measured(self, case_id: str, device: str, began_s: float, ended_s: float) -> None:
        """A block of this case ran on `device` during this time."""
        watched = self._watched.get(device)
        if watched is not None:
            watched.blocks.setdefault(case_id, []).append((began_s, ended_s))
        self.drain()

    def of_case(self, case_id: str, device: str) -> Telemetry | None:
        """How the GPU was in the blocks of this case."""
        watched = self._watched.get(device)
        blocks = watched.blocks.get(case_id) if watched else None
        if watched is None or not watched.readings or not blocks:
            return None
        begin, end = blocks[0][0], blocks[-1][1]
        within = list(_within(watched.readings, blocks))
        powers = [r.power_w for r in within if r.power_w is not None]
        heats = [r.temperature_c for r in within if r.temperature_c is not None]
        clocks = [r.sm_clock_mhz for r in within if r.sm_clock_mhz is not None]
        before = [r for at_s, r in watched.readings if at_s < begin]
        after = [r for at_s, r in watched.readings if at_s > end]
        return Telemetry(
            readings=len(within),
            sm_clock_before_mhz=before[-1].sm_clock_mhz if before else None,
            sm_clock_mhz=stats.median(clocks) if clocks else None,
            sm_clock_after_mhz=after[0].sm_clock_mhz if after else None,
            power_w=sum(powers) / len(powers) if powers else None,
            temperature_c=max(heats, default=None),
            slowed=_slowed(watched),
        )

    def warnings(self, subject: str, own: Collection[int]) -> list[Warning]:
        """What was wrong with the GPUs during the race for `subject`."""
        found = [
            told
            for device, watched in self._watched.items()
            for told in (*_throttled(device, watched), *_moved(device, watched))
        ]
        found += [
            told
            for device, watched in self._watched.items()
            for told in _intruders(device, watched, own)
        ]
        return [Warning(code, message, remedy, subject) for code, message, remedy in found]


def _within(
    readings: list[tuple[float, GpuReading]], blocks: list[tuple[float, float]]
) -> Iterator[GpuReading]:
    for at_s, reading in readings:
        if any(began_s <= at_s <= ended_s for began_s, ended_s in blocks):
            yield reading


def _slowed(watched: _Watched) -> dict[str, float]:
    """By cause, the share of the race's time on this GPU; from the driver's own counters."""
    counted = [reading.slowed_s for _, reading in watched.readings if reading.slowed_s]
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
        clocks = [r.sm_clock_mhz for r in _within(watched.readings, blocks) if r.sm_clock_mhz]
        if len(clocks) >= ENOUGH_CLOCKS and min(clocks) < (1 - CLOCK_MOVED) * max(clocks):
            span = f"{min(clocks):.0f} to {max(clocks):.0f} MHz"
            message = f"the clock of {device} moved from {span} while it was measured"
            yield "gpu_clock_moved", message, "let it cool, or give it a larger --budget"
            return


def _intruders(
    device: str, watched: _Watched, own: Collection[int]
) -> Iterator[tuple[str, str, str]]:
    """Processes that came during the race.

    In a container NVML may give the host's numbers, under which our own workers look foreign:
    only a number that is a process here counts.
    """
    seen = {p.pid for _, reading in watched.readings for p in reading.processes or ()}
    new = {pid for pid in seen - watched.known - set(own) if psutil.pid_exists(pid)}
    watched.known |= new
    if new:
        count = "another program" if len(new) == 1 else f"{len(new)} other programs"
        message = f"{count} came to work on {device} while it was measured"
        yield "busy_gpu", message, "see whose with `nvidia-smi`; wait, and run it again"
