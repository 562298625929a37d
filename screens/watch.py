"""`workbench watch`: each sensor of the machine with its course over the last minutes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Footer
from textual.worker import get_current_worker

from workbench.engine.exit_codes import OK
from workbench.export.view import glyphs
from workbench.export.view.facts import Fact, facts_lines, heading
from workbench.export.view.machine import gpu_title, missing
from workbench.export.view.spans import Text
from workbench.machine.snapshots import Snapshot, snapshots
from workbench.records.machine import Gpu, GpuReading, HostReading, Machine
from workbench.text import units

from .terminal import TerminalApp
from .text.styles import joined
from .widgets.drawn import Drawn

KEPT = 600  # snapshots: ten minutes at one a second
VALUE_WIDTH = 22
WIDEST = 30  # cells of a course, which are all sent again when it moves by one


class Sensor(NamedTuple):
    """One reading, and the end of the scale that its course is drawn on."""

    name: str
    value: float | None
    unit: str
    most: float | None = None

    @property
    def text(self) -> str:
        if self.unit == "bytes":
            limit = f" of {units.size(self.most)}" if self.most else ""
            return f"{units.size(self.value)}{limit}"
        limit = f" of {self.most:.0f}" if self.unit == "W" and self.most is not None else ""
        return f"{self.value:.0f}{limit} {self.unit}"


class WatchApp(TerminalApp):
    """Shows the snapshots as they come, until the user quits."""

    TITLE = "workbench watch"
    CSS_PATH: ClassVar[list[str]] = ["app.tcss"]  # type: ignore[assignment]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "interrupt", "Quit"),
        Binding("ctrl+c,ctrl+q,escape", "interrupt", "Quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False),
    ]

    def __init__(
        self,
        machine: Machine,
        snapshots: Iterator[Snapshot],
        *,
        stop: Callable[[], None] | None = None,
    ) -> None:
        """`stop` wakes `snapshots` from its sleep when the user quits."""
        super().__init__()
        self._machine = machine
        self._snapshots = snapshots
        self._stop = stop
        self.finished = False  # no more snapshots will come
        self._latest: Snapshot | None = None
        self._series: dict[tuple[str, str], deque[float | None]] = {}

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="body"):
            yield Drawn(id="readings")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self._paint()
        self._follow()

    def on_unmount(self) -> None:
        if self._stop is not None:
            self._stop()

    def action_interrupt(self) -> None:
        """Exit; Ctrl-C is the usual end."""
        if self._exit:
            self.hurry(OK)
        else:
            self.exit()

    @work(thread=True, exit_on_error=True)
    def _follow(self) -> None:
        """Take each snapshot as it comes; in a thread, because the generator sleeps in between."""
        worker = get_current_worker()
        for snapshot in self._snapshots:
            if worker.is_cancelled or not self.is_running:
                break
            self.call_later(self._take, snapshot)
        self.finished = True

    def _take(self, snapshot: Snapshot) -> None:
        self._latest = snapshot
        readings: list[tuple[str, list[Sensor]]] = [("cpu", _of_host(snapshot.host, self._machine))]
        gpus = {gpu.index: gpu for gpu in self._machine.gpus}
        readings += [
            (f"gpu {found.index}", _of_gpu(found, gpus[found.index]))
            for found in snapshot.gpus
            if found.index in gpus
        ]
        for device, sensors in readings:
            for sensor in sensors:
                kept = self._series.setdefault((device, sensor.name), deque(maxlen=KEPT))
                kept.append(sensor.value)
        if not self.is_unread:
            self._paint()

    def _paint(self) -> None:
        self.query_one("#readings", Drawn).show(lambda width, _: self._text(width))

    def _text(self, width: int) -> Content:
        latest, cpu = self._latest, self._machine.cpu
        title = f"CPU  {cpu.model or units.NOT_AVAILABLE}  ({cpu.effective_cores} cores)"
        lines = [heading(title, width, "strong cpu")]
        if latest is None:
            return joined([*lines, Text.of(("waiting for the first reading", "dim"))])
        sensors = _of_host(latest.host, self._machine)
        facts = [self._fact("cpu", "cpu", sensor, width) for sensor in sensors]
        lines += facts_lines([*facts, *missing(latest.host.unavailable)], width)
        readings = {reading.index: reading for reading in latest.gpus}
        for gpu in self._machine.gpus:
            lines += [Text(), heading(gpu_title(gpu), width, "strong gpu")]
            reading = readings.get(gpu.index) if gpu.index is not None else None
            if reading is None:
                why = latest.gap.message if latest.gap else "no reading yet"
                lines.append(Text.of((why, "warning" if latest.gap else "dim")))
            else:
                lines += facts_lines(self._gpu_facts(gpu, reading, width), width)
        if not self._machine.gpus:
            reason = self._machine.nvml.reason
            why = f": {reason.message}" if reason else ""
            lines += [Text(), Text.of((f"No GPU to watch{why}.", "dim"))]
        return joined(lines)

    def _gpu_facts(self, gpu: Gpu, found: GpuReading, width: int) -> list[Fact]:
        sensors = _of_gpu(found, gpu)
        facts = [self._fact(f"gpu {found.index}", "gpu", sensor, width) for sensor in sensors]
        events = [reason for reason in found.clock_event_reasons or () if reason != "gpu_idle"]
        if events:
            causes = ", ".join(events).replace("_", " ")
            facts.append(Fact("throttled", Text.of((causes, "warning"))))
        return [*facts, *missing(found.unavailable)]

    def _fact(self, device: str, tone: str, sensor: Sensor, width: int) -> Fact:
        """The line of one sensor: its value now, and its course on a scale up to `most`."""
        if sensor.value is None:
            return Fact(sensor.name, Text.of((units.NOT_AVAILABLE, "dim")))
        course = [each for each in self._series[device, sensor.name] if each is not None]
        room = max(0, min(WIDEST, width - 14 - VALUE_WIDTH))
        # One cell per snapshot, the newest at the right: the course moves and never stretches.
        shown = course[-room:] if room else []
        high = sensor.most or max(shown, default=1.0) or 1.0
        line = glyphs.sparkline(shown, len(shown), 0.0, high)
        return Fact(sensor.name, Text.of(sensor.text.ljust(VALUE_WIDTH), (line.rjust(room), tone)))


def _of_host(found: HostReading, machine: Machine) -> list[Sensor]:
    total, free = machine.memory.total_bytes, found.memory_available_bytes
    held = None if free is None else total - free
    return [
        Sensor("busy", found.utilization_percent, "%", 100.0),
        Sensor("clock", found.frequency_mhz, "MHz", machine.cpu.max_frequency_mhz),
        Sensor("power", found.power_w, "W"),
        Sensor("temperature", found.temperature_c, "°C", 100.0),
        Sensor("memory", held, "bytes", total),
    ]


def _of_gpu(found: GpuReading, gpu: Gpu) -> list[Sensor]:
    return [
        Sensor("busy", found.utilization_percent, "%", 100.0),
        Sensor("SM clock", found.sm_clock_mhz, "MHz", gpu.max_sm_clock_mhz),
        Sensor("power", found.power_w, "W", gpu.power_limit_w),
        Sensor("temperature", found.temperature_c, "°C", 100.0),
        Sensor("memory", found.memory_used_bytes, "bytes", gpu.memory_total_bytes),
    ]


def run_watch(machine: Machine, *, every_s: float) -> int:
    """Watch until the user quits; returns the exit code."""
    left = threading.Event()
    stream = snapshots(machine, every_s=every_s, sleep=left.wait)
    app = WatchApp(machine, stream, stop=left.set)
    return app.show()
