"""The plan of a fleet and the states of its jobs: what launcher, nodes and readers share.

The files of a folder: PLAN, written before anything is submitted; in JOBS, for each job, SUBMITTED
with the state it was last seen in, and what the node writes.  JSON is renamed into place.
"""

import msgspec

from .document import Tool

FLEET_VERSION = 1
PLAN, JOBS, SUBMITTED, SCRIPT = "fleet.json", "jobs", "submitted.json", "run.sh"
DOCTOR, JOURNAL, DOCUMENT = "doctor.json", "run.jsonl", "document.json"
LOG, EXIT_CODE = "log.txt", "exit_code"
# Words that begin the last state of a job: Slurm's, ours of a process reached by ssh, and ours of a
# job that the engine did not take.
ENDED: tuple[str, ...] = ("BOOT_FAIL", "CANCEL", "COMPLETED", "DEADLINE", "ENDED", "FAILED")
ENDED += ("NODE_FAIL", "OUT_OF_ME", "PREEMPTED", "REFUSED", "TIMEOUT")


class NodeType(msgspec.Struct, frozen=True):
    """Nodes that the engine describes in the same words."""

    name: str  # "cpu-32c", unique in the fleet
    cores: int
    memory_bytes: int
    features: list[str] = []
    gres: list[str] = []  # "gpu:a100:4"
    partition: str | None = None  # None with ssh
    nodes: list[str] = []


class FleetJob(msgspec.Struct, frozen=True):
    """One run on one node."""

    name: str  # "TYPE-1", its folder below `jobs`
    node_type: str
    node: str
    partition: str | None = None
    exclusive: bool = True
    nodes: int = 1  # more than one: it runs `scaling` over all of `node`, names with commas between


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
    deadline_s: float  # from `created_at`
    node_types: list[NodeType]
    jobs: list[FleetJob]
    inputs: dict[str, FleetInput] = {}  # by option: "model"
    budget_s: float = 0.0  # of each run
    wheels: str | None = None  # a folder of wheels, from which each node installs workbench


class PlanDocument(msgspec.Struct, frozen=True):
    """The document of `workbench fleet plan`."""

    schema_version: int
    tool: Tool
    plan: FleetPlan


class Submitted(msgspec.Struct, frozen=True):
    """The contents of `submitted.json`."""

    job_id: str  # the engine's own; the process id with ssh; empty if the engine refused it
    at: str  # ISO 8601, UTC
    native_state: str | None = None  # the engine's word, as the launcher last saw it
