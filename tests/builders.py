"""Reports built from events, as a test needs them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import recorded_model
from msgspec.structs import replace

from workbench.advisor.verdict import decide
from workbench.contract import Accuracy, Case, Work
from workbench.engine.context import Listener, RunContext
from workbench.engine.overhead import OverheadMeter
from workbench.engine.telemetry import MachineTelemetry
from workbench.planning.request import Request
from workbench.planning.scenario import Scenario
from workbench.records import events as ev
from workbench.records.code import CodeAdvice, CodeFacts
from workbench.records.document import (
    BatchAttempt,
    Ceilings,
    DeviceCeilings,
    LargestBatch,
    OperatorShare,
    SetupTimes,
    Tool,
    Trace,
    WarmUp,
)
from workbench.records.machine import (
    Cpu,
    CudaDriver,
    Gpu,
    GpuReading,
    Isa,
    Machine,
    Memory,
    Nvml,
    Os,
    Software,
)
from workbench.records.model import Advice
from workbench.records.reason import Reason, Warning
from workbench.records.verdict import Crossover, CrossoverPoint
from workbench.report.report import Report

Events = list[ev.AnyEvent]

CROSSOVER = Crossover(
    parameter="n",
    between="device",
    below="cpu",
    above="gpu",
    value=512.0,
    ci95=(430.0, 600.0),
    value_with_transfers=None,
    searched=(64.0, 4096.0),
    points=[CrossoverPoint(64.0, 0.4, (0.39, 0.41), None)],
)
ABSENT = Reason("library_missing", "the library is not installed")


def machine(*gpus: str) -> Machine:
    """A machine of 8 cores, with GPUs under the given device names."""
    cpu = Cpu(
        model="Test CPU",
        vendor="test",
        architecture="x86_64",
        sockets=1,
        physical_cores=8,
        logical_cores=8,
        affinity_cores=8,
        cgroup_quota_cores=None,
        effective_cores=8,
        limited_by="logical",
        limits=[],
        isa=Isa(avx2=True),
        caches=[],
        max_frequency_mhz=None,
    )
    found = [
        Gpu(index=i, device=name, uuid=f"GPU-{i}", pci_bus_id=None, name="Test GPU")
        for i, name in enumerate(gpus)
    ]
    return Machine(
        hostname="host",
        os=Os("Linux", "6.0", None, None),
        cpu=cpu,
        memory=Memory(2**34, 2**33, None, 0, 0),
        gpus=found,
        nvml=Nvml(bool(gpus), None if gpus else ABSENT),
        cuda=CudaDriver(bool(gpus), len(gpus), None if gpus else ABSENT),
    )


def ceilings(*devices: str, peak: float = 1e11, bandwidth: float = 1e10) -> Ceilings:
    """Ceilings of the given devices: FP32 and BF16 peaks, memory and a cache of 32 MiB."""
    return Ceilings(
        "0123456789abcdef",
        "2026-11-21T00:00:00.000Z",
        True,
        [
            DeviceCeilings(
                device=device,
                name="Test",
                threads=8 if device == "cpu" else None,
                peak_ops_per_s={"fp32": peak, "bf16": 2 * peak},
                memory_bytes_per_s=bandwidth,
                memory={"copy": bandwidth, "triad": 0.9 * bandwidth},
                cache_bytes=1 << 25 if device == "cpu" else None,
                cache_bytes_per_s=10 * bandwidth if device == "cpu" else None,
                launch_s=1e-6,
                unavailable={"fp16": "no fast path"},
            )
            for device in devices
        ],
    )


def case(label: str, precision: str = "fp32", threads: int = 8) -> Case:
    """A case on `cpu` or `cuda:0`; a name after the device makes the case unique: `cpu-a`.

    The name is a parameter.  It is not part of the candidate's name, but `threads` are.
    """
    device, _, name = label.partition("-")
    used = threads if device == "cpu" else None
    return Case("work", device, "torch", precision, threads=used, params={"of": name})


def scenario(**changes: object) -> Scenario:
    fields: dict = {
        "id": "row",
        "title": "Row",
        "question": "Which?",
        "textbook": "gpu",
        "workload": "work",
        "objective": "throughput",
        "precisions": ("fp32", "bf16"),
        "reference_only": ("fp64",),
        "max_error": 0.01,
    }
    return Scenario(**{**fields, **changes})


def block(
    case: Case, number: int, samples_s: Sequence[float], row: str = "row"
) -> ev.BlockMeasured:
    """The block of `case` in round `number`."""
    return ev.BlockMeasured(
        at_s=1.0 + number,
        case=case.id,
        scenario=row,
        round=number,
        samples_s=list(samples_s),
        lead_in_s=[],
        loss=None,
    )


def events(
    blocks: Mapping[Case, Sequence[Sequence[float]]],
    *,
    gpus: Sequence[str] = (),
    row: Scenario | None = None,
    errors: Mapping[Case, float] | None = None,
    failed: Mapping[Case, Reason] | None = None,
) -> Events:
    """A finished run of one row: for each case its blocks of samples, round by round."""
    row, errors, failed = row or scenario(), errors or {}, failed or {}
    cases = list(blocks)
    found: Events = [
        ev.RunStarted(
            at_s=0.1,
            schema_version=1,
            id="20261121-000000-test",
            started_at="2026-11-21T00:00:00.000Z",
            budget_s=60.0,
            tool=Tool("workbench", "0", "workbench"),
        ),
        ev.HardwareDetected(
            at_s=0.2, machine=machine(*gpus), software=Software("3.11", "python", {}, {})
        ),
        ev.RacePlanned(
            at_s=0.3,
            scenario=row.id,
            title=row.title,
            question=row.question,
            textbook=row.textbook,
            objective=row.objective,
            reference_only=list(row.reference_only),
            reproduce="workbench advise row",
            cases=cases,
            work={c.id: Work(1e9, 1e6, 64.0, "samples", 1e7) for c in cases},
        ),
        ev.RaceStarted(at_s=0.4, scenario=row.id, share_s=10.0),
    ]
    for c in cases:
        if blocks[c]:
            found.append(
                ev.CasePrepared(
                    at_s=0.5,
                    case=c.id,
                    setup=SetupTimes(import_s=1.0, build_s=0.5),
                    accuracy=Accuracy("relative_error", errors.get(c, 1e-6), "float64", 0.1, True),
                    warmup=WarmUp(n=5, seconds=0.1, first_s=0.1, steady=True),
                    iterations_per_sample=1,
                    memory_peak_bytes=None,
                )
            )
        found += [block(c, number, samples, row.id) for number, samples in enumerate(blocks[c])]
        reason = failed.get(c)
        status = "failed" if reason else "ok"
        found.append(
            ev.CaseFinished(at_s=9.0, case=c.id, scenario=row.id, status=status, reason=reason)
        )
    rounds = max(map(len, blocks.values()), default=0)
    ended_by = "decided" if rounds else "empty"
    found.append(ev.RaceEnded(at_s=9.0, scenario=row.id, rounds=rounds, ended_by=ended_by))
    return found


def report(*arguments: Mapping[Case, Sequence[Sequence[float]]], **options: object) -> Report:
    return Report.of(events(*arguments, **options))


def context(
    pool: Any,
    clock: Any,
    report: Report,
    emit: Listener | None = None,
    budget_s: float = 60.0,
    request: Request | None = None,
) -> RunContext:
    """The context of a run with a fake pool and clock, without telemetry of the host."""
    emit = emit or report.apply
    return RunContext(
        request=request or Request(budget_s=budget_s),
        pool=pool,
        control=clock,
        report=report,
        emit=emit,
        telemetry=MachineTelemetry(clock.now, emit),
        overhead=OverheadMeter(None, clock.now),
    )


def steady(center: float, rounds: int = 8, spread: float = 0.01) -> list[list[float]]:
    """Blocks of five samples around `center`, wobbling by `spread`, the same every time."""
    wobble = (0.3, -0.7, 1.0, -0.2, 0.5, -1.0, 0.1, -0.4)
    return [
        [center * (1 + spread * wobble[(i + j) % len(wobble)]) for j in range(5)]
        for i in range(rounds)
    ]


# ------------------------------------------------- a run with every kind of event

FASTEST, BEATEN, FAILED, LATE, GPU = map(case, ("cpu-a", "cpu-b", "cpu-c", "cpu-late", "cuda:0-a"))
OTHER, SKIPPED = map(case, ("cpu-other", "cuda:0-other"))
OTHER_ROW = scenario(id="other", title="Other", textbook="cpu")
DIED = Reason("worker_died", "the worker died", "look at its log")


def changed(
    events: Iterable[ev.AnyEvent], kind: type, case: Case | None = None, **fields: Any
) -> Events:
    """The events, with other fields in those of one kind, or in those about one case.

    A function makes the field of each event.
    """

    def other(event: Any) -> ev.AnyEvent:
        return replace(event, **{k: v(event) if callable(v) else v for k, v in fields.items()})

    return [
        other(event)
        if isinstance(event, kind) and (case is None or getattr(event, "case", None) == case.id)
        else event
        for event in events
    ]


def two_rows() -> tuple[Events, Events]:
    """The events of "row" and those of "other".

    In "row" BEATEN is eliminated and FAILED fails; in "other" SKIPPED is skipped.
    """
    row = events(
        {FASTEST: steady(1.2), BEATEN: steady(2.4, 3), FAILED: [], GPU: steady(0.4)},
        gpus=["cuda:0"],
        errors={BEATEN: 0.02},
        failed={FAILED: DIED},
    )
    for event in [event for event in row if isinstance(event, ev.BlockMeasured)]:
        fields = {"loss": 1 / (1 + event.round), "lead_in_s": [3.0]}
        row[row.index(event)] = replace(event, **fields)
    beaten = Reason("beaten", "2x slower than work[of=a]")
    lost = {"beaten_by": FASTEST.id, "ratio": 2.0, "ratio_bounds": (1.9, 2.1)}
    row = changed(row, ev.CaseFinished, BEATEN, reason=beaten, **lost)
    other = events({OTHER: steady(0.16), SKIPPED: []}, gpus=["cuda:0"], row=OTHER_ROW)[2:]
    full = Reason("no_memory", "it needs about 90.0 GiB", "take a smaller size")
    return row, changed(other, ev.CaseFinished, SKIPPED, status="skipped", reason=full)


def process_events() -> Events:
    """A warning, a worker, a pause, a suspend and a reading of the GPU."""
    return [
        ev.WarningRaised(at_s=0.45, warning=Warning("busy_machine", "busy", "wait", "row")),
        ev.WorkerStarted(
            at_s=0.46, worker="cpu/torch", pid=1, import_s=1.0, versions={"torch": "2.9"}
        ),
        ev.BudgetExtended(at_s=0.46, scenario="row", by_s=1.0),
        ev.StatusChanged(at_s=0.47, status="paused"),
        ev.StatusChanged(at_s=0.48, status="running"),
        ev.CasePreparing(at_s=0.49, case=FASTEST.id),
        ev.BlockDiscarded(at_s=0.5, case=FASTEST.id, reason=Reason("suspended", "it slept")),
        ev.MachineRead(at_s=0.51, gpus=[GpuReading(0, power_w=76.5)]),
        ev.CeilingsKnown(at_s=0.51, ceilings=ceilings("cpu", "cuda:0")),
    ]


def option_events() -> Events:
    """The results of --trace and --largest-batch for FASTEST."""
    attempt = BatchAttempt(8, 0.1, 2**20, None)
    operator = OperatorShare("aten::mm", 5, 0.9, 1.0)
    return [
        ev.CaseProfiled(at_s=0.52, case=FASTEST.id, operators=[operator]),
        ev.TraceWritten(at_s=0.52, trace=Trace("trace.json", None)),
        ev.BatchTried(at_s=0.53, case=FASTEST.id, attempt=attempt),
        ev.LargestBatchFound(at_s=0.53, found=LargestBatch(FASTEST.id, 8, "budget", [attempt])),
    ]


def late_events() -> Events:
    """LATE joins "row" and is skipped."""
    no_time = Reason("no_time", "no time was left for it", "raise --budget")
    work = {LATE.id: Work(1e9, 1e6, 64.0, "samples", 1e7)}
    return [
        ev.CasesJoined(at_s=0.54, scenario="row", cases=[LATE], work=work),
        ev.CaseFinished(at_s=0.55, case=LATE.id, scenario="row", status="skipped", reason=no_time),
    ]


def model_events() -> Events:
    """A user's model is inspected, its variants are built, advice is given."""
    advice = Advice([], "import onnxruntime", recorded_model.WEAK)
    return [
        ev.ModelInspected(at_s=0.56, facts=recorded_model.FACTS),
        ev.ModelBuilding(at_s=0.57, recipe="int8-static-u8s8"),
        *(ev.ModelBuilt(at_s=0.57, built=built) for built in recorded_model.BUILT),
        ev.ModelAdvised(at_s=0.58, advice=advice, left_out={"int8": "too large"}),
    ]


def code_events() -> Events:
    """The user's own code is examined and gets advice."""
    facts = CodeFacts("function", "stats.py:work", "c0" * 32, "c1" * 32)
    return [
        ev.CodeExamined(at_s=0.59, facts=facts),
        ev.CodeAdvised(at_s=0.6, advice=CodeAdvice("work()"), left_out={"cuda:0": "no device"}),
    ]


def eventful() -> Events:
    """A finished run of two rows, on a machine with a GPU, with every kind of event."""
    row, other = two_rows()
    killed = Reason("worker_died", "killed")
    run: Events = [
        *row[:4],
        *process_events(),
        *option_events(),
        *late_events(),
        *model_events(),
        *code_events(),
        *row[4:],
        *other,
        ev.WorkerEnded(at_s=9.1, worker="cpu/torch", reason=killed),
    ]
    report = Report.of(run)
    verdicts = [decide(report, row) for row in (scenario(), OTHER_ROW)]
    return [
        *run,
        *(ev.VerdictReached(at_s=9.2, verdict=verdict) for verdict in verdicts),
        ev.CrossoverFound(at_s=9.3, scenario="row", crossover=CROSSOVER),
        ev.RunFinished(
            at_s=9.5,
            status="done",
            finished_at="2026-11-21T00:00:09.500Z",
            duration_s=9.5,
            exit_code=0,
        ),
    ]
