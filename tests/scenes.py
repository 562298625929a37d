"""Runs on made-up machines as lists of events: what the screens show in tests.

Each call gives new events, which a test may change; the run behind them is made once.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import replace
from functools import cache, wraps
from itertools import takewhile

import machines
from simulated_run import EPYC, SimulatedMachine, run

from workbench.planning.plan import RowPlan
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.records.reason import Reason, Warning
from workbench.records.verdict import WhatIf

TABLE = ("training", "realtime", "floating_point", "prototyping", "convolution", "branching")
SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
KILLED = Reason(
    "worker_died",
    "the worker process died (killed by SIGKILL)",
    "killed from outside, most often by the kernel for lack of memory: see dmesg",
)
NO_BF16 = Reason(
    "unsupported",
    "bf16 convolutions are not implemented in this layout",
    "leave them out with --mode plain",
)
BUSY = Warning(
    "busy_machine",
    "other processes used 1.9 of 2 cores while it ran",
    "stop them, or run it again",
    "branching",
)
ELSEWHERE = WhatIf(
    device="b200",
    name="NVIDIA B200",
    basis="estimated",
    id="matmul[n=512]/cuda:0/torch/bf16",
    step_s=5e-6,
    step_ci95_s=(4.5e-6, 5.5e-6),
    ratio=None,
    ratio_ci95=None,
    error=0.09,
    recorded_at="2026-11-20T10:00:00Z",
    source="b200-matmul.json",
)
GPU_SERVER = SimulatedMachine(
    *machines.gpu_server(),
    cpu=EPYC,
    failures={"cuda:0/torch/bf16/nhwc": KILLED, "cpu/torch/bf16/nhwc/t16": NO_BF16},
    noise={"forest": 0.02},
)
CPU_SERVER = SimulatedMachine(*machines.cpu_server(), disturbances={"branching": [BUSY]})


def made_once(make: Callable[[], list[ev.AnyEvent]]) -> Callable[[], list[ev.AnyEvent]]:
    """Run `make` once, and give every caller events of its own."""
    journal = cache(lambda: [ev.encode(event) for event in make()])

    @wraps(make)
    def copy() -> list[ev.AnyEvent]:
        return [ev.decode(line) for line in journal()]

    return copy


def until(events: Sequence[ev.AnyEvent], row: str, number: int) -> list[ev.AnyEvent]:
    """The events before the round `number` of a row."""

    def is_before(event: ev.AnyEvent) -> bool:
        ends = isinstance(event, ev.BlockMeasured) and event.scenario == row
        return not (ends and event.round == number)

    return list(takewhile(is_before, events))


def table(
    where: SimulatedMachine, *devices: str, cancel_at_s: float = float("inf")
) -> list[ev.AnyEvent]:
    """The six default scenarios."""
    request = Request(scenarios=TABLE, devices=devices, quick=True, budget_s=60)
    return run(request, where, cancel_at_s=cancel_at_s)


@made_once
def cpu_only() -> list[ev.AnyEvent]:
    """Six rows finished on two cores without a GPU; one was disturbed."""
    return table(CPU_SERVER)


@made_once
def h200() -> list[ev.AnyEvent]:
    """Six rows finished on an EPYC with an H200: all kinds of answers, a skip and a failure."""
    return table(GPU_SERVER)


@made_once
def eight_gpus() -> list[ev.AnyEvent]:
    """Six rows finished on an EPYC with eight H200."""
    machine, software = machines.eight_gpus()
    return table(replace(GPU_SERVER, machine=machine, software=software))


def midway() -> list[ev.AnyEvent]:
    """The same machine during the second race, that of the fifth row."""
    return until(h200(), "convolution", 1)


@made_once
def cancelled() -> list[ev.AnyEvent]:
    """The same machine, stopped by the user during that race."""
    return table(GPU_SERVER, cancel_at_s=midway()[-1].at_s)


@made_once
def simulated() -> list[ev.AnyEvent]:
    """Six rows finished with the simulated GPU `fake:0`."""
    return table(CPU_SERVER, "cpu", "fake:0@8")


@made_once
def warned() -> list[ev.AnyEvent]:
    """Detection only, with a GPU that this torch cannot use."""
    where = replace(GPU_SERVER, software=CPU_SERVER.software)
    events = run(Request(scenarios=("training",)), where)
    return list(takewhile(lambda event: not isinstance(event, ev.RacePlanned), events))


@made_once
def training_midway() -> list[ev.AnyEvent]:
    """A plain run of training in its tenth round: loss curves grow."""
    events = run(Request(workloads=("train_cnn",), modes=("plain",)), GPU_SERVER)
    return until(events, "train_cnn", 9)


@made_once
def sweep() -> list[ev.AnyEvent]:
    """A product at seven sizes."""
    sizes = ("n=64..4096",)
    request = Request(
        workloads=("matmul",), settings=sizes, precisions=("fp32", "bf16"), budget_s=40
    )
    return run(request, GPU_SERVER)


def sweep_at(n: int) -> list[ev.AnyEvent]:
    """The same before the third round of one size."""
    return until(sweep(), f"matmul[n={n}]", 2)


@made_once
def profiled() -> list[ev.AnyEvent]:
    """A plain run of training with a profile of each candidate."""
    request = Request(workloads=("train_cnn",), modes=("plain",), trace="run.trace.json")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        return run(request, GPU_SERVER)


@made_once
def largest_batch() -> list[ev.AnyEvent]:
    """The largest batch of two candidates is found, that of a third is searched for."""
    request = Request(
        workloads=("train_cnn",),
        largest_batch=True,
        budget_s=200,
        force=True,
        devices=("cuda:0",),
        modes=("plain",),
    )
    events = run(request, GPU_SERVER)
    third = next(
        n for n, e in enumerate(events) if isinstance(e, ev.BatchTried) and "bf16" in e.case
    )
    return events[: third + 1]


@made_once
def crossing() -> list[ev.AnyEvent]:
    """A product with its crossover, at given prices, and a device that is elsewhere."""

    def elsewhere(rows: list[RowPlan]) -> None:
        rows[0].what_if = [ELSEWHERE]

    request = Request(
        scenarios=("floating_point",),
        settings=("n=512",),
        crossover=True,
        prices=("cpu=0.10", "gpu=2.99"),
    )
    return run(request, GPU_SERVER, change=elsewhere)
