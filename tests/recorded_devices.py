"""Documents of machines that are elsewhere, and what a row asks of them."""

from pathlib import Path
from typing import Any

from builders import changed, events, machine, scenario, steady
from msgspec.structs import replace

from workbench import catalog
from workbench.advisor import whatif_devices
from workbench.contract import Case
from workbench.export.json import dump
from workbench.planning import scenarios
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.records import events as ev
from workbench.records.document import Document
from workbench.records.verdict import WhatIf
from workbench.report.report import Report

H200 = "NVIDIA H200"
ROWS = scenarios.load()


def matmul(n: int, precision: str = "fp32", device: str = "cuda:0", **more: object) -> Case:
    threads = 8 if device == "cpu" else None
    fields = {"backend": "torch", "threads": threads, "params": {"n": n}, **more}
    return Case("matmul", device, precision=precision, **fields)


def rows(*arguments: str, **fields: object):
    return resolve(Request(scenarios=("floating_point",), settings=arguments, **fields), ROWS)


def run(
    times: dict[Case, float],
    *,
    errors: dict[Case, float] | None = None,
    gpu: str = H200,
    day: int = 21,
    objective: str = "throughput",
    rounds: int = 8,
) -> list[ev.AnyEvent]:
    """A run on a machine with one GPU of that name, in which each case takes steps of its time."""
    plain = scenario(
        workload=next(iter(times)).workload, textbook=None, objective=objective, precisions=()
    )
    blocks = {case: steady(time, rounds) for case, time in times.items()}
    work = {case.id: catalog.load(case.workload).work(case) for case in times}
    here = machine("cuda:0")
    named = replace(here, gpus=[replace(here.gpus[0], name=gpu)])
    found = events(blocks, gpus=["cuda:0"], errors=errors, row=plain)
    found = changed(found, ev.RacePlanned, work=work)
    found = changed(found, ev.RunStarted, started_at=f"2026-11-{day:02d}T00:00:00.000Z")
    return changed(found, ev.HardwareDetected, machine=named)


def document(times: dict[Case, float], **fields: Any) -> Document:
    """The document of such a run."""
    return Report.of(run(times, **fields)).document()


def put(folder: Path, found: Document, name: str = "h200.json") -> None:
    (folder / name).write_text(dump(found))


def ask(*arguments: str, asked: str = "h200", **fields: object) -> WhatIf:
    request = Request(scenarios=("floating_point",), settings=arguments, what_if=(asked,), **fields)
    found = resolve(request, ROWS)
    assert whatif_devices.fill(found, request) == []
    (answer,) = found[0].what_if
    return answer
