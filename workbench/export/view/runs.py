"""The kept runs as a table, and one of them in detail."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from ...records.comparison import RunSummary
from ...records.verdict import CONFIDENCES
from ...text import units
from ...text.sanitize import shown
from .spans import Text, fact, facts_lines, heading, listed
from .table import Cell, Column, Line, holds
from .words import choice_word

COLUMNS = (
    Column("started", "Started", rank=2),
    Column("command", "Command", rank=1, minimum=20, maximum=60),
    Column("time", "Took", rank=3, align="right"),
    Column("status", "Status"),
    Column("answers", "Answers", rank=4, minimum=18, maximum=60, patient=True),
    Column("machine", "Machine", rank=6, minimum=24, patient=True),
)
MARKED = Column("side", "")  # holds A and B
TONES = {"done": "", "running": "strong", "failed": "error", "unreadable": "error"}


def run_line(run: RunSummary, sides: Mapping[str, str] = {}) -> Line:
    """One run; `sides` has the letters of runs chosen for a comparison."""
    statuses = [run.status + how * run.simulated for how in (", simulated", " sim")]
    texts = [run.reason or ""]
    if run.confidences or run.command.startswith("workbench advise"):  # others have no answers
        texts = [", ".join(_answers(run)), _confidences(run)]
    cells: dict[str, Cell] = {
        "side": Text.of((sides.get(run.id, " "), "strong command")),
        "id": Text.of(run.id),
        "started": Text.of(moment(run)),
        "command": Text.of(command(run)),
        "time": Text.of("" if run.duration_s is None else units.clock(run.duration_s)),
        "status": [Text.of((text, TONES.get(run.status, "warning"))) for text in statuses],
        "answers": [Text.of((text, "dim")) for text in texts],
        "machine": Text.of((run.machine or "", "dim")),
    }
    return Line(run.id, cells)


def run_details(run: RunSummary, width: int) -> list[Text]:
    """Everything known about a run without reading its measurements."""
    facts = [fact("command", run.command)] if run.command else []
    facts += [fact("started", f"{moment(run)}, {run.status}")] if run.started_at else []
    facts += [fact("machine", run.machine)] if run.machine else []
    facts += [fact("problem", run.reason, "error")] if run.reason else []
    return [heading(run.id, width), *facts_lines([*facts, *listed("rows", _answers(run))], width)]


def is_found(run: RunSummary, words: str) -> bool:
    """Whether all words occur in the line or the details of a run."""
    return holds(words, run.command, run.reason or "", *run_line(run).words, *_answers(run))


def _answers(run: RunSummary) -> list[str]:
    """Each row with its answer and confidence, if it has them."""
    words = {row: f" ({word})" for row, word in run.confidences.items()}
    return [
        f"{row}: {choice_word(answer)}{words.get(row, '')}" if answer else row
        for row, answer in run.answers.items()
    ]


def _confidences(run: RunSummary) -> str:
    """The number of answers with each confidence, least certain first, since the end may be cut."""
    counts = Counter(run.confidences.values())
    counts["unanswered"] = len(run.answers) - len(run.confidences)
    words = ("unanswered", *reversed(CONFIDENCES))
    return ", ".join(f"{counts[word]} {word}" for word in words if counts[word])


def moment(run: RunSummary) -> str:
    """When the run began, by local time; by its own time if TZ is a day or more from UTC."""
    if run.started_at is None:
        return ""
    began = datetime.fromisoformat(run.started_at)
    with suppress(ValueError, OverflowError):
        began = began.astimezone()
    return str(began)[:16]


def command(run: RunSummary) -> str:
    """The arguments of its command; the id of a run whose command is unknown."""
    words = run.command.removeprefix("workbench").strip() or "advise"
    return shown(words, 60) if run.command else run.id
