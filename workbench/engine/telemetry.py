"""Telemetry of CPU and GPUs while candidates are measured."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec

from ..machine.host.readings import HostReader
from ..machine.nvidia.gpus import as_detected
from ..machine.nvidia.probe_client import GpuSampler
from ..records import events as ev
from ..records.document import Telemetry
from ..records.machine import Gpu, GpuReading, Machine
from ..records.reason import Warning
from .watched import Reading, Watched

HOST_EVERY_S = 0.5


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
