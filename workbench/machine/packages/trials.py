"""Runs `stack_trial` for several packages, each in a process of its own."""

import time
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


def try_packages(
    names: Iterable[str], python: str | None = None, *, at_once: bool = True
) -> dict[str, Trial]:
    """Package -> trial; a crash or a hang is that package's failure.

    `at_once` is not for GPUs that admit one process at a time.
    """
    file = Path(stack_trial.__file__)
    started: Iterable[tuple[str, QueryProcess, float]] = (
        (name, QueryProcess(command(file, name, python=python)), time.monotonic()) for name in names
    )
    if at_once:
        started = list(started)
    return {name: _answer(process, since_s) for name, process, since_s in started}


def _answer(process: QueryProcess, since_s: float) -> Trial:
    decode = msgspec.json.Decoder(Trial).decode
    trial = process.answer(lambda line: decode(printable_json(line)), DEADLINE_S, since_s)
    process.close()
    if isinstance(trial, Ended):
        return Trial(failure=f"the process that tried it {trial.message}")
    return trial
