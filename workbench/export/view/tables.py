"""The tables of verdicts and candidates: their columns and the cells that fill them."""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from ...advisor.comparison import TIMED
from ...advisor.ranking import error_text, is_vague
from ...records.verdict import Verdict
from ...report.candidate import Candidate, Row
from ...text import units
from . import forest, words
from .derived import RunView
from .spans import Span, Text
from .table import UNLIMITED, Cell, Column, Line, texts_of

NARROW, ROOMY = 72, 100
_ADVISOR_COLUMNS = (
    Column("scenario", "Scenario", minimum=18),
    Column("textbook", "Usual", rank=3),
    Column("here", "Here"),
    Column("confidence", "Confidence"),
    Column("ratio", "Lead", rank=1, align="right"),
    Column("interval", "95%", rank=4),
    Column("pick", "Pick", rank=2, names=True),
)


def has_gpu(rows: Iterable[Row]) -> bool:
    return any(c.case.device_kind == "gpu" for row in rows for c in row.candidates)


def advisor_columns(rows: Collection[Row], width: int = UNLIMITED) -> list[Column]:
    """The columns for these rows; models have no usual advice, and plain runs no verdict."""
    has_advice = not rows or any(row.plan.textbook for row in rows)
    (scenario, *others), titles = _ADVISOR_COLUMNS, dict[str, str]()
    if width < ROOMY:  # short names, in all rows
        scenario = replace(scenario, minimum=14 if width < NARROW else 18, names=True)
        titles["confidence"] = "Conf."
    elif not (has_advice or has_gpu(rows)):  # a model's gain has a line of its own
        titles["ratio"] = "Lead over next"
    if rows and not any(row.plan.owes_verdict for row in rows):
        return [scenario, Column("ratio", "Result")]
    shown = [c for c in others if has_advice or c.key != "textbook"]
    return [scenario, *(replace(c, title=titles.get(c.key, c.title)) for c in shown)]


def advisor_line(row: Row, run: RunView, *, in_words: bool = False, short: bool = False) -> Line:
    """One scenario: its verdict, or the state of its race.  `in_words`: the pick is also named in
    words, if they fit; `short`: the scenario has its short name from the start, so that it does
    not change when answers arrive."""
    plan, verdict = row.plan, row.verdict
    advice = plan.textbook or ""
    title = Text.of(row.title)
    # A scenario has a short name, which the command line takes too.
    names = [title, Text.of(plan.scenario)][short:]
    cells: dict[str, Cell] = {
        "scenario": names if advice and not in_words else title,
        "textbook": Text.of((words.choice_word(advice), advice)),
    }
    if verdict is None:
        cells["here"] = Text.of(("..." if run.going else "-", "dim"))
        return Line(plan.scenario, cells, ("ratio", pending_texts(row, run)))
    # It names a simulated GPU, since this column never disappears.
    mark = (" sim" if verdict.basis == "simulated" else "", "warning")
    cells["here"] = Text.of(words.choice_text(verdict), mark)
    cells["confidence"] = words.confidence_text(verdict)
    # A row about a model has a pick even if its choice of device is unknown.
    owed = plan.textbook or verdict.pick is None
    if verdict.choice == "unknown" and verdict.device_ratio is None and owed:
        why = verdict.reasons[0] if verdict.reasons else "no reason was given"
        return Line(plan.scenario, cells, ("ratio", [Text.of((why, "dim"))]))
    cells |= _lead_cells(verdict, run)
    cells["pick"] = words.pick_texts(verdict, run, words=in_words)
    return Line(plan.scenario, cells)


def _lead_cells(verdict: Verdict, run: RunView) -> dict[str, Cell]:
    """The lead of the better device if both raced, else that of the pick over the runner-up."""
    (value, bounds), device_ratio = verdict.lead, verdict.device_ratio
    names = verdict.pick, verdict.runner_up
    names = names if device_ratio is None else (verdict.best_cpu, verdict.best_gpu)
    pair = [run.report.candidates.get(name or "") for name in names]
    if verdict.no_gpu and has_gpu(run.report.rows.values()):  # other rows have one
        return {"ratio": Text.of(("no GPU", "dim"))}
    if value is None:
        alone = "alone" if verdict.pick is not None and verdict.runner_up is None else "-"
        return {"ratio": Text.of((alone, "dim"))}
    if is_vague(*pair) or (bounds is not None and units.says_nothing(bounds)):
        return {"ratio": Text.of((VARIES, "dim"))}
    leader = ""
    if device_ratio is not None and verdict.choice not in ("cpu", "gpu"):
        leader = f"{words.choice_word('gpu' if device_ratio >= 1 else 'cpu', verdict.best_gpu)} "
    text, interval = units.ratio_parts(*units.above_1(value, bounds))
    # The pick may have the higher value: medians decide where tails are level, and below seven
    # rounds the median of the ratios ranks, not their mean.
    if device_ratio is None and value < 1 and text != "1.00x":
        text = f"1/{text}"
    return {"ratio": Text.of(leader, text), "interval": Text.of(interval)}


def pending_texts(row: Row, run: RunView) -> list[Text]:
    """The state of a race without a verdict, longest text first."""
    report = run.report
    searched = any(run.largest(candidate) for candidate in row.candidates)
    if not row.plan.owes_verdict and (row.started or searched):
        return _fastest_texts(row, run)
    if not row.started:
        return [Text.of(("waiting" if run.going else "not reached", "dim"))]
    if run.going and report.current_row == row.plan.scenario:
        state = racing_text(row)
        texts = list(dict.fromkeys([state, state.replace(" candidates", "")]))
        if row.round:
            whole = f"{state}, round {row.round}"
            rest_s = (row.began_at_s or 0.0) + (row.share_s or 0.0) - run.elapsed_s
            timed = [f"{whole}, at most {units.clock(rest_s)}"] if rest_s > 0 else []
            texts = [*timed, whole, *texts]
        return [Text.of((text, "strong")) for text in texts]
    texts = ["deciding"] if run.going else ["cut short before a verdict", "cut short"]
    return [Text.of((text, "dim")) for text in texts]


def racing_text(row: Row, where: str = "") -> str:
    """`racing, 2 of 7 candidates left`; a lone candidate has nothing to race."""
    count, left = len(row.candidates), sum(not candidate.ended for candidate in row.candidates)
    return f"racing{where}, {left} of {count} candidates left" if count > 1 else f"measuring{where}"


def _fastest_texts(row: Row, run: RunView) -> list[Text]:
    best = run.best(row)
    if best is None:
        return _largest_batch(row, run) or [Text.of(("nothing measured", "dim"))]
    word = "fastest: " if sum(bool(c.blocks) for c in row.candidates) > 1 else "measured: "
    other = run.runner_up(row)
    ratio = run.stated(row).get(other.case.id) if other is not None else None
    is_level = other is not None and (ratio is None or ratio.low <= 1)  # as for a pick
    texts = [Text.of((word, "dim"), name) for name in words.case_texts(best.case.id, run)]
    return [Text.of(each, (" / ...", "dim")) for each in texts] if is_level else texts


def _largest_batch(row: Row, run: RunView) -> list[Text]:
    """The candidate with the largest batch, if that was searched."""
    searched = [found for c in row.candidates if (found := run.largest(c)) and found.batch]
    most = max(searched, key=lambda found: found.batch or 0, default=None)
    if most is None:
        return []
    said = f"largest {words.largest_texts(most)[-1]}: "
    return [Text.of((said, "dim"), name) for name in words.case_texts(most.case, run)]


OBJECTIVE_TITLES = {"latency_p99": "p99", "time_to_result": "To result"}
APART = ""  # key of the heading above the candidates for reference only
VARIES = "varies"  # in place of a ratio that says nothing
MORE_IS_BETTER = "test_accuracy"  # the metric whose limit is a minimum
NO_LIMIT = 1.0  # the workload's limit for a user's model, whose candidates --max-error bounds

_CANDIDATE = Column("candidate", "Candidate", minimum=32, names=True)
_RATE = Column("rate", "Rate", rank=4, align="right")
MEDIAN = Column("median", "Median", rank=2, align="right")
_N = Column("n", "n", rank=7, align="right")
_CHECK = Column("accuracy", "Check / limit", rank=6, align="right")
STATE = Column("state", "State", rank=1, patient=True, maximum=UNLIMITED)


def counted_columns(row: Row) -> list[Column]:
    """The column of the row's objective, unless that is the median."""
    title = OBJECTIVE_TITLES.get(row.plan.objective)
    return [Column("value", title, rank=1, align="right")] if title else []


def run_columns(
    row: Row, run: RunView, *, marks: bool = False, checks: bool = False
) -> list[Column]:
    """The columns of a race with its plot; `marks` adds one for the symbols of the curves, `checks`
    one for the errors."""
    has_values = any(candidate.value is not None for candidate in row.candidates)
    counted = [replace(each, rank=1 if has_values else 8) for each in counted_columns(row)]
    objective, axis = row.plan.objective, forest.axis(run.stated(row))
    title = "Time" if objective in TIMED else objective.capitalize()
    ratios = Column("speed", title, 3, minimum=16, maximum=72, bare=forest.VALUE - 1, head=axis)
    return [
        *([Column("mark", "")] if marks else []),
        _CANDIDATE,
        *([ratios] if len(row.candidates) > 1 else []),
        _RATE,
        *counted,
        replace(MEDIAN, rank=5) if counted and has_values else MEDIAN,
        _N,
        *([_check_column(row)] if checks else []),
        STATE,
    ]


def result_columns(row: Row) -> list[Column]:
    """The columns of a finished race."""
    return [_CANDIDATE, *counted_columns(row), MEDIAN, _RATE, _N, _check_column(row), STATE]


def _check_column(row: Row) -> Column:
    """The errors, with their limits unless the row is about a user's ONNX model."""
    found = [c.accuracy.limit for c in row.candidates if c.accuracy is not None]
    return replace(_CHECK, title="Error") if NO_LIMIT in found else _CHECK


def raced_lines(
    row: Row,
    run: RunView,
    marks: Mapping[str, Span] = {},
    accepts: Callable[..., bool] = lambda *_: True,
) -> list[Line]:
    """A line for each candidate; those for reference only follow a heading.  `marks` has the
    symbols of the curves; `accepts` says which lines are shown, by their labels and words."""
    lines: list[Line] = []
    for candidate in run.ordered(row):
        label = candidate.case.label
        line = candidate_line(candidate, row, run, marks.get(label))
        searched = line
        if candidate.eliminated:  # the long text of its state names another candidate
            state = texts_of(line.cells["state"])[-1]
            searched = replace(line, cells={**line.cells, "state": state})
        if not accepts(label, *searched.words):
            continue
        if row.is_reference_only(candidate) and not any(line.key == APART for line in lines):
            title = [Text.of(("for comparison, never picked", "dim"))]
            lines.append(Line(APART, {"candidate": Text()}, ("candidate", title)))
        lines.append(line)
    return lines


def candidate_line(candidate: Candidate, row: Row, run: RunView, mark: Span | None = None) -> Line:
    """One candidate, with the cells of every table that shows it."""
    states, measured = words.state_texts(candidate, run), run.measured(candidate)
    if row.picks(candidate) and candidate.state == "ok":
        states = words.marked(["pick"], "strong good", candidate, run)
    cells: dict[str, Cell] = {
        "candidate": words.case_texts(candidate.case.id, run),
        "state": states,
        "accuracy": Text.of(accuracy_text(candidate)),
        "mark": Text.of(mark or ""),
    }
    if measured.n:
        cells |= {
            "rate": Text.of(rate_text(candidate, run, run.best(row))),
            "value": Text.of(units.duration(candidate.value, align=True)),
            "median": median_texts(candidate, run),
            "n": Text.of(f"{measured.n}"),
        }
        if candidate.case.id in (behind := run.stated(row)):
            tone = words.device_tone(candidate.case) + (" dim" if candidate.eliminated else "")
            cells["speed"] = forest.cell(candidate.case.id, behind, tone)
        elif candidate.case.id in run.behind(row):
            cells["speed"] = Text.of((VARIES.rjust(forest.VALUE - 1), "dim"))
    return Line(candidate.case.id, cells)


def rate_text(candidate: Candidate, run: RunView, best: Candidate | None = None) -> str:
    """Operations per second if known, else items per second; in the unit of the best."""
    found = run.measured(candidate)
    most = run.measured(best) if best is not None else found
    if found.flops_per_s is not None:
        return units.rate(found.flops_per_s, units.per_s(found.case.precision), most.flops_per_s)
    if found.throughput is None:
        return units.NOT_AVAILABLE
    return units.rate(found.throughput.value, found.throughput.unit)


def median_texts(candidate: Candidate, run: RunView) -> list[Text]:
    """The median with its interval, or alone if the column is narrow."""
    found = run.measured(candidate)
    alone = units.duration(found.median_s, align=True)
    spread = units.spread(found.median_s, found.ci95_s)
    # Of equal length, so that all or none of a column have their spread.
    return [Text.of(f"{alone:>7}", (f"{spread:>7}", "dim")), Text.of(alone)]


def accuracy_text(candidate: Candidate) -> str:
    """`0.0012 / 0.01`: the error and its limit; `0.12%` without a limit, `0.97 / >= 0.95` if more
    is better; "" without a check."""
    accuracy = candidate.accuracy
    if accuracy is None or accuracy.metric == "none":
        return ""
    mark = "" if accuracy.passed else "! "
    least = ">= " if accuracy.metric == MORE_IS_BETTER else ""
    if accuracy.limit == NO_LIMIT and not least:
        return f"{mark}{error_text(accuracy.value)}"
    return f"{mark}{units.figure(accuracy.value)} / {least}{units.figure(accuracy.limit)}"
