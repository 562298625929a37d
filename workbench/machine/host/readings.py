"""Reads the CPU's current utilisation, clock, temperature and power from small files.

Clock and temperature do not come from psutil: its clock falls back to the nominal one of
/proc/cpuinfo, and its temperatures read all sensors of the machine, even slow disks.
Sources: kernel docs admin-guide/pm/cpufreq.rst (scaling_cur_freq), hwmon/sysfs-interface.rst,
power/powercap/powercap.rst (energy_uj).
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from ...process.cores import allowed_cores
from ...records.machine import HostReading
from .memory import read_memory
from .sysfs import NOT_LINUX, read_int, read_text
from .topology import online_cpus

_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")

_BUSY = ("user", "nice", "system", "irq", "softirq")  # guest time is part of user time
_IDLE = ("idle", "iowait", "steal")
UNWRAPPED_S = 60.0  # in which no counter wraps: the smallest known, 65.5 kJ, lasts 65 s at 1 kW


class HostReader:
    """Takes readings; utilisation and power are means since the previous reading."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._root, self._allowed = root, allowed_cores()
        self._times = core_times(self._allowed)
        self._energy_j, self._at = package_energy_j(self._root)[0], time.monotonic()
        self._used_j = self._over_s = 0.0  # counted since the last reading

    def read(self) -> HostReading:
        """The current state; values that cannot be read have a reason."""
        memory = read_memory(self._root)
        available = memory.unavailable.get("available_bytes", memory.available_bytes)
        found: dict[str, Any] = {
            "memory_available_bytes": available,
            "utilization_percent": self._utilization(),
            "frequency_mhz": self._frequency(),
            "temperature_c": self._temperature(),
            "power_w": self._power(),
        }
        reasons = {name: value for name, value in found.items() if isinstance(value, str)}
        return HostReading(**found | dict.fromkeys(reasons), unavailable=reasons)

    def _utilization(self) -> float | str:
        before, now = self._times, core_times(self._allowed)
        self._times = now
        pairs = [(before[core], times) for core, times in now.items() if core in before]
        total = sum(total_s(new) - total_s(old) for old, new in pairs)
        if total <= 0:
            return "no time has passed" if now else NOT_LINUX
        busy = sum(busy_s(new) - busy_s(old) for old, new in pairs)
        return 100.0 * min(1.0, max(0.0, busy / total))

    def _frequency(self) -> float | str:
        """The clock of the fastest usable core, since idle ones report their lowest clock."""
        cpus = self._root / "sys/devices/system/cpu"
        files = [cpus / f"cpu{core}/cpufreq/scaling_cur_freq" for core in self._allowed]
        clocks = [khz for khz in map(read_int, files) if khz]
        if not clocks:
            return "the kernel has no cpufreq here, as in most virtual machines"
        return max(clocks) / 1000

    def _temperature(self) -> float | str:
        """The warmest sensor of the CPU."""
        temperatures: list[int] = []
        for sensor in (self._root / "sys/class/hwmon").glob("hwmon*"):
            if read_text(sensor / "name").strip() in _CPU_SENSORS:
                readings = map(read_int, sensor.glob("temp*_input"))
                temperatures += [reading for reading in readings if reading is not None]
        if not temperatures:
            return "the kernel shows no sensor of the CPU here"
        return max(temperatures) / 1000

    def count_energy(self) -> str:
        """Add the energy since the last call; returns why it cannot be read, else ""."""
        before, began = self._energy_j, self._at
        (self._energy_j, why), self._at = package_energy_j(self._root), time.monotonic()
        used_j = used_energy_j(before, self._energy_j, self._at - began)
        if used_j is not None:
            self._used_j, self._over_s = self._used_j + used_j, self._over_s + self._at - began
        return why

    def _power(self) -> float | str:
        """Mean watts of all packages together since the last reading, or why they are unknown."""
        why = self.count_energy()
        used_j, over_s = self._used_j, self._over_s
        self._used_j = self._over_s = 0.0
        if over_s > 0:
            return used_j / over_s
        return why or "the energy counter may have begun anew"


def package_energy_j(root: Path = Path("/")) -> tuple[list[float] | None, str]:
    """Joules on the counter of each CPU package, or None and the reason."""
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:[0-9]*"))
    # psys counts the whole platform, with the packages.
    packages = [
        zone
        for zone in zones
        if zone.name.count(":") == 1 and not read_text(zone / "name").startswith("psys")
    ]
    if not packages:
        return None, "the kernel shows no RAPL energy counter here"
    read = [read_int(package / "energy_uj") for package in packages]
    known = [value for value in read if value is not None]
    if len(known) < len(packages):
        return None, "only root may read it on this kernel (since CVE-2020-8694)"
    return [value / 1e6 for value in known], ""


def used_energy_j(
    before: list[float] | None, now: list[float] | None, elapsed_s: float
) -> float | None:
    """Joules that all packages used in `elapsed_s`; None if a counter may have wrapped."""
    if before is None or now is None or len(before) != len(now) or elapsed_s > UNWRAPPED_S:
        return None
    used = [late - early for early, late in zip(before, now, strict=True)]
    return sum(used) if min(used) >= 0 else None


def core_times(cores: Iterable[int]) -> dict[int, Any]:
    """psutil's times of these cores since boot, in seconds by kind; {} if it cannot read them."""
    try:
        times = psutil.cpu_times(percpu=True)
    except OSError:
        return {}
    chosen, numbers = sorted(cores), sorted(online_cpus(Path("/")))  # psutil has no core numbers
    if len(chosen) == len(times):  # lxcfs shows a container its own cores, numbered from 0
        numbers = chosen
    elif len(numbers) != len(times):  # in some containers psutil sees fewer than sysfs shows
        numbers = list(range(len(times)))
    numbered = dict(zip(numbers, times, strict=True))
    return {core: numbered[core] for core in chosen if core in numbered}


def busy_s(times: Any) -> float:
    """Seconds used by programs and the kernel, without time stolen by a hypervisor."""
    return sum(getattr(times, kind, 0.0) for kind in _BUSY)


def total_s(times: Any) -> float:
    return busy_s(times) + sum(getattr(times, kind, 0.0) for kind in _IDLE)
