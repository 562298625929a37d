"""The processor's time by kind, from /proc/stat (proc(5))."""

from __future__ import annotations

from typing import NamedTuple

from .sysfs import parse_int


class Ticks(NamedTuple):
    """Clock ticks of one cpu since boot; guest time is part of user time."""

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def busy(self) -> int:
        """Used by programs and the kernel here; stolen time is somebody else's."""
        return self.total - self.idle - self.iowait - self.steal


def parse_ticks(text: str | None) -> dict[str, Ticks]:
    """By cpu, such as "cpu0"; the line of all cpus and whatever is no such line are left out."""
    found = {}
    for line in (text or "").splitlines():
        name, _, rest = line.partition(" ")
        if not name.startswith("cpu") or name == "cpu":
            continue
        fields = [parse_int(field) for field in rest.split()[: len(Ticks._fields)]]
        known = [field for field in fields if field is not None]
        if len(known) == len(Ticks._fields):
            found[name] = Ticks(*known)
    return found
