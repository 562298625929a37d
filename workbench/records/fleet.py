"""A fleet: its plan, the states of its jobs, and the document that `workbench fleet show` makes.

A folder contains PLAN, written before anything is submitted, and in JOBS a folder for each job with
SUBMITTED, which has its last seen state, and the files of the node.  JSON is renamed into place.
"""

import msgspec

from .document import Headed, Summary
from .reason import Reason, Warning

FLEET_VERSION = 1
PLAN, JOBS, SUBMITTED, SCRIPT = "fleet.json", "jobs", "submitted.json", "run.sh"
DOCTOR, JOURNAL, DOCUMENT = "doctor.json", "run.jsonl", "document.json"
LOG, EXIT_CODE = "log.txt", "exit_code"
COLLECTED = "fleet-document.json"  # its name in the folder
# Beginnings of final states of a job: Slurm's, ENDED of a process over ssh, and ours of a job that
# was refused.
ENDED: tuple[str, ...] = ("BOOT_FAIL", "CANCEL", "COMPLETED", "DEADLINE", "ENDED", "FAILED")
ENDED += ("NODE_FAIL", "OUT_OF_ME", "PREEMPTED", "REFUSED", "TIMEOUT")


class NodeType(msgspec.Struct, frozen=True):
    """Nodes that the cluster describes as equal."""

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
    nodes: int = 1  # if more, the job runs `scaling` over all nodes in `node`, separated by commas


class FleetInput(msgspec.Struct, frozen=True):
    """A file that every node reads, copied into the folder."""

    file: str  # relative to the folder
    sha256: str


class FleetPlan(msgspec.Struct, frozen=True):
    """The contents of `fleet.json`."""

    fleet_version: int
    created_at: str  # ISO 8601, UTC
    tool_version: str
    cluster: str = msgspec.field(name="engine")  # "slurm" or "ssh"
    arguments: list[str]  # the options of the run on every node
    python: str  # the interpreter's path on the nodes
    deadline_s: float  # from `created_at`
    node_types: list[NodeType]
    jobs: list[FleetJob]
    inputs: dict[str, FleetInput] = {}  # by option: "model"
    budget_s: float = 0.0  # for each run
    wheels: str | None = None  # folder of wheels, from which each node installs workbench


class PlanDocument(Headed, frozen=True):
    """The document of `workbench fleet plan`."""

    plan: FleetPlan


class Submitted(msgspec.Struct, frozen=True):
    """The contents of `submitted.json`."""

    job_id: str  # Slurm's id, or PROCESS@HOST with ssh; empty if the job was refused
    at: str  # ISO 8601, UTC
    native_state: str | None = None  # the state by Slurm or ssh when last seen


class NodeAnswer(Summary, frozen=True):
    """One verdict of one machine; its lead is paired."""

    objective: str = ""
    job: str = ""  # sizes and items of a step: equal if two machines did the same
    value_s: float | None = None  # seconds of the pick under the objective
    value_ci95_s: tuple[float, float] | None = None
    per_million_s: float | None = None  # seconds that a million items occupy the machine
    ranks: int = 1  # processes that share a step, each with a GPU of its own
    uncompared: Reason | None = None  # why there is no `value_s`


class ScaledCase(msgspec.Struct, frozen=True):
    """One number of ranks in `run scaling`; all numbers took turns in one run."""

    device: str
    ranks: int
    median_s: float
    efficiency: float | None  # speed-up over one rank, per GPU or thread; None for one rank
    sync_fraction: float | None  # share of a step that the all-reduce takes


class NodeRun(msgspec.Struct, frozen=True):
    """The document of one machine in brief, or its journal so far."""

    status: str  # as in `Run`
    started_at: str  # ISO 8601, UTC
    duration_s: float | None
    version: str  # the version of workbench
    hostname: str
    machine: str  # CPU, cores, memory and GPUs
    subject: str  # hash of the user's model or code, else empty
    answers: list[NodeAnswer]
    scaling: list[ScaledCase] = []  # for a run of `scaling`, which has no verdict
    id: str = ""  # as in `Run`


class FleetNode(msgspec.Struct, frozen=True):
    """One job of the plan, or another document in the folder."""

    name: str  # the job's, or the file's
    node_type: str  # from the plan, else from the detected machine
    node: str  # from the plan, else the host name
    state: str  # "pending", "running", "done", "failed", "lost", "partial", "incomparable"
    reason: Reason | None = None  # why it has not answered
    log: list[str] = []  # the last lines of its log, unless it has answered
    queued_s: float | None = None  # from submission to the start of the run; part of no other time
    run: NodeRun | None = None


class FleetFolder(msgspec.Struct):
    """The content of a fleet's folder at one moment, before its nodes are compared."""

    plan: FleetPlan | None = None
    nodes: list[FleetNode] = []
    warnings: list[Warning] = []


class FleetCell(NodeAnswer, frozen=True):
    """One scenario on one node type: the answer of its node with the median time."""

    node_type: str = ""
    node: str = ""  # name of that node
    nodes: int = 0  # number with an answer to this scenario
    agreeing: int = 0  # number with the same pick
    spread: float | None = None  # slowest equal node over the fastest; None below two
    slowest: str | None = None
    ratio: float | None = None  # its time over that of the fastest node type, unpaired
    ratio_ci95: tuple[float, float] | None = None
    per_million: float | None = None  # price of a million items


class FleetRow(msgspec.Struct, frozen=True):
    """One scenario, and the node type for it."""

    scenario: str
    choice: str  # a node type, "either", or "unknown" while others have not answered
    alike: list[str]  # node types that may be the fastest, shortest time first
    lead: float | None  # time of the next node type over that of the fastest
    lead_ci95: tuple[float, float] | None
    # Node types that may be the cheapest; empty while `choice` is "unknown" or a price is missing.
    cheapest: list[str]
    cells: list[FleetCell]  # fastest first


class FleetDocument(Headed, frozen=True):
    """The state of a fleet at one moment."""

    cluster: str | None = msgspec.field(name="engine")  # None for a folder without a plan
    arguments: list[str]  # the options of the run on every node
    rows: list[FleetRow]
    nodes: list[FleetNode]
    prices: dict[str, float]  # node type, kind of device or device to its price per hour
    warnings: list[Warning]

    @property
    def is_complete(self) -> bool:
        """Whether every node has answered, and every file was one of ours."""
        return not self.warnings and all(node.state == "done" for node in self.nodes)
