"""The candidates of a user's model or code: a table from best to worst, and a chart of errors."""

from collections.abc import Sequence

from msgspec.structs import replace

from ...advisor.comparison import worse
from ...advisor.model.overview import agreement, untimed_text
from ...advisor.own.overview import RESIDENT
from ...advisor.ranking import NEGLIGIBLE, RankedCandidate, error_text
from ...advisor.subject import brief
from ...report.candidate import Candidate, Row
from ...stats.objectives import UNTIMED
from ...text import units
from ...worker.code import OWN
from .chart import LABEL, Place, Series, chart, ticks
from .derived import RunView
from .spans import Text, heading
from .table import Cell, Column, Line
from .tables import MEDIAN, STATE, median_texts
from .words import bar, device_tone, marked, state_texts, with_short

BAR = 24  # cells of the longest bar
TITLE = "Error over the time of a run"
HEIGHT, LEAST = 10, 3  # lines of the plot, and the least number of candidates for one
FLOOR = NEGLIGIBLE / 2  # where smaller errors are drawn
CHOSEN, PICK, WITHIN, BEYOND = "◆", "●", "○", "!"

_COLUMNS = (
    Column("variant", "Variant", minimum=14, names=True),
    Column("run", "Run"),
    MEDIAN,
    Column(RESIDENT, "Resident", rank=5, align="right"),
    Column("counted", "", rank=2, align="right"),
    Column("gain", "Gain", rank=1, align="right"),
    Column("bar", "", rank=8, minimum=6, maximum=BAR),
    Column("error", "Error", rank=1, align="right"),
    Column("top1", "Top-1", rank=7, align="right"),
    Column("size", "Size", rank=7, align="right"),
    STATE,
)


def columns(row: Row, *, bars: bool = True) -> list[Column]:
    """The columns of the candidates, with one for memory or energy if that is the objective and one
    for calls with resident inputs if there are any."""
    own, asked = row.plan.workload == OWN, row.plan.objective in UNTIMED
    titles = {"counted": row.plan.objective.capitalize()}
    titles |= {"variant": "Candidate"} if own else {}
    shown = dict.fromkeys(("run", "top1", "size"), not own) | {"bar": bars, "counted": asked}
    shown[RESIDENT] = any(RESIDENT in c.metrics for c in row.candidates)
    checks = {c.accuracy.metric for c in row.candidates if c.accuracy is not None}
    shown["error"] = not own or bool(checks - {"none"})
    return [
        replace(column, title=titles.get(column.key, column.title))
        for column in _COLUMNS
        if shown.get(column.key, True)
    ]


def candidate_lines(found: Sequence[RankedCandidate], run: RunView) -> list[Line]:
    """A line for each candidate; all bars share one scale."""
    most = max((ranked.gain for ranked in found if ranked.gain is not None), default=1.0)
    return [_candidate_line(ranked, run, most) for ranked in found]


def _candidate_line(ranked: RankedCandidate, run: RunView, most: float) -> Line:
    candidate = ranked.candidate
    share, resident = agreement(candidate), candidate.metrics.get(RESIDENT)
    cells: dict[str, Cell] = {
        "variant": with_short(Text.of(ranked.variant)),
        "run": Text.of(ranked.how),
        "state": _states(ranked, run),
        "error": _error(ranked),
        "top1": Text.of("" if share is None else f"{share:.1%}"),
        "size": Text.of("" if ranked.size_bytes is None else units.size(ranked.size_bytes)),
        "counted": Text.of(untimed_text(candidate)),
        RESIDENT: Text.of("" if resident is None else units.duration(resident, align=True)),
    }
    if candidate.blocks:
        cells["median"] = median_texts(candidate, run)
    if ranked.gain is not None:
        short = units.gain(ranked.gain)
        _, is_behind, factor = short.rpartition("1/")
        long = [f"{factor} {worse(candidate.objective)}"] if is_behind else []
        cells["gain"] = [*map(Text.of, long), Text.of(short)]
        cells["bar"] = bar("", ranked.gain / most, device_tone(candidate.case))
    return Line(candidate.case.id, cells)


def _error(ranked: RankedCandidate) -> Text:
    """The error of a candidate, marked if it exceeds the limit."""
    accuracy = ranked.candidate.accuracy
    if accuracy is None or accuracy.metric == "none":
        return Text()
    text, bound = error_text(accuracy.value), accuracy.error_bound
    if bound is not None:
        text = f"{text} to {error_text(bound)}"
    if ranked.above:
        return Text.of((f"! {text}", "error"))
    return Text.of((text, "dim" if ranked.given else "good"))


def _states(ranked: RankedCandidate, run: RunView) -> list[Text]:
    candidate = ranked.candidate
    if ranked.picked:
        return marked(["pick"], "strong good", candidate, run)
    has_result = candidate.state not in ("skipped", "failed")
    if ranked.above and has_result and (candidate.ended or not run.going):
        return marked([ranked.above, "over the limit", "over limit"], "error", candidate, run)
    return [
        Text.of(*((brief(text, run.report), tone) for text, tone in each.spans))
        for each in state_texts(candidate, run)
    ]


def tradeoff_lines(
    found: Sequence[RankedCandidate], chosen: Candidate | None, width: int
) -> list[Text]:
    """A plot of error over time, with a mark for each candidate that has both; [] if too few do."""
    points, places = list[Series](), list[Place]()
    marks: dict[str, tuple[str, str]] = {}  # by their text in the legend, in its order
    for ranked in reversed(found):  # the best is drawn last, on top
        accuracy, samples = ranked.candidate.accuracy, ranked.candidate.ordered_s
        if not samples or accuracy is None or accuracy.metric != "relative_error":
            continue
        meaning, mark = _mark(ranked, ranked.candidate is chosen)
        marks[meaning] = mark
        places.append((ranked.candidate.median_s, max(accuracy.value, FLOOR)))
        points.append(Series(mark, places[-1:]))
    if len(points) < LEAST or len({y for _, y in places}) < 2 or width < 3 * LABEL:
        return []
    times = [time_s for time_s, _ in places]
    steps = ticks(min(times), max(times), max(2, (width - LABEL) // 16))
    labels = [(step, (units.duration(step), "dim")) for step in steps]
    drawn = chart(points, labels, lambda error: f"{100 * error:.3g}%", width - LABEL - 4, HEIGHT)
    legend = Text.of(*(part for name, mark in marks.items() for part in (mark, f" {name}  ")))
    return [heading(TITLE, width), *drawn, legend.truncate(width)]


def _mark(ranked: RankedCandidate, is_chosen: bool) -> tuple[str, tuple[str, str]]:
    if is_chosen:
        return "selected", (CHOSEN, "strong")
    if ranked.picked:
        return "pick", (PICK, "strong good")
    if ranked.above:
        return "above its limit", (BEYOND, "error")
    return "within its limit", (WITHIN, "dim")
