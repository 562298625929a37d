"""Verdicts of small reports, and changes to the events that lead to one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from builders import case, ceilings, changed, events, machine, scenario

from workbench.advisor.verdict import decide
from workbench.contract import Case, Work
from workbench.records import events as ev
from workbench.records.document import Clocks, SetupTimes
from workbench.records.machine import Isa
from workbench.records.reason import Reason, Warning
from workbench.records.verdict import Verdict
from workbench.report.report import Report

CPU, GPU = case("cpu-a"), case("cuda:0-a")
CPU_B, GPU_B = replace(CPU, backend="numpy"), replace(GPU, mode="nhwc")
LOW = case("cpu-a", "bf16")
ROW = scenario()
BUSY = Warning("busy_machine", "others were busy", "stop them", "row")
DIED = Reason("worker_died", "the worker died", "look at its log")
FULL = Reason("no_memory", "it needs 90 GiB", "take a smaller size")
SPENT = Reason("budget", "ran out of time", "raise --budget")
CUT = Reason("cancelled", "the run was cut short")


Blocks = Mapping[Case, Sequence[Sequence[float]]]  # by candidate: rounds of samples in seconds
NOISY = [[1.0], [2.5], [0.4], [1.6], [0.7]]
BATCHED = replace(GPU, batch=8)


Change = Callable[[ev.AnyEvent], ev.AnyEvent]


def verdict(blocks: Blocks, change: Change = lambda event: event, **options: Any) -> Verdict:
    """The verdict of a finished run of one row on a machine with a GPU, its events changed."""
    row = options.get("row", ROW)
    options.setdefault("gpus", ["cuda:0"])
    return decide(Report.of(map(change, events(blocks, **options))), row)


def other(kind: type, case: Case | None = None, **fields: Any) -> Change:
    """Other fields in the events of one kind, or in those about one case."""
    return lambda event: changed([event], kind, case, **fields)[0]


def skipped(reason: Reason) -> Change:
    """Every candidate that was not measured is skipped for `reason`."""
    measured: set[str] = set()

    def change(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.BlockMeasured):
            measured.add(event.case)
        if isinstance(event, ev.CaseFinished) and event.case not in measured:
            return msgspec.structs.replace(event, status="skipped", reason=reason)
        return event

    return change


def cut_short(event: ev.AnyEvent) -> ev.AnyEvent:
    """The run ends before the race does."""
    if isinstance(event, ev.CaseFinished):
        return msgspec.structs.replace(event, status="cancelled", reason=CUT)
    if isinstance(event, ev.RaceEnded):
        return ev.StatusChanged(at_s=event.at_s, status="running")
    return event


def busy(event: ev.AnyEvent) -> ev.AnyEvent:
    """Other programs disturb the row."""
    return ev.WarningRaised(at_s=0.4, warning=BUSY) if isinstance(event, ev.RaceStarted) else event


def with_ceilings(blocks: Blocks, work: Work, *devices: str, **options: Any) -> Verdict:
    """The verdict under ceilings of 100 GFLOP/s and 10 GB/s, every case doing `work`."""
    built = events(blocks, gpus=["cuda:0"], **options)
    built = changed(built, ev.RacePlanned, work=lambda event: dict.fromkeys(event.work, work))
    built.insert(2, ev.CeilingsKnown(at_s=0.3, ceilings=ceilings(*devices)))
    return decide(Report.of(built), ROW)


def clocked(issue_s: float | None) -> Change:
    """Queueing a step of the batched GPU candidate takes that long; a step itself 1 ms."""
    return other(ev.BlockMeasured, BATCHED, clocks=Clocks("device", 1e-3, 1e-3, issue_s))


def priced(**prices: float) -> Change:
    return other(ev.RacePlanned, prices=prices)


def machine_with(**isa: bool) -> Change:
    """The CPU has AVX2 and these instruction sets."""
    here = machine()
    cpu = msgspec.structs.replace(here.cpu, isa=Isa(avx2=True, **isa))
    return other(ev.HardwareDetected, machine=msgspec.structs.replace(here, cpu=cpu))


def reproduced_by(command: str) -> Change:
    return other(ev.RacePlanned, reproduce=command)


# Every candidate waits for its data 45% of the time.
waiting = other(ev.BlockMeasured, metrics={"waiting_fraction": 0.45})
# Copying to the GPU takes 3 s, and 1 s back.
copying = other(ev.CasePrepared, GPU, setup=SetupTimes(transfer_s=3.0, transfer_out_s=1.0))
# The second CPU candidate is eliminated after its first block.
BEHIND = Reason("far_slower", "at least 4.00x slower than cpu torch fp32 t8 in its first turn")
far_slower = other(ev.CaseFinished, CPU_B, reason=BEHIND)
