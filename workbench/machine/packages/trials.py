"""Runs `stack_trial` for several packages, each in a process of its own."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...process.children import command
from ...process.line_process import Ended, QueryProcess
from ...records.inspection import Trial
from ...text.sanitize import printable_json
from . import stack_trial

DEADLINE_S = 120.0  # a CUDA build on a cold network disk takes most of a minute to import


def try_packages(
    names: Sequence[str], python: str | None = None, *, at_once: bool = True
) -> dict[str, Trial]:
    """Package -> trial; a crash or a hang is that package's failure.

    `at_once` is not for GPUs that admit one process at a time.
    """
    file = Path(stack_trial.__file__)
    processes = (QueryProcess(command(file, name, python=python)) for name in names)
    started = list(processes) if at_once else processes
    return dict(zip(names, map(_answer, started), strict=True))


def _answer(process: QueryProcess) -> Trial:
    decode = msgspec.json.Decoder(Trial).decode
    trial = process.answer(lambda line: decode(printable_json(line)), DEADLINE_S, since_start=True)
    process.close()
    if isinstance(trial, Ended):
        return Trial(failure=f"the process that tried it {trial.message}")
    return trial
