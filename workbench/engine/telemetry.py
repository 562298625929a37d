"""Telemetry of CPU and GPUs while candidates are measured: the readings, what they show of each
case, and the warnings from them."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import msgspec
import psutil

from ..machine.host.readings import HostReader
from ..machine.nvidia.gpus import as_detected
from ..machine.nvidia.probe_client import GpuSampler
from ..records import events as ev
from ..records.document import Telemetry
from ..records.machine import Gpu, GpuReading, Machine
from ..records.reason import Warning
from ..stats import samples as stats

HOST_EVERY_S = 0.5
SLOWED = 0.02  # share of the time measured on a GPU
CLOCK_MOVED = 0.15  # drop from the highest to the lowest clock in one candidate's blocks
# Shares of the card's maximum clock, under load, the second where the driver names a setting.
CLOCK_LOW, CLOCK_SET = 0.5, 0.95
# Least time of counter readings for a mean power: counters advance every 0.1 s, and shorter windows
# are off by a fifth.
LEAST_COUNTED_S = 5.0
OWN_SHARE = 0.9  # share of a reading's time that must belong to one case
ENOUGH_CLOCKS = 4  # minimum readings to judge the spread of clocks
# A card at full load normally runs at its power limit: recorded, but no reason for a warning.
NORMAL = frozenset({"sw_power_cap"})

CAUSES = ("hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown", *NORMAL)

Span = tuple[float, float]  # begin and end on the host's clock, which runs during a pause


@dataclass
class MachineTelemetry:
    """Follows the processor and the GPUs in use, by device name such as `cpu`, `cuda:0`.

    The processor is read here, between turns; the GPUs in a process of their own.
    """

    now: Callable[[], float]
    emit: Callable[[ev.AnyEvent], None]

    def __post_init__(self) -> None:
        self._host: HostReader | None = None  # from `watch` on
        self._sampler: GpuSampler | None = None
        self._host_at_s = 0.0
        self._watched = {"cpu": Watched("cpu")}

    def watch(self, machine: Machine, devices: Collection[str]) -> None:
        """Begin to watch the processor and those of `devices` that NVML or AMD SMI knows."""
        self._host = HostReader()
        for gpu in (gpu for gpu in machine.watched if gpu.device in devices):
            self._watched[gpu.device or ""] = Watched(gpu.device or "", gpu)
        if indices := sorted(gpu.index for gpu in self._cards() if gpu.index is not None):
            self._sampler = GpuSampler(indices, vendor=machine.vendor)

    def _cards(self) -> list[Gpu]:
        return [watched.card for watched in self._watched.values() if watched.card]

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()

    def begin(self) -> None:
        self._read_host(time.monotonic())
        self._read_gpus()
        for watched in self._watched.values():
            watched.begin()

    def _read_host(self, at_s: float) -> None:
        if self._host is not None and at_s - self._host_at_s >= HOST_EVERY_S:
            host = self._host.read()
            state = GpuReading(
                index=0,
                sm_clock_mhz=host.frequency_mhz,
                power_w=host.power_w,
                power_over_s=at_s - self._host_at_s,
                temperature_c=host.temperature_c,
            )
            self._watched["cpu"].readings.append(Reading(at_s, state))
            self._host_at_s = at_s
            self.emit(ev.MachineRead(at_s=self._run_s(at_s), host=host))

    def _run_s(self, at_s: float) -> float:
        """The time on the run's clock at one of the host's since the last pause."""
        return max(0.0, round(self.now() - (time.monotonic() - at_s), 4))

    def _read_gpus(self) -> None:
        """Take in the samples since the last call."""
        if self._sampler is None:
            return
        for sample in self._sampler.drain():
            at_s = sample.monotonic_s
            gpus = as_detected(sample.gpus, self._cards())
            readings = {reading.index: reading for reading in gpus}
            for watched in self._watched.values():
                if watched.card is not None and watched.card.index in readings:
                    watched.readings.append(Reading(at_s, readings[watched.card.index]))
            self.emit(ev.MachineRead(at_s=self._run_s(at_s), gpus=gpus, gap=sample.reason))

    def measured(
        self, case_id: str, device: str, began_s: float, ended_s: float, *, turn_s: float = 0.0
    ) -> None:
        """Note that a block of this case on `device` has just ended; times are on the host's clock.

        Its whole turn took `turn_s`, with a lead-in of the same work at clocks that still rise.
        """
        watched = self._watched.get(device)
        if watched is not None:
            watched.blocks[case_id].append((began_s, ended_s))
            watched.turns[case_id].append((min(began_s, ended_s - turn_s), ended_s))
        self._read_host(ended_s)  # between two turns, so the reading still belongs to this one
        self._read_gpus()

    def of_case(self, case_id: str, device: str) -> Telemetry | None:
        """The state of the device during this case's blocks; None if no reading fell into them."""
        watched = self._watched.get(device)
        return None if watched is None else watched.of_case(case_id)

    def warnings(self, subject: str, own: Collection[int]) -> list[Warning]:
        """Warnings about the devices during the race for `subject`; `own` are our process ids."""
        return [
            msgspec.structs.replace(warning, subject=subject)
            for watched in self._watched.values()
            for warning in watched.warnings(own)
        ]


@dataclass(frozen=True)
class Reading:
    """The state of a device at a time on the host's clock, in the same fields for CPU and GPU."""

    at_s: float
    state: GpuReading


@dataclass
class Watched:
    """One device in the current race."""

    device: str
    card: Gpu | None = None  # the GPU as detected before the run
    readings: list[Reading] = field(default_factory=list)
    blocks: dict[str, list[Span]] = field(default_factory=partial(defaultdict, list))  # by case
    turns: dict[str, list[Span]] = field(default_factory=partial(defaultdict, list))  # by case

    def __post_init__(self) -> None:
        found = self.card.processes if self.card is not None else None
        self._known = {process.pid for process in found or ()}  # already reported

    def begin(self) -> None:
        """Begin a race: keep the last reading before it only."""
        self.readings = self.readings[-1:]
        self.blocks.clear()
        self.turns.clear()

    def of_case(self, case_id: str) -> Telemetry | None:
        """The state of the device during this case's blocks; None if no reading fell into them."""
        if not (within := self._within(case_id)):
            return None
        begin, end = self.blocks[case_id][0][0], self.blocks[case_id][-1][1]
        turns = self.turns[case_id]
        powers = []
        for reading in within:
            # A card that works 0.2 s at 600 W and idles 0.8 s at 100 W reads 200 W as a mean over
            # 1 s, so only means over our own turns count.
            over_s, power_w = reading.state.power_over_s or 0.0, reading.state.power_w
            if power_w and _own_s(turns, reading.at_s - over_s, reading.at_s) >= OWN_SHARE * over_s:
                powers.append(power_w)
        states = [reading.state for reading in within]
        heats = [state.temperature_c for state in states if state.temperature_c is not None]
        clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz is not None]
        before = [r.state.sm_clock_mhz for r in self.readings if r.at_s <= begin]
        after = [r.state.sm_clock_mhz for r in self.readings if r.at_s > end]
        return Telemetry(
            readings=len(within),
            clock_before_mhz=before[-1] if before else None,
            clock_mhz=stats.median(clocks) if clocks else None,
            clock_after_mhz=after[0] if after else None,
            power_w=sum(powers) / len(powers) if powers else None,
            temperature_c=max(heats, default=None),
            slowed=self._slowed(),
            counted_power_w=self._counted_power(turns),
        )

    def warnings(self, own: Collection[int]) -> Iterator[Warning]:
        """Warnings about the device during the race; `own` are our process ids."""
        yield from self._throttled()
        yield from self._moved()
        yield from self._intruders(own)
        yield from self._held_low()

    def _within(self, case_id: str) -> list[Reading]:
        """The readings that fell into the blocks of a case."""
        spans = self.blocks.get(case_id, ())
        return [r for r in self.readings if any(began < r.at_s <= ended for began, ended in spans)]

    def _busy(self) -> list[GpuReading]:
        """The states of the device while it was measured."""
        return [reading.state for case_id in self.blocks for reading in self._within(case_id)]

    def _slowed(self) -> dict[str, float]:
        """Share of the race's time on this GPU (0 to 1) that each cause slowed, by its name."""
        return self._counted() | self._seen()

    def _seen(self) -> dict[str, float]:
        """The share of readings that show a cause for which this driver has no counter."""
        counted = {cause for r in self.readings for cause in r.state.slowed_s or ()}
        found = (state.clock_event_reasons for state in self._busy())
        seen = [causes for causes in found if causes is not None]
        if len(seen) < ENOUGH_CLOCKS:
            return {}
        shares = {cause: sum(cause in each for each in seen) / len(seen) for cause in CAUSES}
        return {cause: s for cause, s in shares.items() if s > 0 and cause not in counted}

    def _counted(self) -> dict[str, float]:
        """Shares of time for the causes that the driver's counters cover."""
        counted = [(r.at_s, r.state.slowed_s) for r in self.readings if r.state.slowed_s]
        busy_s = sum(end - begin for turns in self.turns.values() for begin, end in turns)
        if len(counted) < 2 or not busy_s:
            return {}
        (began_s, first), (ended_s, last) = counted[0], counted[-1]
        if self.card is not None and self.card.is_busy:  # counters also run between our turns
            busy_s = max(busy_s, ended_s - began_s)
        shares = {cause: (last[cause] - first.get(cause, last[cause])) / busy_s for cause in last}
        return {cause: min(1.0, share) for cause, share in shares.items() if share > 0}

    def _counted_power(self, turns: list[Span]) -> float | None:
        """Mean watts between readings while almost only these turns ran; None if too short."""
        energy_j = time_s = 0.0
        for one, two in pairwise(r for r in self.readings if r.state.energy_j is not None):
            between = two.at_s - one.at_s
            if between > 0 and _own_s(turns, one.at_s, two.at_s) >= OWN_SHARE * between:
                energy_j += (two.state.energy_j or 0.0) - (one.state.energy_j or 0.0)
                time_s += between
        return energy_j / time_s if time_s >= LEAST_COUNTED_S else None

    def _throttled(self) -> Iterator[Warning]:
        for cause, share in self._slowed().items():
            if share >= SLOWED and cause not in NORMAL:
                words = cause.replace("_", " ")
                message = f"{self.device} was throttled for {share:.0%} of its time ({words})"
                remedy = "check cooling and power supply: `nvidia-smi -q -d PERFORMANCE`"
                yield Warning("gpu_throttled", message, remedy)

    def _is_normal(self) -> bool:
        """Whether the only causes of a lower clock are normal at full load."""
        counted = {cause for cause, share in self._slowed().items() if share >= SLOWED}
        return bool(counted) and counted <= NORMAL

    def _moved(self) -> Iterator[Warning]:
        if self._is_normal():
            return  # the power limit moves a healthy card's clock too, and cooling does not help
        for case_id in self.blocks:
            states = [reading.state for reading in self._within(case_id)]
            clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz]
            if len(clocks) >= ENOUGH_CLOCKS and min(clocks) < (1 - CLOCK_MOVED) * max(clocks):
                span = f"{min(clocks):.0f} to {max(clocks):.0f} MHz"
                name = self.device if self.card is not None else "the CPU"
                message = f"the clock of {name} moved from {span} during the race"
                remedy = f"let {name} cool down, or raise --budget"
                yield Warning("clock_moved", message, remedy)
                return

    def _held_low(self) -> Iterator[Warning]:
        """Clock or PCIe link that stay low under load; an idle card lowers both on purpose."""
        card, busy = self.card, self._busy()
        if card is None or len(busy) < ENOUGH_CLOCKS:
            return
        best_mhz = max(state.sm_clock_mhz or 0.0 for state in busy)
        most_mhz = card.max_sm_clock_mhz or 0
        is_lowered = 0 < (card.power_limit_w or 0) < (card.power_default_w or 0)
        is_set = all("applications_clocks_setting" in (s.clock_event_reasons or ()) for s in busy)
        least_mhz = (CLOCK_SET if is_set else CLOCK_LOW) * most_mhz
        if 0 < best_mhz < least_mhz and (is_lowered or not self._is_normal()):
            message = f"the clock of {self.device} stayed at {best_mhz:.0f} of {most_mhz:.0f} MHz"
            remedy = "check for locked clocks or a low power limit: `nvidia-smi -q`"
            yield Warning("clock_low", message, remedy)
        if card.is_virtual or card.is_soldered:
            return  # a virtual machine hides the link, and a laptop's board limits it
        for noun, most, seen in (
            ("generation", card.pcie.max_generation, [state.pcie_generation for state in busy]),
            ("lanes", card.pcie.max_width, [state.pcie_width for state in busy]),
        ):
            if 0 < (best := max(now or 0 for now in seen)) < (most or 0):
                stayed = f"stayed at {best} of {most} {noun} under load"
                other = "reseat it, use another slot, or check the BIOS, unless the board limits it"
                yield Warning("pcie_slow", f"the PCIe link of {self.device} {stayed}", other)

    def _intruders(self, own: Collection[int]) -> Iterator[Warning]:
        """Processes that started on the GPU during the race.

        NVML in a container may report the host's process ids, which mean nothing here.  They count
        only if they include one of our own workers, which has just used the GPU.
        """
        seen = {process.pid for r in self.readings for process in r.state.processes or ()}
        if seen.isdisjoint(own):
            return
        new = {pid for pid in seen - self._known - set(own) if psutil.pid_exists(pid)}
        self._known |= new
        if new:
            message = f"another process started on {self.device} during the race"
            remedy = "find it with `nvidia-smi`, wait for its end, and rerun"
            yield Warning("busy_gpu", message, remedy)


def _own_s(turns: list[Span], start_s: float, end_s: float) -> float:
    """Seconds of this interval that fall into the turns."""
    return sum(max(0.0, min(end_s, end) - max(start_s, begin)) for begin, end in turns)
