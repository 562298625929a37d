"""Our side of the process that looks at the GPUs in use, again and again, while a run goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ...process.line_process import Ended
from .nvml import GpuSample
from .probe_client import nvml_reason_of, start_probe

EVERY_S = 0.5  # NVML's calls serialise on the driver's lock (FACTS A2): more would disturb
SILENT_S = 30.0  # a call on a lost GPU can hang; the first after boot takes seconds
MOST_RESTARTS = 3
_decode = msgspec.json.Decoder(GpuSample).decode


class GpuSampler:
    """Looks at the GPUs numbered `indices` (NVML's numbers); a crash costs a gap, not the run."""

    def __init__(
        self,
        indices: Sequence[int],
        *,
        every_s: float | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._arguments = ["pulse", f"{every_s or EVERY_S:g}", *map(str, indices)]
        self._environ = environ
        self._restarts = 0
        self._over = False
        self._start()

    def _start(self) -> None:
        self._helper = start_probe(*self._arguments, environ=self._environ)
        self._heard = time.monotonic()

    def drain(self) -> Iterator[GpuSample]:
        """What has come since the last call; a pulse with a reason stands for a gap."""
        while not self._over:
            line = self._helper.poll()
            if line is None:
                if time.monotonic() - self._heard <= SILENT_S:
                    return
                self._helper.close()
                line = Ended("silent", f"gave no reading for {SILENT_S:g} s")
            self._heard = time.monotonic()
            pulse = self._pulse(line)
            self._over = pulse.reason is not None and not self._goes_on(line)
            yield pulse

    def _pulse(self, line: bytes | Ended) -> GpuSample:
        if isinstance(line, bytes):
            try:
                return _decode(line)
            except msgspec.MsgspecError:
                self._helper.close()
                line = Ended("crashed", "gave an answer that cannot be read")
        return GpuSample(time.monotonic(), [], nvml_reason_of(line))

    def _goes_on(self, line: bytes | Ended) -> bool:
        """Start again after a death, a few times; NVML's own refusal is final."""
        if isinstance(line, bytes) or self._restarts == MOST_RESTARTS:
            self.close()
            return False
        self._restarts += 1
        self._start()
        return True

    def close(self) -> None:
        self._helper.close()
