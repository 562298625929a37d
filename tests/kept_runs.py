"""Kept runs for the Runs screen, in the state folder of the test."""

from collections.abc import Sequence
from pathlib import Path

import scenes
from msgspec.structs import replace

from workbench.records import events as ev
from workbench.report import journal

EVIL = "workbench run matmul --set 'n=\x1b[31m64\u202e'"


def keep(run_id: str, events: Sequence[ev.AnyEvent], command: str | None = None) -> Path:
    first, *rest = events
    tool = first.tool if command is None else replace(first.tool, command=command)
    first = replace(first, id=run_id, tool=tool)
    path = journal.runs_folder() / f"{run_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(ev.encode(event) + b"\n" for event in (first, *rest)))
    return path


def slower(events: Sequence[ev.AnyEvent], factor: float) -> list[ev.AnyEvent]:
    """The same run, whose torch candidates in bf16 take `factor` times as long."""
    return [
        replace(event, samples_s=[value * factor for value in event.samples_s])
        if isinstance(event, ev.BlockMeasured) and "torch/bf16" in event.case
        else event
        for event in events
    ]


def keep_five() -> Path:
    """A sweep, a table twice, a cancelled run with an evil command, and no journal at all."""
    folder = journal.runs_folder()
    keep("20261120-090000-aaaa", scenes.sweep())
    keep("20261121-100000-bbbb", scenes.h200())
    keep("20261121-110000-cccc", scenes.cancelled(), EVIL)
    keep("20261121-120000-dddd", slower(scenes.h200(), 1.4))
    (folder / "20250101-000000-\x1b[31m.jsonl").write_text("no journal")
    return folder
