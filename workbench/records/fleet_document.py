"""The document of `workbench fleet show`: many machines, one advice."""

import msgspec

from .document import Summary, Tool
from .reason import Reason, Warning

COLLECTED = "fleet-document.json"  # its name in the folder


class NodeAnswer(Summary, frozen=True):
    """One verdict of one machine; its lead is paired."""

    objective: str = ""
    job: str = ""  # sizes and items of a step: equal where two machines did the same
    value_s: float | None = None  # seconds of the pick under the objective
    value_ci95_s: tuple[float, float] | None = None
    per_million_s: float | None = None  # seconds that a million items occupy the machine
    ranks: int = 1  # processes that share a step, each on a GPU of its own
    uncompared: Reason | None = None  # why there is no `value_s`


class ScaledCase(msgspec.Struct, frozen=True):
    """One number of ranks of `run scaling`; all of them took turns in one run."""

    device: str
    ranks: int
    median_s: float
    efficiency: float | None  # speed-up over one rank, per GPU or thread; None for one rank
    sync_fraction: float | None  # share of a step that the all-reduce takes


class NodeRun(msgspec.Struct, frozen=True):
    """The document of one machine in short, or its journal so far."""

    status: str  # as in `Run`
    started_at: str  # ISO 8601, UTC
    duration_s: float | None
    version: str  # of workbench
    hostname: str
    machine: str  # CPU, cores, memory and GPUs
    subject: str  # hash of the user's model or code, else empty
    answers: list[NodeAnswer]
    scaling: list[ScaledCase] = []  # of a run of `scaling`, which holds no verdict


class FleetNode(msgspec.Struct, frozen=True):
    """One job of the plan, or a document that lies in the folder by itself."""

    name: str  # of the job or of the file
    node_type: str  # of the plan, else as the machine was found
    node: str  # of the plan, else the host name
    state: str  # "pending", "running", "done", "failed", "lost", "partial", "incomparable"
    reason: Reason | None = None  # why it has not answered
    log: list[str] = []  # the last lines of its log, unless it has answered
    queued_s: float | None = None  # from submission to the start of the run; in no other time
    run: NodeRun | None = None


class FleetCell(NodeAnswer, frozen=True):
    """One scenario on one node type: the answer of its middle node by time."""

    node_type: str = ""
    node: str = ""  # name of the middle one
    nodes: int = 0  # number with an answer to this scenario
    agreeing: int = 0  # number with the same pick
    spread: float | None = None  # slowest equal node over the fastest; None below two
    slowest: str | None = None
    ratio: float | None = None  # its time over that of the fastest node type, unpaired
    ratio_ci95: tuple[float, float] | None = None
    per_million: float | None = None  # price of a million items


class FleetRow(msgspec.Struct, frozen=True):
    """One scenario: which node type."""

    scenario: str
    choice: str  # a node type, "either", or "unknown" while others have not answered
    alike: list[str]  # node types that may be the fastest, the one with the least time first
    lead: float | None  # time of the next node type over that of the fastest
    lead_ci95: tuple[float, float] | None
    cheapest: list[str]  # node types that may be; empty unless each compared one has a price
    cells: list[FleetCell]  # fastest first


class FleetDocument(msgspec.Struct, frozen=True):
    """What the folder of a fleet says at one moment."""

    schema_version: int
    tool: Tool
    engine: str | None  # None for a folder without a plan
    arguments: list[str]  # the options of the run on every node
    rows: list[FleetRow]
    nodes: list[FleetNode]
    prices: dict[str, float]  # node type, kind of device or device to its price per hour
    warnings: list[Warning]
