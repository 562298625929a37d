"""The document of `workbench ab`; see `records.document` for its rules."""

import msgspec

from .document import Tool
from .reason import Reason


class Side(msgspec.Struct, frozen=True):
    """One side; what it does not set is as in any other run."""

    name: str  # "A" or "B"
    label: str  # the options that it does not share with the other side
    python: str | None = None
    path: str = ""  # folder in which modules are looked for first
    command: str | None = None
    variables: dict[str, str] = {}  # of its workers' environment


class ABResult(msgspec.Struct):
    """One case on both sides.  Each pair of fresh processes gives one ratio."""

    case: str  # id
    word: str | None = None  # B against A: "SAME", "FASTER", "SLOWER" or "AMBIGUOUS"
    ratio: float | None = None  # time of B over time of A
    ci95: tuple[float, float] | None = None
    ratios: list[float] = []  # of each pair of processes
    a_s: list[float] = []  # seconds of a step on side A, the median of each process
    b_s: list[float] = []  # the same of side B
    reason: Reason | None = None  # why there is no result
    basis: str = "measured"  # or "simulated"


class ABReport(msgspec.Struct):
    """The whole document."""

    schema_version: int
    tool: Tool
    sides: list[Side]
    results: list[ABResult]
    tolerance: float  # ratios within it count as the same
    fail_on: float | None  # the share by which B may be slower
    exit_code: int  # of the command
