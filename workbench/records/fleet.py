"""The plan of a fleet and the states of its jobs: the files that `fleet run` and a node write.

    DIR/fleet.json                the plan, before anything is submitted
    DIR/jobs/NAME/submitted.json  what the engine made of the job, and the last state it was in
    DIR/jobs/NAME/...             what the node writes; the names stand below

A launcher and the readers share nothing but this folder.  Each JSON file is renamed into place.
"""

from __future__ import annotations

import msgspec

FLEET_VERSION = 1
PLAN, JOBS = "fleet.json", "jobs"
SUBMITTED, SCRIPT, LOG, EXIT_CODE = "submitted.json", "run.sh", "log.txt", "exit_code"
DOCTOR, JOURNAL, DOCUMENT = "doctor.json", "run.jsonl", "document.json"


class NodeType(msgspec.Struct, frozen=True):
    """Nodes that the engine describes in the same words."""

    name: str  # "cpu1-1c": made from the first node, unique in the fleet
    cores: int  # 0: unknown, as of a host that was only named
    memory_bytes: int  # 0: unknown
    features: list[str] = []
    gres: list[str] = []  # "gpu:a100:4"
    partition: str | None = None  # the one it is submitted to; None with ssh
    nodes: list[str] = []


class FleetJob(msgspec.Struct, frozen=True):
    """One run on one node."""

    name: str  # "TYPE-1", its folder below `jobs`
    node_type: str
    node: str
    partition: str | None = None
    exclusive: bool = True


class FleetInput(msgspec.Struct, frozen=True):
    """A file that every node reads, copied into the folder."""

    file: str  # relative to the folder
    sha256: str


class FleetPlan(msgspec.Struct, frozen=True):
    """The contents of `fleet.json`."""

    fleet_version: int
    created_at: str  # ISO 8601, UTC
    tool_version: str
    engine: str  # "slurm" or "ssh"
    arguments: list[str]  # the options of the run on every node
    python: str  # the interpreter's path on the nodes
    deadline_s: float
    node_types: list[NodeType]
    jobs: list[FleetJob]
    inputs: dict[str, FleetInput] = {}  # by option: "model"


class Submitted(msgspec.Struct, frozen=True):
    """The contents of `submitted.json`."""

    job_id: str  # the engine's own; the process id with ssh
    at: str  # ISO 8601, UTC: when it was submitted
    native_state: str | None = None  # the engine's word, as the launcher last saw it
