"""The JSON documents of `workbench compare`, `runs` and `ab`; see `document` for their rules."""

from collections.abc import Sequence

import msgspec

from .document import Headed, Run
from .machine import Machine, Software
from .reason import Reason, Warning

Interval = tuple[float, float]


class ComparedRun(msgspec.Struct, frozen=True):
    """One of the runs."""

    name: str  # "A", "B", ... in the order of the command line
    run: Run
    version: str  # version of workbench
    machine: Machine | None
    software: Software | None
    round_spread: float | None  # standard deviation of the logarithm of rounds, over all cases


class ComparedVerdict(msgspec.Struct, frozen=True):
    """A verdict whose choice or pick differs from A's; in pairs, A's value comes first."""

    scenario: str
    # "CHANGED": disjoint intervals of one question; "AMBIGUOUS": they overlap, or one is missing
    word: str
    choices: tuple[str, str]
    picks: tuple[str | None, str | None]  # case ids
    # Paired ratio of A's pick to the other's within each run; None if they are the same.
    ci95: tuple[Interval | None, Interval | None]


class ComparedCase(msgspec.Struct, frozen=True):
    """One case that both runs measured; in pairs, A's value comes first."""

    id: str
    word: str  # "SAME", "FASTER", "SLOWER" or "AMBIGUOUS"
    median_s: tuple[float, float]  # seconds per step
    rounds: tuple[int, int]
    ratio: float | None  # time of the other run over that of A; None if a step does other work
    reason: Reason | None = None  # why there is no interval
    ci95: Interval | None = None
    ci99: Interval | None = None  # decides `word` and `beyond`
    beyond: bool = False  # the whole interval is slower than `fail_on` allows


class Versus(msgspec.Struct, frozen=True):
    """One run compared with A."""

    name: str
    same_machine: bool
    warnings: list[Warning]
    verdicts: list[ComparedVerdict]
    cases: list[ComparedCase]  # proven changes first, then by the size of the change
    only_in_a: list[str]  # case ids
    only_here: list[str]
    failed_here: dict[str, Reason] = {}  # the cases of `only_in_a` that failed here, and why


class RunComparison(Headed, frozen=True):
    """The document of `compare`: earlier runs, each compared with A, the first."""

    fail_on: float | None
    runs: list[ComparedRun]
    against: list[Versus]


class RunSummary(msgspec.Struct, frozen=True):
    """One line in the list of runs."""

    id: str
    status: str  # as in `Run`, or "unreadable"
    started_at: str | None = None  # ISO 8601
    duration_s: float | None = None  # None for a run without an end
    command: str = ""
    simulated: bool = False  # whether a candidate ran on a simulated device
    answers: dict[str, str] = {}  # row to its pick or choice, "" without a verdict
    reason: str | None = None  # why it is unreadable
    machine: str | None = None  # its processor, usable cores and GPUs
    confidences: dict[str, str] = {}  # row with a verdict to the confidence of its answer


class RunList(Headed, frozen=True):
    """The document of `runs`."""

    runs: Sequence[RunSummary]  # newest first


class Side(msgspec.Struct, frozen=True):
    """One side; unset options are as in any other run."""

    name: str  # "A" or "B"
    label: str  # the options in which it differs from the other side
    python: str | None = None
    path: str = ""  # folder that is searched first for modules
    command: str | None = None
    variables: dict[str, str] = {}  # environment variables of its workers


class ABResult(msgspec.Struct):
    """One case on both sides.  Each pair of fresh processes gives one ratio."""

    case: str  # id
    word: str | None = None  # B against A: "SAME", "FASTER", "SLOWER" or "AMBIGUOUS"
    ratio: float | None = None  # time of B over time of A
    ci95: tuple[float, float] | None = None
    ratios: list[float] = []  # one for each pair of processes
    a_s: list[float] = []  # seconds of a step on side A, the median of each process
    b_s: list[float] = []  # the same for side B
    reason: Reason | None = None  # why there is no result
    basis: str = "measured"  # or "simulated"


class ABReport(Headed, frozen=True):
    """The whole document."""

    sides: list[Side]
    results: list[ABResult]
    tolerance: float  # ratios within it count as the same
    fail_on: float | None  # the share by which B may be slower
    exit_code: int  # exit code of the command
