"""Our side of `stack_trial`: each package tried in a process of its own, side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...process.line_process import Ended, Helper
from . import stack_trial

DEADLINE_S = 120.0  # a CUDA build on a cold network disk takes most of a minute to import


class Trial(msgspec.Struct, frozen=True):
    """What happened when a package was imported and set to work."""

    version: str | None = None
    libraries: dict[str, str | None] = {}  # "CUDA", "cuDNN", "ROCm" -> version
    devices: dict[str, str | None] = {}  # device or provider -> None: it works, else why not
    failure: str | None = None  # it could not be tried at all


def try_packages(names: Iterable[str], python: str | None = None) -> dict[str, Trial]:
    """By package; a crash or a hang is that package's failure."""
    source = Path(stack_trial.__file__).read_text(encoding="utf-8")
    environ = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    started = {
        name: Helper([python or sys.executable, "-c", source, name], environ=environ)
        for name in names
    }
    return {name: _answer(helper) for name, helper in started.items()}


def _answer(helper: Helper) -> Trial:
    line = helper.line(DEADLINE_S)
    helper.close()
    if isinstance(line, Ended):
        return Trial(failure=f"the process that tried it {line.message}")
    try:
        return msgspec.json.decode(line, type=Trial)
    except msgspec.MsgspecError:
        return Trial(failure="the process that tried it gave an answer that cannot be read")
