"""The machine while it is measured: readings into the run's stream, and what they say of each
candidate."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import psutil

from ..machine.host.readings import HostReader
from ..machine.nvidia.sampler import GpuSampler
from ..records import events as ev
from ..records.document import Telemetry
from ..records.machine import Gpu, GpuReading, HostReading, Machine
from ..records.reason import Warning
from ..stats import samples as stats

HOST_EVERY_S = 0.5
SLOWED = 0.02  # of the time measured on a GPU
CLOCK_MOVED = 0.15  # the lowest clock under the highest, within one candidate's blocks
CLOCK_LOW = 0.5  # of the card's highest, under load
OWN_SHARE = 0.9  # of the time that an energy or a mean power is of, for it to be one case's
ENOUGH_CLOCKS = 4  # readings, before their spread says anything
# Running at its power limit is a card's normal state under full load: told, but not warned of.
NORMAL = frozenset({"sw_power_cap"})


@dataclass(frozen=True)
class _Look:
    """What matters of one reading of either kind of device."""

    at_s: float  # by the run's clock
    clock_mhz: float | None
    power_w: float | None
    power_over_s: float  # what `power_w` is a mean over
    temperature_c: float | None
    slowed_s: Mapping[str, float] | None = None
    link: tuple[int | None, int | None] = (None, None)  # PCIe generation and lanes
    processes: frozenset[int] = frozenset()
    energy_j: float | None = None

    @classmethod
    def at_gpu(cls, at_s: float, found: GpuReading) -> _Look:
        there = frozenset(process.pid for process in found.processes or ())
        return cls(
            at_s=at_s,
            clock_mhz=found.sm_clock_mhz,
            power_w=found.power_w,
            power_over_s=found.power_over_s or 0.0,
            temperature_c=found.temperature_c,
            slowed_s=found.slowed_s,
            link=(found.pcie_generation, found.pcie_width),
            processes=there,
            energy_j=found.energy_j,
        )

    @classmethod
    def at_host(cls, at_s: float, before_s: float, found: HostReading) -> _Look:
        """`before_s`: when it was read before, since when its power is a mean."""
        over_s = at_s - before_s
        return cls(at_s, found.frequency_mhz, found.power_w, over_s, found.temperature_c)


@dataclass
class _Watched:
    """One device in the current race."""

    looks: list[_Look] = field(default_factory=list)
    blocks: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # begin, end
    known: set[int] = field(default_factory=set)  # processes already told of
    card: Gpu | None = None  # as it was detected

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
                watched = telemetry._watched[gpu.device]
                watched.card = gpu
                watched.known = {process.pid for process in gpu.processes or ()}
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
            host = self._host.read()
            self._watched["cpu"].looks.append(_Look.at_host(at_s, self._host_at_s, host))
            self._host_at_s = at_s
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
        powers = [look.power_w for look in within if look.power_w and _is_own(look, blocks)]
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
            counted_power_w=_counted_power(watched.looks, blocks),
        )

    def warnings(self, subject: str, own: Collection[int]) -> list[Warning]:
        """What was wrong with the devices during the race for `subject`."""
        found = []
        for device, watched in self._watched.items():
            found += [*_throttled(device, watched), *_moved(device, watched)]
            found += [*_intruders(device, watched, own), *_held_low(device, watched)]
        return [Warning(code, message, remedy, subject) for code, message, remedy in found]


def _counted_power(looks: list[_Look], blocks: list[tuple[float, float]]) -> float | None:
    """Mean power between looks that have nearly nothing but these blocks between them."""
    energy_j = time_s = 0.0
    for one, two in pairwise(look for look in looks if look.energy_j is not None):
        between = two.at_s - one.at_s
        if between > 0 and _own_s(blocks, one.at_s, two.at_s) >= OWN_SHARE * between:
            energy_j += (two.energy_j or 0.0) - (one.energy_j or 0.0)
            time_s += between
    return energy_j / time_s if time_s else None


def _own_s(blocks: list[tuple[float, float]], start_s: float, end_s: float) -> float:
    """How much of this time fell into these blocks."""
    return sum(max(0.0, min(end_s, end) - max(start_s, begin)) for begin, end in blocks)


def _is_own(look: _Look, blocks: list[tuple[float, float]]) -> bool:
    """Whether a power was drawn in these blocks: a mean over 1 s of a card that worked 0.2 s of it
    at 600 W and idled at 100 W is 200 W."""
    since_s = look.at_s - look.power_over_s
    return _own_s(blocks, since_s, look.at_s) >= OWN_SHARE * look.power_over_s


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
    counted = {cause for cause, share in _slowed(watched).items() if share >= SLOWED}
    if counted and counted <= NORMAL:
        return  # what moves the clock of a healthy card: no cooling helps
    for blocks in watched.blocks.values():
        clocks = [look.clock_mhz for look in watched.within(blocks) if look.clock_mhz]
        if len(clocks) >= ENOUGH_CLOCKS and min(clocks) < (1 - CLOCK_MOVED) * max(clocks):
            span = f"{min(clocks):.0f} to {max(clocks):.0f} MHz"
            message = f"the clock of {device} moved from {span} while it was measured"
            yield "clock_moved", message, "let it cool, or give it a larger --budget"
            return


def _held_low(device: str, watched: _Watched) -> Iterator[tuple[str, str, str]]:
    """Clock and link under load, where an idle card's would prove nothing."""
    card = watched.card
    busy = [look for blocks in watched.blocks.values() for look in watched.within(blocks)]
    if card is None or len(busy) < ENOUGH_CLOCKS:
        return
    highest = max((look.clock_mhz for look in busy if look.clock_mhz), default=None)
    if highest and card.max_sm_clock_mhz and highest < CLOCK_LOW * card.max_sm_clock_mhz:
        message = (
            f"the clock of {device} stayed at {highest:.0f} of {card.max_sm_clock_mhz:.0f} MHz"
        )
        yield "clock_low", message, "look for locked clocks or a low power limit: `nvidia-smi -q`"
    for what, place, most in (
        ("generation", 0, card.pcie.max_generation),
        ("lanes", 1, card.pcie.max_width),
    ):
        best = max((look.link[place] or 0 for look in busy), default=0)
        if best and most and best < most:
            message = f"the PCIe link of {device} stayed at {best} of {most} {what} under load"
            yield "pcie_slow", message, "reseat the card, or use another slot; look at the BIOS"


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
