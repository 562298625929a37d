"""The plan of a fleet: node types and jobs, its text, the scripts, and Kubernetes Jobs."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from .. import __version__, assets
from ..planning.request import TABLE_QUICK_BUDGET_S, Request
from ..planning.usage import UsageError, unknown
from ..records.fleet import FLEET_VERSION, JOBS, FleetJob, FleetPlan, NodeType
from ..text import units

GIB = 1 << 30
SPARE_S = 300.0  # of Slurm's time limit, for starting and for what follows the budget
# A label, its value, and the number of GPUs of a node.
POOL = re.compile(
    r"([\w./-]{1,300})=([A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?)(?::([1-9]\d?))?", re.ASCII
)
BEGUN = "begun"  # variable in a script: the start of its fleet, which sets it apart from others
NEEDED = {
    "slurm": "nodes see the folder of --into and the interpreter under the same paths",
    "ssh": "hosts have the interpreter; one that does not see the folder of --into gets a copy",
}


class Node(msgspec.Struct, frozen=True):
    """One node as one partition offers it."""

    name: str
    cores: int
    memory_bytes: int
    features: tuple[str, ...] = ()
    gres: tuple[str, ...] = ()
    partition: str | None = None
    state: str = "idle"
    is_default: bool = False  # the partition of a job that names none
    forces_sharing: bool = False  # the partition gives no job a node of its own


def node_types(nodes: Iterable[Node]) -> list[NodeType]:
    """Groups of equal nodes; memory is compared in GiB, since equal nodes differ by less."""
    groups: dict[object, list[Node]] = {}
    for node in nodes:
        memory = round(node.memory_bytes / GIB)
        key = (node.partition, node.cores, memory, frozenset(node.features), node.gres)
        groups.setdefault(key, []).append(node)
    types, names = [], Counter[str]()
    for group in groups.values():
        first, least = group[0], min(node.memory_bytes for node in group)
        gpus = [entry.partition(":")[2] for entry in first.gres if entry.startswith("gpu:")]
        words = "-".join([first.partition or first.name, f"{first.cores}c", *gpus])
        base = re.sub(r"[^A-Za-z0-9_]+", "-", words[:80]).strip("-")
        names[base.lower()] += 1  # some file systems do not tell J from j
        number = names[base.lower()]
        name = base if number == 1 else f"{base}.{number}"
        listed = [*first.features], [*first.gres], first.partition, [node.name for node in group]
        types.append(NodeType(name, first.cores, least, *listed))
    return types


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def time_limit(budget_s: float) -> float:
    """Seconds after which Slurm ends a job."""
    return 2 * budget_s + SPARE_S


def make_plan(
    nodes: Sequence[Node], request: Request, *, per_type: int, shared: bool, **settings: Any
) -> FleetPlan:
    """A plan with a job on each of the first `per_type` nodes of a type.  `settings` are fields of
    the plan, and `scaling`, the node type of a job over two nodes."""
    cluster, types = "slurm" if nodes[0].partition else "ssh", node_types(nodes)
    crowded = {node.partition for node in nodes if shared or node.forces_sharing}
    jobs = [
        FleetJob(f"{e.name}-{number}", e.name, node, e.partition, e.partition not in crowded)
        for e in types
        for number, node in enumerate(e.nodes[:per_type], start=1)
    ]
    if (scaling := settings.pop("scaling", None)) is not None:
        fit = {each.name: each for each in types if each.partition and len(each.nodes) > 1}
        if (found := fit.get(scaling)) is None:
            raise unknown("node type of Slurm with two nodes", scaling, fit or ["none"])
        both, alone = ",".join(found.nodes[:2]), found.partition not in crowded
        jobs.append(FleetJob("scaling", found.name, both, found.partition, alone, nodes=2))
    settings |= {"arguments": request.arguments(), "node_types": types, "jobs": jobs}
    head = FLEET_VERSION, now(), __version__, cluster
    return FleetPlan(*head, budget_s=request.budget, **settings)


def _arguments(plan: FleetPlan, job: FleetJob) -> list[str]:
    """The options of a job's run."""
    if job.nodes == 1:
        return plan.arguments
    return ["run", "scaling", f"--budget={plan.budget_s:g}", *{"--quick"} & {*plan.arguments}]


def script(plan: FleetPlan, job: FleetJob, folder: Path, directory: Path) -> str:
    """The text of `run.sh`, which runs in `directory` on the node."""
    variables = {"python": plan.python, "job": folder / JOBS / job.name, "directory": directory}
    variables |= {"nodes": job.nodes, "wheels": plan.wheels and folder / "inputs" / "wheels"}
    variables |= {BEGUN: plan.created_at}
    head = [f"{name}={shlex.quote(str(value or ''))}" for name, value in variables.items()]
    arguments = _arguments(plan, job)
    # The command's name, if it has one.
    name = [word for word in arguments[:1] if not word.startswith("-")]
    run = shlex.join(["set", "--", *name, "--jsonl", *arguments[len(name) :]])
    return "\n".join(["#!/bin/sh", *head, run, assets.path("fleet/run.sh").read_text()])


def plan_lines(plan: FleetPlan) -> Iterator[str]:
    """The plan as people read it."""
    for each in plan.node_types:
        jobs = [job for job in plan.jobs if job.node_type == each.name and job.nodes == 1]
        size = f"{units.counted(each.cores, 'core')}, {units.size(each.memory_bytes)}"
        yield f"{each.name}: {', '.join([size, *each.features, *each.gres])}"
        access = "exclusive" if jobs[0].exclusive else "NOT exclusive, others disturb the run"
        nodes = ", ".join(job.node for job in jobs)
        yield f"  {len(jobs)} of {len(each.nodes)} nodes, {access}: {nodes}"
    for job in (job for job in plan.jobs if job.nodes > 1):
        run = shlex.join(["workbench", *_arguments(plan, job)])
        yield f"{job.name}: {job.nodes} nodes at once, a rank on each: {job.node}: {run}"
    count = sum(job.nodes for job in plan.jobs)
    minutes, most = (count * s / 60 for s in (plan.budget_s, time_limit(plan.budget_s)))
    all_jobs = units.counted(len(plan.jobs), "job")
    yield f"{all_jobs}, {minutes:.1f} node-minutes of measuring, {most:.0f} at most"
    yield f"deadline {units.clock(plan.deadline_s)} after the start, waiting in queues included"
    yield f"each node: {shlex.join([plan.python, '-P', '-m', 'workbench', *plan.arguments])}"
    yield f"needed: {NEEDED[plan.cluster]}"
    if plan.wheels:
        yield f"each node installs workbench for its run from a copy of {plan.wheels}"
    if plan.budget_s < TABLE_QUICK_BUDGET_S:
        least = f"below {TABLE_QUICK_BUDGET_S:g} s"
        yield f"warning: {least} a busy node may measure nothing: raise --budget"


def kubernetes(image: str, pools: Sequence[str], per_pool: int, request: Request) -> str:
    """The Jobs as JSON, which is YAML too; a pool is a label of its nodes, and their GPUs."""
    text, jobs = assets.path("fleet/job.json").read_text(), []
    for number, pool in enumerate(pools, start=1):
        if (found := POOL.fullmatch(pool)) is None:
            wanted = "such as pool=a100, and their GPUs as in pool=a100:1"
            raise UsageError(f"--pool takes a label of nodes {wanted}, not {pool!r}")
        label, of_label, gpus = found.groups()
        job = msgspec.json.decode(text)
        job["metadata"]["name"] = f"workbench-{number}"
        job["spec"] |= {"completions": per_pool, "parallelism": per_pool}
        pod = job["spec"]["template"]["spec"]
        # The deadline of a Job would count the time in a queue; that of a pod starts on its node.
        pod["activeDeadlineSeconds"] = round(time_limit(request.budget))
        pod["nodeSelector"] = {label: of_label}
        pod["containers"][0] |= {"image": image, "args": request.arguments("--json")}
        if gpus:
            pod["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        jobs.append(msgspec.json.format(msgspec.json.encode(job)).decode())
    return "\n---\n".join(jobs)
