"""The folder of a fleet: the state of each job, and the answers of each machine.

The files are those of `records.fleet`, and documents or journals from elsewhere.  Only the summary
and the picks of a document are decoded, since a fleet may have a thousand.
"""

import dataclasses
import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..advisor.comparison import TIMED
from ..advisor.costs import MILLION
from ..advisor.recordings import SHORTEST_S, fleets, is_valid, loose_files, why
from ..advisor.whatif import devices_by_name, seconds_of
from ..files.read import opened, whole
from ..records import fleet
from ..records.document import Headed, Measurement, Run
from ..records.encoding import encode
from ..records.errors import JournalError
from ..records.events import LONGEST_S
from ..records.fleet import FleetFolder, FleetNode, NodeAnswer, NodeRun, ScaledCase
from ..records.machine import Machine
from ..records.reason import Reason, Warning
from ..records.verdict import Verdict
from ..report import journal, run_files
from ..report.from_document import candidate_of
from ..report.plausible import absurdity
from ..report.report import summary_of
from ..text.sanitize import printable_json, shown
from ..text.units import clock

NO_VERDICT = "it holds no verdict, and a fleet compares those of `advise`"
TAIL_BYTES, TAIL_LINES = 4096, 5  # the end of a log
UNSEEN = ("COMPLETED", "ENDED", "FAILED")  # last states of a job that may have seen no folder
T = TypeVar("T")


def read_folder(path: Path, now_s: float, *, alone: bool = False) -> FleetFolder:
    """Read the folder and, unless `alone`, the fleets in it; the first plan counts for all.
    `now_s`: the present in seconds since 1970."""
    found = FleetFolder()
    gc.disable()  # a thousand documents make many objects, and none of them is garbage
    try:
        for at in fleets(path)[: 1 if alone else None]:
            one, inner = _fleet(at, now_s), shown(at.name, 80)
            if at != path:
                one.nodes = [replace(n, name=f"{inner}/{n.name}") for n in one.nodes]
                one.warnings = [replace(w, message=f"{inner}: {w.message}") for w in one.warnings]
            found.plan = found.plan or one.plan
            found.nodes += one.nodes
            found.warnings += one.warnings
    finally:
        gc.enable()
    return found


def _without_copies(
    jobs: list[FleetNode], files: list[FleetNode], flaws: list[Warning]
) -> Iterator[FleetNode]:
    """The most complete file of each run that no job holds; the others are noted in `flaws`."""
    kept = {_run_key(job): job for job in jobs}
    for node in sorted(files, key=_completeness, reverse=True):
        kept.setdefault(_run_key(node), node)
    for node in files:
        if (first := kept[_run_key(node)]) is node:
            yield node
        else:
            text = f"{node.name} holds the same run as {first.name} and does not count"
            flaws.append(Warning("fleet_duplicate", text, "remove it from the folder"))


def _run_key(node: FleetNode) -> object:
    """Equal for copies of one run only; two runs that start in the same second share an id."""
    run = node.run
    return node.name if run is None else (run.id, run.started_at, run.hostname)


def _completeness(node: FleetNode) -> tuple[bool, int]:
    run = node.run
    return (False, 0) if run is None else (run.status == "done", len(run.answers))


def _fleet(path: Path, now_s: float) -> FleetFolder:
    """The state of every job, and one more machine for every other document in the folder."""
    plan = None
    flaws: list[Warning] = []
    jobs: dict[str, fleet.FleetJob] = {}
    try:
        plan = read_plan(path)
        jobs = {job.name: job for job in plan.jobs}
    except Exception as error:
        if os.path.lexists(path / fleet.PLAN):
            flaws.append(_unusable(fleet.PLAN, error, "its jobs are read without it"))
    with suppress(OSError):
        for at in sorted((path / fleet.JOBS).iterdir()):
            jobs.setdefault(at.name, fleet.FleetJob(at.name, "", ""))
    nodes = [job_node(path, plan, job, now_s) for job in jobs.values()]
    files = []
    for file in loose_files(path):
        try:
            files.append(_ran(FleetNode(shown(file.name), "", "", ""), file, None))
        except Exception as error:
            flaws.append(_unusable(file.name, error, "remove it from the folder"))
    nodes += _without_copies(nodes, files, flaws)
    return FleetFolder(plan, nodes, flaws)


def decoded(path: Path, kind: type[T]) -> T:
    """The structure in a JSON file; `recordings.why` explains its errors."""
    return msgspec.json.decode(printable_json(whole(path, run_files.MOST_BYTES)), type=kind)


def read_plan(folder: Path) -> fleet.FleetPlan:
    """The plan in the folder; `recordings.why` explains its errors."""
    plan = decoded(folder / fleet.PLAN, fleet.FleetPlan)
    if plan.fleet_version != fleet.FLEET_VERSION:
        raise JournalError(f"it has version {plan.fleet_version}, not this program's")
    for job in plan.jobs:
        if job.name in ("", ".", "..") or not {"/", "\0"}.isdisjoint(job.name):
            raise JournalError(f"{job.name!r} cannot be the name of a job")
    return plan


def _unusable(name: str, error: Exception, remedy: str) -> Warning:
    return Warning("fleet_unusable", shown(f"{name} is not usable: {why(error)}"), remedy)


def job_node(
    folder: Path, plan: fleet.FleetPlan | None, job: fleet.FleetJob, now_s: float
) -> FleetNode:
    """The state of a job, the same for launchers and readers."""
    at, flaw, submitted = folder / fleet.JOBS / job.name, "", None
    node = FleetNode(shown(job.name), shown(job.node_type, 80), shown(job.node, 80), "")
    for name in (fleet.SUBMITTED, fleet.DOCUMENT, fleet.JOURNAL):
        if os.path.lexists(at / name):
            try:
                if name == fleet.SUBMITTED:
                    submitted = decoded(at / name, fleet.Submitted)
                else:
                    node = _ran(node, at / name, submitted)
                    if name == fleet.DOCUMENT or node.state == "done":
                        log = [] if node.state == "done" else _tail(at / fleet.LOG)
                        reason = Reason("unusable", flaw) if flaw else node.reason
                        return replace(node, reason=reason, log=log)
            except Exception as error:
                if name != fleet.JOURNAL:  # it may have just begun
                    flaw = flaw or shown(f"{name} is not usable: {why(error)}")
    state, text = _state(at, submitted, plan, now_s)
    if state == "pending" and (node.run is not None or os.path.lexists(at / fleet.LOG)):
        state, text = "running", ""
    if state != "running" and node.state == "partial":
        state = "partial"
    reason = Reason(state, flaw or text) if flaw or text else None
    return replace(node, state=state, reason=reason, log=_tail(at / fleet.LOG))


def _state(
    at: Path, submitted: fleet.Submitted | None, plan: fleet.FleetPlan | None, now_s: float
) -> tuple[str, str]:
    """The state of a job without a document, as far as the cluster and the clock know."""
    word = shown(submitted.native_state or "", 80) if submitted else ""
    last = f"; its last state was {word}" if word else ""
    if os.path.lexists(at / fleet.EXIT_CODE):
        code = "unknown"
        with suppress(OSError, ValueError):
            code = str(int(whole(at / fleet.EXIT_CODE, 16)))
        return "failed", f"it ended without a document, exit code {code}{last}"
    if word.startswith(fleet.ENDED):
        text = f"it ended without a document{last}"
        if word.startswith(UNSEEN) and not os.path.lexists(at / fleet.LOG):
            text += f"; {shown(str(at))} is empty: the node may not see it, so name a shared folder"
        return "failed", text
    began = _moment(plan.created_at if plan else "")
    if plan is not None and began is not None and now_s >= began + plan.deadline_s:
        never = "" if submitted else "; it was never submitted"
        return "lost", f"no document by the deadline, {clock(plan.deadline_s)}{never}{last}"
    return "pending", f"submitted{last}" if submitted else "not submitted yet"


def _moment(text: str) -> float | None:
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).timestamp()
    return None


def _tail(log: Path) -> list[str]:
    with suppress(OSError), opened(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
        return [shown(line, 200) for line in lines if line.strip()][-TAIL_LINES:]
    return []


class _Document(Headed, frozen=True):
    run: Run
    machine: Machine
    verdicts: list[Verdict]
    measurements: list[msgspec.Raw]
    model: dict[str, Any] | None = None
    code: dict[str, Any] | None = None


class _Id(msgspec.Struct):
    id: str
    scenario: str = ""


_id = msgspec.json.Decoder(_Id).decode
_measurement = msgspec.json.Decoder(Measurement).decode


def _ran(node: FleetNode, file: Path, submitted: fleet.Submitted | None) -> FleetNode:
    """The node with a document or journal; `recordings.why` explains its errors."""
    run = _run(file)
    asked, began = _moment(submitted.at if submitted else ""), _moment(run.started_at)
    state, reason = "partial", None if run.status == "done" else f"the run there is {run.status}"
    scales = any(each.ranks > 1 for each in run.scaling)
    if not scales and not any(answer.pick for answer in run.answers):
        why_not = [each.uncompared.message for each in run.answers if each.uncompared]
        state, reason = "failed", reason or next(iter(why_not), NO_VERDICT)
    return replace(
        node,
        node=node.node or run.hostname,
        state=state if reason else "done",
        reason=Reason("no_answer", reason) if reason else None,
        queued_s=None if asked is None or began is None else max(0.0, began - asked),
        run=run,
    )


def _run(file: Path) -> NodeRun:
    if file.suffix == ".jsonl":
        content = encode(run_files.read_journal(file).report.document())
        document = msgspec.json.decode(content, type=_Document)
    else:
        document = msgspec.json.decode(run_files.document_text(file), type=_Document)
    journal.check_schema(file, document.schema_version)
    rows = {(each.scenario, each.id): raw for raw in document.measurements for each in [_id(raw)]}
    plain = [] if document.verdicts else list(map(_measurement, document.measurements))
    facts = (document.model or document.code or {"facts": {}})["facts"]
    run = NodeRun(
        status=shown(document.run.status, 80),
        started_at=shown(document.run.started_at, 80),
        duration_s=document.run.duration_s,
        version=shown(document.tool.version, 80),
        hostname=shown(document.machine.hostname, 80),
        machine=_described(document.machine),
        subject=str(facts.get("sha256") or facts.get("code_sha256") or ""),
        answers=[_answer(v, rows.get((v.scenario, v.pick or ""))) for v in document.verdicts],
        scaling=[_scaled(m) for m in plain if m.case.workload == "scaling" and m.n],
        id=shown(document.run.id, 80),
    )
    if absurd := absurdity(run):
        raise JournalError(absurd)
    return run


def _scaled(measured: Measurement) -> ScaledCase:
    names, time = ("scaling_efficiency_fraction", "sync_fraction"), measured.median_s or 0.0
    figures = [measured.metrics.get(name) for name in names]
    return ScaledCase(shown(measured.case.device, 80), measured.work.ranks, time, *figures)


def _described(machine: Machine) -> str:
    """`AMD EPYC, 8 cores, NVIDIA H200 x 2, 32 GiB`: equal for equal machines."""
    counted_names = {name: len(devices) for name, devices in devices_by_name(machine).items()}
    parts = [f"{name} x {n}" if n > 1 else name for name, n in counted_names.items()]
    gib = machine.memory.total_bytes / 2**30  # equal machines differ by some MiB
    return shown(", ".join([*parts, f"{round(gib, -1 if gib > 100 else 0):.0f} GiB"]), 160)


def _answer(verdict: Verdict, raw: msgspec.Raw | None) -> NodeAnswer:
    """The answer with the value of its pick, as `whatif.seconds_of` defines it."""
    objective, picked = verdict.objective, None if raw is None else _measurement(raw)
    summary = msgspec.structs.asdict(summary_of(verdict, picked.case if picked else None))
    summary |= {"scenario": shown(verdict.scenario, 80), "objective": shown(objective, 80)}
    if picked is None:
        text = shown(next(iter(verdict.reasons), "no pick there"), 200)
        return NodeAnswer(**summary, uncompared=Reason("no_pick", text))
    work, case, value, interval, reason = picked.work, picked.case, None, None, None
    if case.workload == "model":  # its hash says which, and a copy may have another name
        case = dataclasses.replace(case, params={})
    if objective not in TIMED:
        reason = Reason("objective", "only times are compared between machines")
    elif picked.simulated:
        reason = Reason("simulated", "its GPU is simulated")
    elif objective == "throughput" or (
        objective == "latency" and picked.iterations_per_sample == 1
    ):
        value, interval = picked.median_s, picked.ci95_s
    elif is_valid(picked):
        value, interval = seconds_of(candidate_of(picked, objective=objective)) or (None, None)
    low, high = interval or (0.0, 0.0)
    if not SHORTEST_S <= low <= (value or 0.0) <= high <= LONGEST_S:
        few = Reason("few_samples", "too few samples for an interval", "raise --budget")
        if picked.n and not picked.samples_s:
            few = Reason(
                "no_samples", "its document leaves them out", "write it without --no-samples"
            )
        value, interval, reason = None, None, reason or few
    seconds = value if objective == "time_to_result" else picked.median_s
    return NodeAnswer(
        **summary,
        job=shown(f"{case.id.removesuffix(case.label)}{work.items:g} {work.item}"),
        value_s=value,
        value_ci95_s=interval,
        per_million_s=seconds * MILLION / work.items if seconds and work.items > 0 else None,
        ranks=work.ranks,
        uncompared=reason,
    )
