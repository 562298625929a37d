"""`workbench watch`: each sensor of the machine with its course over the last minutes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import ClassVar

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

Series = deque[float | None]


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
        self._series: dict[tuple[str, str], Series] = {}

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
        for name, value in _host_values(snapshot.host, self._machine.memory.total_bytes).items():
            self._series_of("cpu", name).append(value)
        for reading in snapshot.gpus:
            for name, value in _gpu_values(reading).items():
                self._series_of(f"gpu {reading.index}", name).append(value)
        if not self.is_unread:
            self._paint()

    def _series_of(self, device: str, name: str) -> Series:
        return self._series.setdefault((device, name), deque(maxlen=KEPT))

    def _paint(self) -> None:
        self.query_one("#readings", Drawn).show(lambda width, _: self._text(width))

    def _text(self, width: int) -> Content:
        latest, cpu = self._latest, self._machine.cpu
        title = f"CPU  {cpu.model or units.NOT_AVAILABLE}  ({cpu.effective_cores} cores)"
        lines = [heading(title, width, "strong cpu")]
        if latest is None:
            return joined([*lines, Text.of(("waiting for the first reading", "dim"))])
        lines += facts_lines(self._host_facts(latest.host, width), width)
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

    def _host_facts(self, found: HostReading, width: int) -> list[Fact]:
        total = self._machine.memory.total_bytes
        free = found.memory_available_bytes
        memory = None if free is None else f"{units.size(total - free)} of {units.size(total)}"
        draw = self._drawer("cpu", "cpu", width)
        facts = [
            draw("busy", _text(found.utilization_percent, "%"), 100.0),
            draw("clock", _text(found.frequency_mhz, "MHz"), self._machine.cpu.max_frequency_mhz),
            draw("power", _text(found.power_w, "W"), None),
            draw("temperature", _text(found.temperature_c, "°C"), 100.0),
            draw("memory", memory, float(total)),
        ]
        return [*facts, *missing(found.unavailable)]

    def _gpu_facts(self, gpu: Gpu, found: GpuReading, width: int) -> list[Fact]:
        total = gpu.memory_total_bytes
        held = found.memory_used_bytes
        memory = None if held is None else units.size(held)
        if memory is not None and total:
            memory += f" of {units.size(total)}"
        draw = self._drawer(f"gpu {found.index}", "gpu", width)
        facts = [
            draw("busy", _text(found.utilization_percent, "%"), 100.0),
            draw("SM clock", _text(found.sm_clock_mhz, "MHz"), gpu.max_sm_clock_mhz),
            draw("power", _text(found.power_w, "W", gpu.power_limit_w), gpu.power_limit_w),
            draw("temperature", _text(found.temperature_c, "°C"), 100.0),
            draw("memory", memory, float(total) if total else None),
        ]
        events = [reason for reason in found.clock_event_reasons or () if reason != "gpu_idle"]
        if events:
            causes = ", ".join(events).replace("_", " ")
            facts.append(Fact("throttled", Text.of((causes, "warning"))))
        return [*facts, *missing(found.unavailable)]

    def _drawer(
        self, device: str, tone: str, width: int
    ) -> Callable[[str, str | None, float | None], Fact]:
        """Makes the line of one sensor: its value now, and its course on a scale up to `most`."""

        def draw(name: str, text: str | None, most: float | None) -> Fact:
            if text is None:
                return Fact(name, Text.of((units.NOT_AVAILABLE, "dim")))
            course = [value for value in self._series_of(device, name) if value is not None]
            room = max(0, width - 14 - VALUE_WIDTH)
            # One cell per snapshot, the newest at the right: the course moves and never stretches.
            shown = course[-room:] if room else []
            high = most or max(shown, default=1.0) or 1.0
            line = glyphs.sparkline(shown, len(shown), 0.0, high)
            value = text.ljust(VALUE_WIDTH)
            return Fact(name, Text.of(value, (line.rjust(room), tone)))

        return draw


def _host_values(found: HostReading, total_bytes: int) -> dict[str, float | None]:
    free = found.memory_available_bytes
    return {
        "busy": found.utilization_percent,
        "clock": found.frequency_mhz,
        "power": found.power_w,
        "temperature": found.temperature_c,
        "memory": None if free is None else float(total_bytes - free),
    }


def _gpu_values(found: GpuReading) -> dict[str, float | None]:
    return {
        "busy": found.utilization_percent,
        "SM clock": found.sm_clock_mhz,
        "power": found.power_w,
        "temperature": found.temperature_c,
        "memory": None if found.memory_used_bytes is None else float(found.memory_used_bytes),
    }


def _text(value: float | None, unit: str, most: float | None = None) -> str | None:
    if value is None:
        return None
    return f"{value:.0f} {unit}" if most is None else f"{value:.0f} of {most:.0f} {unit}"


def run_watch(machine: Machine, *, every_s: float) -> int:
    """Watch until the user quits; returns the exit code."""
    left = threading.Event()
    stream = snapshots(machine, every_s=every_s, sleep=left.wait)
    app = WatchApp(machine, stream, stop=left.set)
    return app.show()
