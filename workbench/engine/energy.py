"""Energy of a step on the CPU, from the energy counters of its packages (RAPL)."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..machine.host.readings import package_energy_j
from ..report.candidate import ENERGY
from ..stats.samples import median


class EnergyMeter:
    """Reads the counters around a block."""

    def __init__(self) -> None:
        self._power_w: float | None = None  # mean over the last block

    @contextmanager
    def around(self, device: str) -> Iterator[None]:
        """Measure a block on `device`; the counters cover the CPU only."""
        self._power_w = None
        if device != "cpu":
            yield
            return
        before, began = package_energy_j()[0], time.monotonic()
        yield
        after, ended = package_energy_j()[0], time.monotonic()
        if before is not None and after is not None and after > before:  # they wrap around
            self._power_w = (after - before) / (ended - began)

    def figures(self, samples_s: Sequence[float]) -> dict[str, float]:
        """Joules per step of the last block: its mean power times the median step."""
        return {} if self._power_w is None else {ENERGY: self._power_w * median(samples_s)}
