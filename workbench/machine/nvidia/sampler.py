"""The run's side of the process that reads the GPUs in use at regular intervals."""

import time
from collections.abc import Iterator, Sequence

import msgspec

from ...process.line_process import Ended
from .nvml import GpuSample
from .probe_client import ending, start_probe

# NVML's calls wait for one another at the driver's lock, and so do the calls of the program that is
# measured: an overlay that polled at 40 Hz held it two thirds of the time (MangoHud#2104).
EVERY_S = 0.5
SILENT_S = 30.0  # a call on a lost GPU can hang; the first after boot takes seconds
MOST_RESTARTS = 3
_APIS = {"nvidia": "NVML", "amd": "amdsmi"}
_decode = msgspec.json.Decoder(GpuSample).decode


class GpuSampler:
    """Reads the GPUs with these numbers in their vendor's library; a crash costs only a gap."""

    def __init__(
        self, indices: Sequence[int], *, every_s: float = EVERY_S, vendor: str = "nvidia"
    ) -> None:
        self._vendor = vendor
        self._arguments = ["sample", f"{every_s:g}", *map(str, indices)]
        self._restarts = 0
        self._over = False
        self._start()

    def _start(self) -> None:
        self._process = start_probe(*self._arguments, vendor=self._vendor)
        self._heard_at_s = time.monotonic()

    def drain(self) -> Iterator[GpuSample]:
        """The samples taken since the last call; one with a reason stands for a gap."""
        while not self._over:
            line = self._process.poll()
            if line is None:
                if time.monotonic() - self._heard_at_s <= SILENT_S:
                    return
                self._process.close()
                line = Ended("silent", f"gave no reading for {SILENT_S:g} s")
            self._heard_at_s = time.monotonic()
            answer = self._process.parse(line, _decode)
            if isinstance(answer, Ended):
                sample = GpuSample(time.monotonic(), [], ending(answer, _APIS[self._vendor]))
                self._over = self._restarts == MOST_RESTARTS
                if not self._over:
                    self._restarts += 1
                    self._start()
            else:
                sample = answer
                self._over = sample.reason is not None  # NVML's own refusal is final
            yield sample
        self.close()

    def close(self) -> None:
        self._process.close()
