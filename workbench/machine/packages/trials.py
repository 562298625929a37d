"""Runs `stack_trial` for several packages at once, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...process.children import command
from ...process.line_process import Ended, QueryProcess
from ...text.sanitize import printable_json
from . import stack_trial

DEADLINE_S = 120.0  # a CUDA build on a cold network disk takes most of a minute to import


class Trial(msgspec.Struct, frozen=True):
    """The outcome of importing a package and computing with it."""

    version: str | None = None
    libraries: dict[str, str | None] = {}  # "CUDA", "cuDNN", "ROCm" -> version
    devices: dict[str, str | None] = {}  # device or provider -> None if it works, else the reason
    failure: str | None = None  # why it could not be tried at all


def try_packages(names: Iterable[str], python: str | None = None) -> dict[str, Trial]:
    """Package -> trial; a crash or a hang is that package's failure."""
    environ = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    started = {
        name: QueryProcess(
            command(Path(stack_trial.__file__), name, python=python), environ=environ
        )
        for name in names
    }
    return {name: _answer(process) for name, process in started.items()}


def _answer(process: QueryProcess) -> Trial:
    decode = msgspec.json.Decoder(Trial).decode
    trial = process.answer(lambda line: decode(printable_json(line)), DEADLINE_S)
    process.close()
    if isinstance(trial, Ended):
        return Trial(failure=f"the process that tried it {trial.message}")
    return trial
