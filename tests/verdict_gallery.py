"""Verdicts that make the advisor say every kind of sentence, each built from a small report."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from builders import CROSSOVER, case, report, scenario, steady
from money import priced_report, watts
from verdicts import (
    BATCHED,
    BEHIND,
    CPU,
    CPU_B,
    CUT,
    DIED,
    FULL,
    GPU,
    GPU_B,
    LOW,
    NOISY,
    ROW,
    SPENT,
    Blocks,
    busy,
    clocked,
    copying,
    cut_short,
    far_slower,
    machine_with,
    priced,
    reproduced_by,
    skipped,
    verdict,
    waiting,
    with_ceilings,
)

from workbench.advisor.verdict import decide
from workbench.contract import Case, Work
from workbench.planning.scenario import Limits, Size
from workbench.records.document import SetupTimes
from workbench.records.machine import CudaDriver
from workbench.records.reason import Reason
from workbench.records.verdict import Verdict
from workbench.report.report import Report

FAKE = case("fake:0-a")
BOTH: Blocks = {CPU: steady(2.0), GPU: steady(1.0)}
NO_BF16 = {"avx512_bf16": False, "amx_bf16": False, "bf16": False}
STREAMING = Work(1e9, 1e10, 64.0, "samples", 1e9)
PRODUCTS = Work(1e11, 1e6, 64.0, "samples", 1e9)
COMPILED = replace(CPU, mode="compile")
SOON, LATE = SetupTimes(import_s=1.0), SetupTimes(import_s=1.0, build_s=0.5, compile_s=2.5)
CROSSOVERS = {
    "a change": CROSSOVER,
    "a change with transfers": msgspec.structs.replace(CROSSOVER, value_with_transfers=900.0),
    "a change back": msgspec.structs.replace(CROSSOVER, back=(1024.0, 2048.0)),
    "a third leader": msgspec.structs.replace(CROSSOVER, then=(1024.0, "cpu/numpy/fp32/t2")),
    "a change with gaps": msgspec.structs.replace(CROSSOVER, sizes=[64.0, 512.0, 4096.0]),
    "one leader": msgspec.structs.replace(CROSSOVER, value=None, leads=(64.0, 4096.0)),
    "one leader in part": msgspec.structs.replace(CROSSOVER, value=None, leads=(64.0, 64.0)),
    "no leader": msgspec.structs.replace(CROSSOVER, value=None, below=None),
}


def _hidden() -> Verdict:
    built = report({CPU: steady(1.0)}, gpus=["cuda:0"])
    (card,) = built.machine.gpus
    reasons = {"device": "hidden by CUDA_VISIBLE_DEVICES"}
    card = msgspec.structs.replace(card, device=None, visible=False, unavailable=reasons)
    built.machine = msgspec.structs.replace(built.machine, gpus=[card])
    return decide(built, ROW)


def _unclear() -> Verdict:
    built = report({CPU: steady(1.0)})
    crashed = CudaDriver(False, 0, Reason("crashed", "libcuda crashed", "update the driver"))
    built.machine = msgspec.structs.replace(built.machine, cuda=crashed)
    return decide(built, ROW)


def _memory(limit_mib: float | None, *mib: int, objective: str = "throughput") -> Verdict:
    """Candidates with these peaks under a limit."""
    row = scenario(limits=Limits(memory_mib=limit_mib), objective=objective)
    built = report({CPU: steady(1.0), LOW: steady(2.0), GPU: steady(1.0)}, row=row, gpus=["cuda:0"])
    for candidate, peak in zip(built.rows["row"].candidates, mib, strict=True):
        candidate.memory_peak_bytes = peak << 20
    return decide(built, row)


def _limited(**limits: float) -> Callable[..., Verdict]:
    row = scenario(limits=Limits(**limits))
    return lambda blocks: verdict(blocks, row=row)


def _eliminated_for_good() -> Verdict:
    """A GPU that was far behind in its first turn, and would have started sooner."""
    built: Report = priced_report({CPU: steady(0.01), GPU: [[0.04]]}, setups={CPU: LATE, GPU: SOON})
    built.candidates[GPU.id].reason = BEHIND
    built.rows["row"].ended_by, built.rows["row"].began_at_s = "decided", 0.0
    return decide(built, ROW)


def _started(blocks: Blocks, late: Case, **options: Any) -> Verdict:
    """Everyone is ready after a second, but `late` after four."""
    setups = {**dict.fromkeys(blocks, SOON), late: LATE}
    row = options.pop("row", ROW)
    return decide(priced_report(blocks, setups=setups, row=row, **options), row)


def _measured(prices: dict[str, float], power: dict[Case, Any], blocks: Blocks) -> Verdict:
    return decide(priced_report(blocks, prices=prices, power=power), ROW)


GALLERY: dict[str, Callable[[], Verdict]] = {
    # -------------------------------------------------- CPU against GPU
    "the GPU wins": lambda: verdict(BOTH),
    "the GPU wins over two": lambda: verdict({**BOTH, GPU: steady(0.5), GPU_B: steady(1.0)}),
    "the CPU wins against the usual advice": lambda: verdict({CPU: steady(1.0), GPU: steady(2.0)}),
    "the CPU wins by little": lambda: verdict(
        {CPU: steady(1.0, spread=0.005), GPU: steady(1.055, spread=0.005)}
    ),
    "a tie": lambda: verdict({CPU: steady(1.0), GPU: steady(1.01)}),
    "noise": lambda: verdict({CPU: NOISY, GPU: NOISY[::-1]}),
    "noise on a busy machine": lambda: verdict({CPU: NOISY, GPU: NOISY[::-1]}, busy),
    "an interval adjusted for looks": lambda: verdict({CPU: [[1.0], [1.12]] * 3, GPU: [[1.2]] * 6}),
    "two rounds": lambda: verdict({CPU: steady(1.0, 2), GPU: steady(0.1, 2)}),
    "the GPU wins, cut short": lambda: verdict(BOTH, cut_short),
    "the GPU wins, busy": lambda: verdict(BOTH, busy),
    "the CPU wins, busy": lambda: verdict({CPU: steady(1.0), GPU: steady(2.0)}, busy),
    "the GPU wins, few samples": lambda: verdict({CPU: [[1.0]] * 4, GPU: [[0.5]] * 4}),
    "the simulated GPU wins": lambda: verdict(
        {CPU: steady(1.0), FAKE: steady(0.5)}, gpus=["fake:0"]
    ),
    "the CPU wins over a simulated GPU": lambda: verdict(
        {CPU: steady(1.0), FAKE: steady(2.0)}, gpus=["fake:0"]
    ),
    # ------------------------------------------------------ without GPU
    "no GPU": lambda: verdict({CPU: steady(1.0), CPU_B: steady(2.0)}, gpus=[]),
    "no GPU and one candidate": lambda: verdict({CPU: steady(1.0)}, gpus=[]),
    "no GPU and one round": lambda: verdict({CPU: [[1.0]]}, gpus=[]),
    "no GPU and one measured": lambda: verdict(
        {CPU: steady(1.0), CPU_B: []}, skipped(SPENT), gpus=[]
    ),
    "no GPU and a tie": lambda: verdict({CPU: steady(1.0), CPU_B: steady(1.01)}, gpus=[]),
    "no GPU and noise": lambda: verdict(
        {CPU: [[1.0], [1.0], [9.0], [1.0]], CPU_B: [[1.2], [9.0], [1.2], [1.2]]}, gpus=[]
    ),
    "no GPU and two rounds": lambda: verdict({CPU: steady(1.0, 2), CPU_B: steady(2.0, 2)}, gpus=[]),
    "no GPU and one far behind": lambda: verdict(
        {CPU: steady(1.0), CPU_B: [[4.0]]}, far_slower, gpus=[]
    ),
    "a hidden GPU": _hidden,
    "an unclear GPU": _unclear,
    # --------------------------------------------------------- nothing
    "all died": lambda: verdict({CPU: [], GPU: []}, failed={CPU: DIED, GPU: DIED}),
    "all failed": lambda: verdict(
        {CPU: [], GPU: [], LOW: []}, failed={CPU: DIED, GPU: FULL, LOW: CUT}
    ),
    "all too inaccurate": lambda: verdict(BOTH, errors={CPU: 0.02, GPU: 0.5}),
    "the GPU too inaccurate": lambda: verdict(BOTH, errors={GPU: 0.5}),
    "no time at all": lambda: verdict({CPU: [], GPU: []}, skipped(SPENT)),
    "no memory on the GPU": lambda: verdict({CPU: steady(1.0), GPU: []}, skipped(FULL)),
    "no candidate on the GPU": lambda: verdict({CPU: steady(1.0)}),
    "cut short before the first turn": lambda: verdict({CPU: [], GPU: []}, cut_short),
    "not reached": lambda: verdict({}),
    "no energy counter": lambda: verdict(BOTH, row=scenario(objective="energy"), gpus=[]),
    "one price": lambda: verdict(BOTH, priced(gpu=1.0), row=scenario(objective="cost")),
    # -------------------------------------------------------- objectives
    "99th percentiles": lambda: verdict(BOTH, row=scenario(objective="latency_p99")),
    "times to result": lambda: verdict(
        {CPU: steady(0.5), GPU: steady(4.5)}, row=scenario(objective="time_to_result")
    ),
    "costs": lambda: verdict(BOTH, priced(cpu=1.0, gpu=1.0), row=scenario(objective="cost")),
    "peak memory": lambda: _memory(None, 310, 620, 18, objective="memory"),
    # ------------------------------------------------------------ limits
    "only the CPU within the latency limit": lambda: _limited(latency_ms=1500.0)(
        {CPU: steady(1.0), GPU: steady(2.0)}
    ),
    "none within the latency limit": lambda: _limited(latency_ms=500.0)(BOTH),
    "above the memory limit": lambda: _memory(100, 50, 1500, 80),
    "unknown memory": lambda: _limited(memory_mib=100)(BOTH),
    # ------------------------------------------------------------ causes
    "memory limits both": lambda: with_ceilings(
        {CPU: steady(1.2), GPU: steady(1.6)}, STREAMING, "cpu", "cuda:0"
    ),
    "arithmetic limits one": lambda: with_ceilings(
        {CPU: steady(2.5), GPU: steady(50.0)}, PRODUCTS, "cpu", "cuda:0"
    ),
    "launches limit": lambda: verdict({CPU: steady(2e-3), BATCHED: steady(1e-3)}, clocked(0.9e-3)),
    "loading limits": lambda: verdict(BOTH, waiting),
    "BF16 wins": lambda: verdict(
        {CPU: steady(2.0), LOW: steady(1.0)}, machine_with(avx512_bf16=True), gpus=[]
    ),
    "FP32 wins": lambda: verdict(
        {CPU: steady(1.0), LOW: steady(3.0)}, machine_with(**NO_BF16), gpus=[]
    ),
    "fewer threads win": lambda: verdict(
        {CPU: steady(2.0), replace(CPU, threads=2): steady(1.0)}, gpus=[]
    ),
    # ---------------------------------------------------- left out, next
    "one too inaccurate and one dead": lambda: verdict(
        {CPU: steady(1.0), LOW: steady(0.5), CPU_B: []},
        gpus=[],
        errors={LOW: 0.05},
        failed={CPU_B: DIED},
    ),
    "four dead": lambda: verdict(
        {CPU: steady(1.0), **{replace(CPU, threads=number): [] for number in (1, 2, 4, 6)}},
        gpus=[],
        failed={replace(CPU, threads=number): FULL for number in (1, 2, 4, 6)},
    ),
    "copying": lambda: verdict(BOTH, copying),
    "a more accurate candidate": lambda: verdict(
        {CPU: steady(1.0), LOW: steady(0.5)}, gpus=[], errors={LOW: 0.004}
    ),
    "a size": lambda: verdict(BOTH, row=scenario(size=Size("batch", 1, 512))),
    "a size looked for": lambda: verdict(
        BOTH,
        reproduced_by("workbench advise row --crossover"),
        row=scenario(size=Size("batch", 1, 512)),
    ),
    # -------------------------------------------------------- break-even
    "compilation breaks even": lambda: _started(
        {CPU: steady(0.010), COMPILED: steady(0.005)}, COMPILED
    ),
    "ready sooner and faster": lambda: _started({CPU: steady(0.01), GPU: steady(0.001)}, CPU),
    "ready later and slower": lambda: _started({CPU: steady(0.01), GPU: steady(0.02)}, GPU),
    "steps alike, ready later": lambda: _started(
        {CPU: steady(0.01), COMPILED: steady(0.00999)}, COMPILED
    ),
    "steps alike, ready sooner": lambda: _started(
        {CPU: steady(0.01), COMPILED: steady(0.010001)}, CPU
    ),
    "too few steps": lambda: _started({CPU: [[0.01]], GPU: [[0.001]]}, CPU),
    "whole runs break even": lambda: _started(
        {CPU: steady(1.0), GPU: steady(0.45)}, GPU, row=scenario(objective="time_to_result")
    ),
    "far behind after a turn": _eliminated_for_good,
    # -------------------------------------------------- money and energy
    "one price for two devices": lambda: _measured({"cpu": 0.1}, {}, BOTH),
    "prices": lambda: _measured({"cpu": 0.36, "gpu": 36.0}, {}, BOTH),
    "prices of one candidate": lambda: _measured({"cpu": 0.36}, {}, {CPU: steady(0.01)}),
    "prices of equals": lambda: _measured(
        {"cpu": 0.36}, {}, {CPU: steady(0.010), CPU_B: steady(0.01001)}
    ),
    "prices of one round": lambda: _measured({"cpu": 0.36}, {}, {CPU: [[0.01]], CPU_B: [[0.012]]}),
    "energy by two sensors": lambda: _measured(
        {}, {CPU: watts(read=50.0), GPU: watts(counted=640.0)}, BOTH
    ),
    "energy of the GPU alone": lambda: _measured(
        {"cpu": 1.0, "gpu": 2.0}, {GPU: watts(counted=300.0)}, BOTH
    ),
    "energy not read": lambda: _measured(
        {"cpu": 1.0, "gpu": 2.0},
        {CPU: watts(read=50.0), GPU_B: watts(read=300.0)},
        {CPU: steady(0.010), GPU: steady(0.001), GPU_B: steady(0.004)},
    ),
}
